"""An AllocationTimeline goes in; its events and final segments, as the simulator takes them, come out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tbmem.analysis.allocator.device import Device
from tbmem.analysis.allocator.events import EventKind, MemoryEvents
from tbmem.analysis.allocator.layout import LiveBlock, Segment
from tbmem.analysis.allocator.replay import Replay, replay
from tbmem.analysis.allocator.rewind import rewind
from tbmem.analysis.allocator.settings import AllocatorSettings, settings_of_snapshot
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, BlockState, MarkKind, MarkRows, ReservationKind, SegmentKind

_CHANGES = {
    ReservationKind.ALLOC: EventKind.SEGMENT_ALLOC,
    ReservationKind.FREE: EventKind.SEGMENT_FREE,
    ReservationKind.MAP: EventKind.SEGMENT_MAP,
    ReservationKind.UNMAP: EventKind.SEGMENT_UNMAP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request that failed; bytes."""

    requested: int
    room: int
    """What this process could have reserved then: what it had reserved, and what the device had free."""


def recorded_settings(timeline: AllocationTimeline) -> AllocatorSettings:
    """What a recording was made under, as far as it tells: its segments show whether they grew page by page."""
    settings = settings_of_snapshot(timeline.settings)
    grew = timeline.reservations.kind == ReservationKind.MAP
    if timeline.segments.expandable.any() or grew.any():
        return replace(settings, expandable_segments=True)
    return settings


def has_segments(timeline: AllocationTimeline, device: int) -> bool:
    """Whether a device's recording is one of a caching allocator; its segments may all have gone back by its end."""
    changes = timeline.reservations.take(timeline.reservations.device == device)
    return bool((timeline.segments.device == device).any() or (changes.kind != ReservationKind.REPORTED).any())


def recorded_failures(timeline: AllocationTimeline, device: int = 0) -> tuple[Refused, ...]:
    """A device's requests that failed; none where the recording does not say of each what the device had free."""
    marks = _failures(timeline, device)
    if not len(marks) or (marks.device_free_bytes < 0).any():
        return ()
    changes = timeline.reservations.take(
        (timeline.reservations.device == device) & (timeline.reservations.kind != ReservationKind.REPORTED)
    )
    end = int(timeline.segments.bytes[timeline.segments.device == device].sum())
    return tuple(
        Refused(requested=size, room=end - int(changes.bytes[changes.event > event].sum()) + free)
        for event, size, free in zip(
            marks.event.tolist(), marks.bytes.tolist(), marks.device_free_bytes.tolist(), strict=True
        )
    )


def recorded_events(timeline: AllocationTimeline, device: int = 0) -> MemoryEvents:
    """What a device's log says, in its order; blocks are known by their address.

    Args:
        timeline: A recording with addresses.
        device: Number of the device.
    """
    rows = timeline.rows.take(timeline.rows.device == device)
    parts = [
        _of_rows(rows, EventKind.ALLOC, rows.alloc_event),
        _of_rows(rows, EventKind.FREE_REQUESTED, rows.free_requested_event),
        _of_rows(rows, EventKind.FREE_COMPLETED, rows.free_event),
        _of_reservations(timeline, device),
        _of_failures(timeline, device),
    ]
    table = np.concatenate(parts)
    # events of one number keep this order: an alloc comes before its free
    table = table[np.argsort(table[:, 0], kind="stable")]
    return MemoryEvents(
        kind=table[:, 1].astype(np.uint8), key=table[:, 2], size=table[:, 3], stream=table[:, 4], pool=table[:, 5]
    )


def final_segments(timeline: AllocationTimeline, device: int = 0) -> list[Segment]:
    """A device's segments with the blocks in use when the recording ended."""
    segments, blocks = timeline.segments, timeline.blocks
    live: dict[int, list[LiveBlock]] = {}
    for number in np.flatnonzero(blocks.state != BlockState.INACTIVE).tolist():
        block = LiveBlock(
            int(blocks.address[number]),
            int(blocks.bytes[number]),
            int(blocks.requested_bytes[number]) or int(blocks.bytes[number]),
            bool(blocks.state[number] == BlockState.ALLOCATED),
        )
        live.setdefault(int(blocks.segment[number]), []).append(block)
    return [
        Segment(
            address=int(segments.address[number]),
            size=int(segments.bytes[number]),
            stream=int(segments.stream[number]),
            small=bool(segments.kind[number] == SegmentKind.SMALL),
            pool=max(int(segments.pool[number]), 0),
            expandable=bool(segments.expandable[number]),
            blocks=tuple(live.get(number, ())),
        )
        for number in np.flatnonzero(segments.device == device).tolist()
    ]


def what_if(
    timeline: AllocationTimeline,
    settings: AllocatorSettings,
    recorded: AllocatorSettings,
    device: int = 0,
    memory: Device | None = None,
) -> Replay:
    """The recording as it would have been under other settings.

    What was alive at its begin is allocated first, from the lowest address on: where it would have lain is not known.

    Args:
        timeline: A recording with addresses.
        settings: The other settings.
        recorded: Those during the recording.
        device: Number of the device.
        memory: Another device to replay on; by default one without end, except where a recorded request failed: that
            one is asked for again with as much as there was.
    """
    events = recorded_events(timeline, device)
    start = rewind(final_segments(timeline, device), events, recorded)
    before = MemoryEvents.of(
        (EventKind.ALLOC, block.address, block.requested, segment.stream, segment.pool)
        for segment in start.segments
        for block in segment.blocks
    )
    rooms = [] if memory is not None else [one.room for one in recorded_failures(timeline, device)]
    return replay(before.then(events), settings, memory, rooms=rooms)


def _of_rows(
    rows: AllocationRows, kind: EventKind, event: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    which = event >= 0
    size = rows.bytes[which]
    pool = np.maximum(rows.pool[which].astype(np.int64), 0)
    address = rows.address[which].astype(np.int64)
    return np.stack((event[which], np.full(len(size), int(kind)), address, size, rows.stream[which], pool), axis=1)


def _of_reservations(timeline: AllocationTimeline, device: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    table = timeline.reservations.take(timeline.reservations.device == device)
    kinds = [int(_CHANGES[ReservationKind(kind)]) for kind in table.kind.tolist() if kind != ReservationKind.REPORTED]
    table = table.take(table.kind != ReservationKind.REPORTED)
    nothing = np.zeros(len(kinds), dtype=np.int64)
    return np.stack(
        (
            table.event,
            np.array(kinds, dtype=np.int64),
            table.address.astype(np.int64),
            np.abs(table.bytes),
            table.stream,
            nothing,
        ),
        axis=1,
    )


def _of_failures(timeline: AllocationTimeline, device: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    marks = _failures(timeline, device)
    nothing = np.zeros(len(marks), dtype=np.int64)
    kind = np.full(len(marks), int(EventKind.OOM))
    return np.stack((marks.event, kind, nothing, marks.bytes, nothing, nothing), axis=1)


def _failures(timeline: AllocationTimeline, device: int) -> MarkRows:
    return timeline.marks.take((timeline.marks.device == device) & (timeline.marks.kind == MarkKind.OOM))
