"""Segments and blocks by hand: what is cached is not fragmented."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.analysis.fragments import efficiency, fragmentation_of
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockRows, BlockState, MarkKind, MarkRows, SegmentRows
from tests.analysis.timelines import recording


def _gpu(**parts: object) -> AllocationTimeline:
    """A segment with two gaps, a free one, and one whose block another stream still uses."""
    segments = SegmentRows.of(
        3,
        bytes=[1000, 600, 400],
        active_bytes=[700, 0, 400],
        allocated_bytes=[700, 0, 0],
        requested_bytes=[650, 0, 390],
    )
    free, used, pending = BlockState.INACTIVE, BlockState.ALLOCATED, BlockState.PENDING_FREE
    blocks = BlockRows.of(
        6,
        segment=[0, 0, 0, 0, 1, 2],
        bytes=[100, 500, 200, 200, 600, 400],
        requested_bytes=[0, 460, 0, 190, 0, 390],
        state=[free, used, free, used, free, pending],
    )
    device = {"name": "cuda:0", "type": 1, "index": 0, "reserved_bytes": 2000, "allocated_bytes": 700}
    return recording(source="snapshot", device=device, segments=segments, blocks=blocks, **parts)


def test_where_unused_memory_lies() -> None:
    found = fragmentation_of(_gpu(), 0)

    assert found.cached_bytes == 900
    assert (found.free_in_whole_segments_bytes, found.free_in_gaps_bytes) == (600, 300)
    assert (found.gaps, found.largest_gap_bytes, found.largest_free_block_bytes) == (2, 200, 600)
    assert found.gap_percent == 15
    assert found.rounding_loss_bytes == 60
    assert found.pending_free_bytes == 400
    assert found.failing_request_bytes is None


def test_whole_pages_of_an_expandable_segment_can_go_back() -> None:
    # given a used block of 1 MiB at the begin and in the middle, and 75 MiB free behind it
    mib, free, used = 1 << 20, BlockState.INACTIVE, BlockState.ALLOCATED
    segments = SegmentRows.of(1, address=1000 * mib, bytes=100 * mib, active_bytes=2 * mib, expandable=1)
    blocks = BlockRows.of(
        4,
        address=np.array([1000, 1001, 1024, 1025]) * mib,
        bytes=np.array([1, 23, 1, 75]) * mib,
        state=[used, free, used, free],
    )
    device = {"name": "cuda:0", "type": 1, "index": 0, "reserved_bytes": 100 * mib, "allocated_bytes": 2 * mib}

    found = fragmentation_of(recording(source="snapshot", device=device, segments=segments, blocks=blocks), 0)

    # then pages of 20 MiB from 40 on are free; the first free block holds none
    assert (found.free_in_gaps_bytes, found.free_in_pages_bytes) == (98 * mib, 60 * mib)


@pytest.mark.parametrize(("request_bytes", "fits"), [(900, True), (901, False)])
def test_a_request_that_failed(request_bytes: int, fits: bool) -> None:
    marks = MarkRows.of(2, kind=[MarkKind.SNAPSHOT, MarkKind.OOM], bytes=[0, request_bytes])

    found = fragmentation_of(_gpu(marks=marks), 0)

    assert (found.failing_request_bytes, found.failing_request_fits_free_sum) == (request_bytes, fits)


def test_a_trace_tells_what_is_cached_and_no_more() -> None:
    found = fragmentation_of(recording(device={"reserved_bytes": 100, "allocated_bytes": 70}), 0)

    assert (found.cached_bytes, found.free_in_gaps_bytes) == (30, None)


def test_where_nothing_is_reserved() -> None:
    assert fragmentation_of(recording(), 0).cached_bytes is None


@pytest.mark.parametrize(
    ("allocated", "percent", "grade"),
    [(985, 98.5, "excellent"), (980, 98.0, "good"), (950, 95.0, "good"), (949, 94.9, "poor"), (None, None, "unknown")],
)
def test_grades(allocated: int | None, percent: float | None, grade: str) -> None:
    assert efficiency(allocated, 1000) == (percent, grade)


def test_no_grade_without_reserved_memory() -> None:
    assert efficiency(5, 0) == (None, "unknown")
