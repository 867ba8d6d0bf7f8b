"""Ranges of a trace, and the innermost one around each allocation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tbmem.model.timeline_tables import RangeKind
from tbmem.sources.trace.context import innermost
from tests.sources.trace.traces import (
    TRAINING,
    read,
)


def test_ranges_are_kept(tmp_path: Path) -> None:
    timeline = read(tmp_path, TRAINING)

    assert [timeline.range_names[number] for number in timeline.ranges.name.tolist()] == [
        "ProfilerStep#3",
        "ProfilerStep#4",
        "Optimizer.step#SGD.step",
    ]
    assert timeline.ranges.kind.tolist() == [RangeKind.STEP, RangeKind.STEP, RangeKind.OPTIMIZER]
    assert timeline.ranges.begin_ns.tolist() == [1_000_000, 1_050_000, 1_060_000]


def test_the_innermost_range_of_the_own_thread_is_found() -> None:
    # given a call with two calls in it that touch, one without duration, and another thread's
    thread = np.array([0, 0, 0, 0, 1])
    begin = np.array([10, 12, 15, 15, 0])
    end = np.array([30, 15, 15, 20, 99])
    at = np.array([9, 10, 13, 15, 18, 25, 31, 25])
    at_thread = np.array([0, 0, 0, 0, 0, 0, 0, 1])

    found = innermost(thread, begin, end, at_thread, at)

    assert found.tolist() == [-1, 0, 1, 2, 3, 0, -1, 4]


def test_ranges_that_overlap_by_rounding_lose_nobody() -> None:
    found = innermost(*(np.array(one) for one in ([0, 0, 0], [0, 5, 10], [10, 11, 20], [0, 0], [15, 9])))

    assert found.tolist() == [2, 1]
