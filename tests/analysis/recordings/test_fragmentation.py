"""Segments and blocks by hand: what is cached is not fragmented."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.fragmentation import block_sizes, efficiency, fragmentation_of
from tbmem.model.timeline import AllocationTimeline, Peak
from tbmem.model.timeline_tables import BlockRows, BlockState, MarkKind, MarkRows, SegmentRows
from tbmem.offline.analyze import analyze as analyze_file
from tests.analysis.timelines import recording
from tests.offline.snapshots import write_snapshot


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

    assert (found.free_bytes, found.cached_bytes, found.fragmented_bytes) == (900, 600, 300)
    assert (found.gaps, found.largest_gap_bytes, found.largest_free_block_bytes) == (2, 200, 600)
    assert found.fragmented_percent == 15
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
    assert (found.free_bytes, found.cached_bytes, found.cached_in_pages_bytes) == (98 * mib, 60 * mib, 60 * mib)
    assert found.fragmented_bytes == 38 * mib


@pytest.mark.parametrize(("request_bytes", "fits"), [(900, True), (901, False)])
def test_a_request_that_failed(request_bytes: int, fits: bool) -> None:
    marks = MarkRows.of(2, kind=[MarkKind.SNAPSHOT, MarkKind.OOM], bytes=[0, request_bytes])

    found = fragmentation_of(_gpu(marks=marks), 0)

    assert (found.failing_request_bytes, found.failing_request_fits_free_sum) == (request_bytes, fits)


def test_a_trace_tells_what_is_free_and_no_more() -> None:
    found = fragmentation_of(recording(device={"reserved_bytes": 100, "allocated_bytes": 70}), 0)

    assert (found.free_bytes, found.cached_bytes, found.fragmented_bytes) == (30, None, None)


def test_where_nothing_is_reserved() -> None:
    assert fragmentation_of(recording(), 0).free_bytes is None


@pytest.mark.parametrize(
    ("peak", "percent", "grade"),
    [(985, 98.5, "excellent"), (980, 98.0, "good"), (950, 95.0, "good"), (949, 94.9, "poor")],
)
def test_the_peak_is_graded(peak: int, percent: float, grade: str) -> None:
    assert efficiency(Peak(peak, 7, -1), Peak(1000, 3, -1)) == (1000 - peak, percent, grade)


def test_the_end_of_a_step_is_no_waste() -> None:
    # given a step that needs 980 of 1000 reserved bytes, and ends with 540 allocated
    rows = [(0, 540, -1), (1, 440, 2)]
    device = {"reserved_bytes": 1000, "allocated_bytes": 540, "base_reserved_bytes": 1000, "name": "cuda:0"}

    found = analyze(recording(*({"begin": a, "bytes": n, "end": f} for a, n, f in rows), device=device))

    assert (found.main.efficiency_percent, found.main.grade) == (98.0, "good")
    assert found.main.never_used_bytes == 20
    assert found.main.fragmentation.free_bytes == 460
    assert found.main.recommendations == ()


@pytest.mark.parametrize("peak", [Peak(500, -1, -1), Peak(0, 1, -1), Peak(1001, 1, -1)])
def test_a_peak_that_was_not_recorded_is_not_graded(peak: Peak) -> None:
    assert efficiency(peak, Peak(1000, -1, -1)) == (None, None, "unknown")


@pytest.mark.parametrize("reserved", [None, Peak(0, -1, -1)])
def test_no_grade_without_reserved_memory(reserved: Peak | None) -> None:
    assert efficiency(Peak(5, 3, -1), reserved) == (None, None, "unknown")


def test_a_trace_has_its_peak_only() -> None:
    # given three allocations, of which two are alive at the peak
    rows = [{"bytes": 600, "begin": 0}, {"bytes": 2000, "begin": 1, "end": 2}, {"bytes": 100, "begin": 3}]

    sizes = block_sizes(analyze(recording(*rows)), 0)

    assert sizes.moment == "at the peak"
    assert sizes.active.least.tolist() == [512, 1024]
    assert sizes.active.blocks.tolist() == [1, 1]
    assert sizes.active.bytes.tolist() == [600, 2000]
    assert not sizes.gaps.blocks.any()


def test_a_snapshot_has_used_and_free_blocks_at_the_end(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "a.pickle", sizes=[1 << 20, 1 << 20])

    sizes = block_sizes(analyze_file(path), 0)

    assert sizes.moment == "at the end"
    assert sizes.active.least[0] == 4096
    assert (sizes.active.blocks.sum(), sizes.active.bytes.sum()) == (2, 2 << 20)
    assert (sizes.gaps.blocks.tolist()[0], sizes.gaps.bytes.sum()) == (1, 4096)
    assert not sizes.cached.blocks.any()
