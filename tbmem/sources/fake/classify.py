"""Allocations whose purpose nobody has named go in; what their lifetime makes of them comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tbmem.model.category import Category, Phase
from tbmem.model.fake_run import FakeRun


def classify(run: FakeRun) -> FakeRun:
    """Fill the categories in that are not known by name.

    What the forward pass makes and the backward pass finds is an activation; what the backward pass makes besides
    gradients is autograd's own; the rest is temporary.
    """
    unknown = run.category == Category.UNKNOWN
    ends = np.where(run.free_event < 0, np.iinfo(np.int64).max, run.free_event)
    starts = np.array([*run.about["backward_starts"], np.iinfo(np.int64).max - 1], dtype=np.int64)
    next_backward = starts[np.searchsorted(starts[:-1], run.alloc_event)]
    category = run.category.copy()
    for phase, kind in (
        (Phase.BACKWARD, Category.AUTOGRAD_DETAIL),
        (Phase.OPTIMIZER, Category.TEMPORARY),
        (Phase.OTHER, Category.TEMPORARY),
    ):
        category[unknown & (run.phase == phase)] = kind
    forward = unknown & (run.phase == Phase.FORWARD)
    category[forward] = np.where(ends > next_backward, Category.ACTIVATION, Category.TEMPORARY)[forward]
    return replace(run, category=category)
