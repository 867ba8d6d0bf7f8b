"""Recordings of a test's own tensors: those of other tests in the process live as long as they like."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from tbmem.sources.program import tracked_objects


@contextmanager
def only_own_tensors() -> Iterator[None]:
    """In the block, tensors that are alive when it begins are none that a recording finds."""
    gc.collect()
    live = tracked_objects.live_objects
    others = live(torch.Tensor)[0]  # held, so that no number is given out a second time
    numbers = {id(tensor) for tensor in others}

    def own(*bases: type) -> list[list[Any]]:
        return [[one for one in found if id(one) not in numbers] for found in live(*bases)]

    with mock.patch.object(tracked_objects, "live_objects", own):
        yield
