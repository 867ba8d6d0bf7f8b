"""Recordings of a test's own tensors: those of other tests in the process live as long as they like."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch

from tbmem.sources import older_storages


@contextmanager
def only_own_tensors() -> Iterator[None]:
    """In the block, tensors that are alive when it begins are none that a recording finds."""
    gc.collect()
    live = older_storages._live_tensors
    others = live()  # held, so that no number is given out a second time
    numbers = {id(tensor) for tensor in others}

    def own() -> list[torch.Tensor]:
        return [tensor for tensor in live() if id(tensor) not in numbers]

    with mock.patch.object(older_storages, "_live_tensors", own):
        yield
