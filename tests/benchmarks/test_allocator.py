"""A recording is undone exactly, and then predicted exactly."""

from __future__ import annotations

import pytest

from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import EventKind, MemoryEvents, segments_now
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.allocator.what_if import recorded_events
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.units import GIB, MIB
from tests.analysis.allocator.recording import Recorder, busy_recorder
from tests.analysis.allocator.test_what_if import as_snapshot
from tests.analysis.estimates.test_fit import run
from tests.benchmarks.conftest import load
from tests.conftest import PROJECT

state, undone, checked = (
    load(PROJECT / "benchmarks" / f"allocator_{name}.py") for name in ("state", "rewind", "check")
)
rewind, check_decisions = undone.rewind, checked.check_decisions

CASES = [
    ("", 100 * GIB),
    ("", 2 * GIB),
    ("expandable_segments:True", 100 * GIB),
    ("expandable_segments:True", 2 * GIB),
    ("max_split_size_mb:20", 100 * GIB),
    ("max_split_size_mb:20", 2 * GIB),
    ("roundup_power2_divisions:[2:8,>:4]", 100 * GIB),
    ("large_segment_size_mb:32,expandable_segments:True", 2 * GIB),
]


@pytest.mark.parametrize(("text", "total"), CASES)
@pytest.mark.parametrize("seed_", range(3))
def test_undone_from_the_middle_on_every_decision_is_predicted(text: str, total: int, seed_: int) -> None:
    # given a recording that began in the middle of a run
    settings = parse_settings(text)
    recorder = busy_recorder(settings, SimpleDevice(total), seed_)
    events = recorder.events(first=len(recorder.rows) // 2)

    # when it is undone and replayed
    start = rewind(state.segments_of(recorder.segments()), events, settings)
    result = check_decisions(events, start, settings)

    # then nothing differs, unless a block's size at the begin cannot be known
    assert start.unexplained == 0
    if start.unsure:
        assert result.requests_right >= 0.95 * result.requests
        return
    assert result.changes_right == result.changes
    assert result.requests_right == result.requests
    assert result.peak_reserved == result.recorded_peak
    assert result.final_reserved == recorder.allocator.reserved
    assert result.final_allocated == recorder.allocator.allocated


@pytest.mark.parametrize("text", ["", "expandable_segments:True", "max_split_size_mb:20"])
@pytest.mark.parametrize("seed_", [2, 9])
def test_undone_to_the_first_event_nothing_is_left(text: str, seed_: int) -> None:
    settings = parse_settings(text)
    recorder = busy_recorder(settings, SimpleDevice(2 * GIB), seed_, operations=800)

    start = rewind(state.segments_of(recorder.segments()), recorder.events(), settings)
    result = check_decisions(recorder.events(), start, settings)

    assert start.segments == []
    assert result.changes_right == result.changes


def test_what_a_neighbour_was_carved_from_tells_a_freed_blocks_size() -> None:
    # given a block with slack whose neighbour is born during the recording, and which then dies itself
    recorder = Recorder(AllocatorSettings(), SimpleDevice())
    for _ in range(2):
        recorder.malloc(9 * MIB)
    recorder.malloc(9 * MIB)
    recorder.free(0)
    recorder.malloc(8 * MIB + 1000)
    first = len(recorder.rows)
    before = state.segments_of(recorder.segments())
    recorder.free(len(recorder.live) - 1)
    recorder.free(0)

    # when it is undone
    start = rewind(state.segments_of(recorder.segments()), recorder.events(first), AllocatorSettings())

    # then it has its slack again
    assert start.segments == before


def test_events_that_fit_nothing_are_counted() -> None:
    events = MemoryEvents.of(
        [
            (EventKind.ALLOC, 4096, 512, 0, 0),
            (EventKind.FREE_COMPLETED, 1 << 40, 512, 0, 0),
            (EventKind.SEGMENT_ALLOC, 1 << 41, 2 * MIB, 0, 0),
        ]
    )

    start = rewind([], events, AllocatorSettings())

    assert start.unexplained == 3


def test_a_wrong_prediction_is_not_hidden() -> None:
    # given a recording made under other settings than the replay is told
    recorder = busy_recorder(parse_settings("max_split_size_mb:20"), SimpleDevice(2 * GIB), seed=1)

    start = rewind([], MemoryEvents.of([]), AllocatorSettings())
    result = check_decisions(recorder.events(), start, AllocatorSettings())

    assert result.changes_right < result.changes
    assert result.requests_right < result.requests


def test_an_allocator_holds_what_it_is_seeded_with() -> None:
    segments = [
        state.Segment(64 * MIB, 20 * MIB, 0, small=False, blocks=(state.LiveBlock(65 * MIB, 3 * MIB, 3 * MIB - 5),)),
        state.Segment(
            200 * MIB,
            40 * MIB,
            3,
            small=False,
            pool=2,
            expandable=True,
            blocks=(state.LiveBlock(200 * MIB, MIB, 1, False),),
        ),
    ]
    allocator = CachingAllocator()

    live = state.seed(allocator, segments)

    assert allocator.reserved == 60 * MIB
    assert (allocator.allocated, allocator.active) == (3 * MIB, 4 * MIB)
    assert state.segments_of(segments_now(allocator, live.values())) == segments


@pytest.mark.parametrize("text", ["", "expandable_segments:True"])
def test_a_snapshots_timeline_is_predicted_like_the_recording_itself(text: str) -> None:
    settings = parse_settings(text)
    recorder = busy_recorder(settings, SimpleDevice(2 * GIB), seed=2)
    timeline = timeline_of_snapshot(as_snapshot(recorder, first=0))

    events = recorded_events(timeline)
    start = rewind(undone.final_segments(timeline), events, settings)
    result = check_decisions(events, start, settings)

    assert start.unexplained == 0
    assert result.changes_right == result.changes
    assert result.requests_right == result.requests


@pytest.mark.parametrize("text", ["", "expandable_segments:True", "max_split_size_mb:64"])
def test_an_estimates_recording_begins_with_nothing(text: str) -> None:
    settings = parse_settings(text)
    timeline = timeline_of_run(run(), settings)

    start = rewind(undone.final_segments(timeline), recorded_events(timeline), settings)

    assert start.unexplained == 0
    assert not any(segment.blocks for segment in start.segments)


@pytest.mark.parametrize("text", ["", "expandable_segments:True", "max_split_size_mb:20"])
@pytest.mark.parametrize("seed_", range(2))
def test_what_is_undone_is_what_the_timeline_says_was_alive(text: str, seed_: int) -> None:
    settings = parse_settings(text)
    recorder = busy_recorder(settings, SimpleDevice(2 * GIB), seed_)
    timeline = timeline_of_snapshot(as_snapshot(recorder, first=len(recorder.rows) // 2))

    start = rewind(undone.final_segments(timeline), recorded_events(timeline), settings)

    rows = timeline.rows.take(timeline.alive_at(0, -1))
    blocks = [(one.address, one.requested) for segment in start.segments for one in segment.blocks]
    assert blocks == sorted(zip(rows.address.tolist(), rows.bytes.tolist(), strict=True))
