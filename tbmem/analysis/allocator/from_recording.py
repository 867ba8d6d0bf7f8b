"""Reads an AllocationTimeline into the events that the simulator replays, and replays them under other settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.events import EventKind, MemoryEvents
from tbmem.analysis.allocator.replay import Replay, replay
from tbmem.analysis.allocator.settings import AllocatorSettings, settings_of_snapshot
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, MarkKind, MarkRows, ReservationKind, ReservationRows

IntTable: TypeAlias = NDArray[np.int64]
_CHANGES = {
    int(ReservationKind.ALLOC): int(EventKind.SEGMENT_ALLOC),
    int(ReservationKind.FREE): int(EventKind.SEGMENT_FREE),
    int(ReservationKind.MAP): int(EventKind.SEGMENT_MAP),
    int(ReservationKind.UNMAP): int(EventKind.SEGMENT_UNMAP),
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
    return bool((timeline.segments.device == device).any() or len(_changes(timeline, device)))


def recorded_failures(timeline: AllocationTimeline, device: int = 0) -> tuple[Refused, ...]:
    """A device's requests that failed; none where the recording does not say of each what the device had free."""
    marks = _failures(timeline, device)
    if not len(marks) or (marks.device_free_bytes < 0).any():
        return ()
    changes = _changes(timeline, device)
    end = int(timeline.segments.bytes[timeline.segments.device == device].sum())
    return tuple(
        Refused(requested=size, room=end - int(changes.bytes[changes.event > event].sum()) + free)
        for event, size, free in zip(
            marks.event.tolist(), marks.bytes.tolist(), marks.device_free_bytes.tolist(), strict=True
        )
    )


def recorded_events(timeline: AllocationTimeline, device: int = 0) -> MemoryEvents:
    """What a device's log says, in its order; blocks are known by their address."""
    rows = timeline.rows.take(timeline.rows.device == device)
    changes, failures = _changes(timeline, device), _failures(timeline, device)
    kinds = np.array([_CHANGES[kind] for kind in changes.kind.tolist()], np.int64)
    table = np.concatenate(
        [
            _of_rows(rows, EventKind.ALLOC, rows.alloc_event),
            _of_rows(rows, EventKind.FREE_REQUESTED, rows.free_requested_event),
            _of_rows(rows, EventKind.FREE_COMPLETED, rows.free_event),
            _columns(changes.event, kinds, changes.address, np.abs(changes.bytes), changes.stream),
            _columns(failures.event, EventKind.OOM, 0, failures.bytes),
        ]
    )
    # events of one number keep this order: an alloc comes before its free
    return MemoryEvents.of(table[np.argsort(table[:, 0], kind="stable"), 1:])


def what_if(
    timeline: AllocationTimeline, settings: AllocatorSettings, device: int = 0, memory: SimpleDevice | None = None
) -> Replay:
    """The recording as it would have been under other settings.

    What was alive at its begin is allocated first, from the lowest address on: where it would have lain is not known.

    Args:
        timeline: A recording with addresses.
        settings: The other settings.
        device: Number of the device.
        memory: Another device to replay on; by default one without end, except where a recorded request failed: that
            one is asked for again with as much as there was.
    """
    alive = timeline.alive_at(device, -1)
    alive = alive[np.argsort(timeline.rows.address[alive], kind="stable")]
    before = _of_rows(timeline.rows.take(alive), EventKind.ALLOC, np.zeros(len(alive), np.int64))
    rooms = [] if memory is not None else [one.room for one in recorded_failures(timeline, device)]
    events = MemoryEvents.of(before[:, 1:]).then(recorded_events(timeline, device))
    return replay(events, settings, memory, rooms=rooms)


def _of_rows(rows: AllocationRows, kind: EventKind, event: I64) -> IntTable:
    which = event >= 0
    pool = np.maximum(rows.pool[which].astype(np.int64), 0)
    return _columns(event[which], kind, rows.address[which], rows.bytes[which], rows.stream[which], pool)


def _columns(event: I64, kind: ArrayLike, address: ArrayLike, size: I64, *others: ArrayLike) -> IntTable:
    """Rows of event, kind, address, bytes, stream and pool; the last two 0 where they are not given."""
    columns = (event, kind, address, size, *others, *(0,) * (2 - len(others)))
    table: IntTable = np.stack([np.broadcast_to(np.asarray(one).astype(np.int64), len(event)) for one in columns], 1)
    return table


def _changes(timeline: AllocationTimeline, device: int) -> ReservationRows:
    """Changes of a device's segments."""
    changes = timeline.reservations
    return changes.take((changes.device == device) & (changes.kind != ReservationKind.REPORTED))


def _failures(timeline: AllocationTimeline, device: int) -> MarkRows:
    return timeline.marks.take((timeline.marks.device == device) & (timeline.marks.kind == MarkKind.OOM))
