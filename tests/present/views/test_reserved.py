"""Reserved memory over time, by pool and segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.errors import UsageError
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.reserved import reserved_view, segment_view
from tbmem.sources.snapshot.reader import read_snapshot, timeline_of_snapshot
from tests.offline.snapshots import snapshot
from tests.present.views.recordings import two_steps, view_of


@pytest.fixture(scope="module")
def real(corpus: Path) -> RecordingView:
    """A snapshot of a real GPU."""
    return view_of(read_snapshot(corpus / "snapshots/ZidongLiu__memory__2f29ac4.pickle"))


def test_pools_add_up_to_what_was_reserved(real: RecordingView) -> None:
    answer = reserved_view(real)

    peak = real.analysis.main.peak_reserved_bytes
    assert max(answer["total"]) == peak
    assert [sum(parts) for parts in zip(*answer["bytes"], strict=True)] == answer["total"]
    assert answer["words"] == ["default pool"]
    bands = answer["segments"]["bands"]
    assert answer["segments"]["count"] == len(bands["row"]) == len(set(bands["address"]))
    # the address of each is among the segments at the end, as none was released
    assert {f"0x{address:x}" for address in real.analysis.timeline.segments.address.tolist()} == set(bands["address"])


def test_a_segment_has_the_stack_of_the_allocation_that_it_was_reserved_for(real: RecordingView) -> None:
    (first, *_) = reserved_view(real)["segments"]["bands"]["row"]

    frames = segment_view(real, None, first)["frames"]

    assert frames
    assert {"text", "own"} == set(frames[0])
    with pytest.raises(UsageError, match="segment=99999"):
        segment_view(real, None, 99999)


def test_a_private_pool_is_named_and_a_range_is_cut() -> None:
    recorded = snapshot([1000, 5000])
    recorded["segments"][0]["segment_pool_id"] = (0, 7)

    answer = reserved_view(view_of(timeline_of_snapshot(recorded)), axis="event", begin=0.0, end=1.0)

    assert answer["words"] == ["private pool 0, 7"]
    assert answer["segments"]["bands"]["before"] == [True]


def test_a_recording_without_segments_says_so() -> None:
    assert reserved_view(two_steps())["empty"] is not None
