"""Sizes of used and of free blocks, by powers of two."""

from __future__ import annotations

from pathlib import Path

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.size_histogram import sizes_of
from tbmem.offline.analyze import analyze as analyze_file
from tests.analysis.timelines import recording
from tests.offline.snapshots import write_snapshot


def test_a_trace_has_its_peak_only() -> None:
    # given three allocations, of which two are alive at the peak
    rows = [{"bytes": 600, "begin": 0}, {"bytes": 2000, "begin": 1, "end": 2}, {"bytes": 100, "begin": 3}]

    sizes = sizes_of(analyze(recording(*rows)), 0)

    assert sizes.moment == "at the peak"
    assert sizes.active.least.tolist() == [512, 1024]
    assert sizes.active.blocks.tolist() == [1, 1]
    assert sizes.active.bytes.tolist() == [600, 2000]
    assert not sizes.gaps.blocks.any()


def test_a_snapshot_has_used_and_free_blocks_at_the_end(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "a.pickle", sizes=[1 << 20, 1 << 20])

    sizes = sizes_of(analyze_file(path), 0)

    assert sizes.moment == "at the end"
    assert sizes.active.least[0] == 4096
    assert (sizes.active.blocks.sum(), sizes.active.bytes.sum()) == (2, 2 << 20)
    assert (sizes.gaps.blocks.tolist()[0], sizes.gaps.bytes.sum()) == (1, 4096)
    assert not sizes.cached.blocks.any()
