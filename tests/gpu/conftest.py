"""What the tests on a GPU share: they skip themselves where there is none, and leave nothing in the cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def a_gpu() -> None:
    """A GPU, real or simulated."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use here: make test-gpu simulates one")


@pytest.fixture(autouse=True)
def an_empty_device() -> Iterator[None]:
    """After each test nothing is kept in the allocator's cache."""
    yield
    gc.collect()
    torch.cuda.empty_cache()
