"""What tests of the search for holders share: looks that are bounded by neither time nor what libraries hold."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are bounded in time, too: how busy this machine is shall not decide what they find."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)


@pytest.fixture(scope="module")
def the_libraries_are_frozen() -> Iterator[None]:
    """The objects of torch, pytest and earlier tests are not looked at again and again: a look takes milliseconds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
