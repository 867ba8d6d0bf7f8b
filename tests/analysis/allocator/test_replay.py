"""Replays, and what would have been under other settings."""

from __future__ import annotations

from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import EventKind, MemoryEvents, Row, replay
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import GIB, MIB

from .recording import busy_recorder


def growing_batches(steps: int) -> MemoryEvents:
    """Activations that grow a little each step: what expandable segments were made for."""
    rows: list[Row] = []
    for step in range(steps):
        keys = [step * 100 + block for block in range(8)]
        rows += [(EventKind.ALLOC, key, (30 + step) * MIB, 0, 0) for key in keys]
        rows += [(EventKind.FREE, key, (30 + step) * MIB, 0, 0) for key in keys]
    return MemoryEvents.of(rows)


def test_curves_have_a_point_for_each_event() -> None:
    events = MemoryEvents.of(
        [
            (EventKind.ALLOC, 1, 100, 0, 0),
            (EventKind.ALLOC, 2, 0, 0, 0),
            (EventKind.FREE_REQUESTED, 1, 100, 0, 0),
            (EventKind.FREE_COMPLETED, 1, 100, 0, 0),
            (EventKind.SEGMENT_FREE, 0, 2 * MIB, 0, 0),
            (EventKind.FREE, 5, 0, 0, 0),
        ]
    )

    outcome = replay(events, CachingAllocator())

    assert outcome.allocated == [512, 512, 0, 0, 0, 0]
    assert [change.change for change in outcome.allocator.changes] == [ReservationKind.ALLOC, ReservationKind.FREE]
    assert outcome.allocator.peak_reserved == 2 * MIB
    assert outcome.allocator.reserved == 0
    assert outcome.change_event == [0, 4]
    assert outcome.failure == ""


def test_expandable_segments_would_reserve_less_for_growing_batches() -> None:
    events = growing_batches(12)

    usual = replay(events, CachingAllocator())
    expandable = replay(events, CachingAllocator(parse_settings("expandable_segments:True")))

    assert expandable.allocator.peak_allocated <= usual.allocator.peak_allocated
    assert expandable.allocator.peak_reserved < usual.allocator.peak_reserved * 0.6


def test_a_replay_on_a_small_device_ends_with_a_reason() -> None:
    outcome = replay(growing_batches(3), CachingAllocator(device=SimpleDevice(200 * MIB)))

    assert "the device has" in outcome.failure
    assert len(outcome.allocated) == 6


def test_where_the_recording_gave_memory_back_the_replay_does() -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(100 * GIB), seed=4)

    outcome = replay(recorder.events(), CachingAllocator())

    assert outcome.allocator.peak_reserved == recorder.allocator.peak_reserved
    assert outcome.allocator.reserved == recorder.allocator.reserved
    assert outcome.allocator.peak_allocated == recorder.allocator.peak_allocated
