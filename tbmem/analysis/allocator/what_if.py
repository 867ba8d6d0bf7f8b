"""Replays a recording under other settings of the allocator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import EventKind, MemoryEvents, Replay, holding, replay
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, describe, parse_settings, settings_of_snapshot
from tbmem.errors import UsageError
from tbmem.model.columns import I64, Bools
from tbmem.model.gpus import Gpu
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, MarkKind, MarkRows, ReservationKind, ReservationRows
from tbmem.units import format_bytes

DEFAULTS = "torch's defaults"
QUICK = 200_000
"""Allocations of a recording that are replayed in about a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request that failed in the recording; bytes."""

    requested: int
    room: int
    """Bytes that this process could have reserved: reserved bytes plus free bytes of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFigures:
    """One replay of a recording; bytes."""

    settings: str
    peak_allocated: int
    peak_reserved: int
    end_reserved: int
    end_cached: int
    """In free segments or pages, which could be released."""
    end_fragmented: int
    segments: int
    """Number of requests to the device."""
    failure: str = ""
    """Why memory ran out, in one sentence; empty if it did not. The other figures are those until then."""
    replayed: float = 1.0
    """Share of the recording that was replayed until then."""
    served: tuple[bool, ...] = ()
    """Whether each request that failed in the recording is served here."""

    @property
    def allocated_percent(self) -> float:
        """Peak of allocated memory in percent of the peak of reserved memory."""
        return 100 * self.peak_allocated / self.peak_reserved if self.peak_reserved else 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A device of a recording, replayed under several settings."""

    device: str
    recorded_reserved: int | None
    """Recorded peak."""
    before: ReplayFigures
    """Under the settings of the recording."""
    after: tuple[ReplayFigures, ...]
    began_in_use: bool = True
    """Whether memory was in use at the beginning of the recording."""
    gpu: str = ""
    """Device of the replay; empty for an unlimited one."""
    refused: tuple[FailedRequest, ...] = ()
    """Requests that failed in the recording, in order."""

    @property
    def note(self) -> str:
        """Why the replay may differ from the recording; empty if it does not."""
        if self.recorded_reserved is None or self.recorded_reserved == self.before.peak_reserved:
            return ""
        why = (
            "The recording does not contain the full state of its allocator, such as the cache when it began or the"
            " pool of a released segment"
        )
        if self.began_in_use:
            why = "Blocks in use when the recording began are placed anew, without the cache and gaps of that moment"
        return f"{why}: compare the replays with each other."


def what_ifs(
    timeline: AllocationTimeline,
    others: Sequence[AllocatorSettings],
    gpu: Gpu | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> tuple[WhatIf, ...]:
    """Replay each device of a recording that has a caching allocator.

    Args:
        timeline: A recording.
        others: Settings beside the recorded ones.
        gpu: Device of the replay; by default an unlimited one.
        on_skip: Called with the reason for which a device was skipped.

    Raises:
        UsageError: The recording has no events, or none of a caching allocator; or a setting is a share of the
            device's memory, and how much it has is not known.
    """
    # all segments of a caching allocator may have been released by the end
    with_segments = {*timeline.segments.device.tolist(), *timeline.reservations.device[_changed(timeline)].tolist()}
    cached = [number for number in range(len(timeline.devices)) if number in with_segments]
    if not cached:
        raise UsageError("no segments of a caching allocator are in it: only snapshots of CUDA and estimates have them")
    numbers = [number for number in cached if len(recorded_events(timeline, number))]
    if not numbers:
        raise UsageError(
            "no events are in it that could be replayed, only the state at its end: record with"
            " torch.cuda.memory._record_memory_history(); other settings could save no more than what"
            " tbmem analyze names as fragmented"
        )
    for number in cached:
        if number not in numbers and on_skip is not None:
            on_skip(f"{timeline.devices[number].name}: no events of this device are in it")
    return tuple(_of_device(timeline, number, others, gpu) for number in numbers)


def reserved_change(timeline: AllocationTimeline, number: int, setting: str) -> int | None:
    """Bytes by which a setting changes the most that a device reserves; ``None`` if a replay cannot tell.

    Recordings of more than ``QUICK`` allocations are not replayed.
    """
    if len(timeline) > QUICK or not len(recorded_events(timeline, number)):
        return None
    replay = _of_device(timeline, number, [parse_settings(setting)], None)
    after = replay.after[0]
    if replay.before.failure or after.failure:
        return None
    return after.peak_reserved - replay.before.peak_reserved


def _of_device(
    timeline: AllocationTimeline, number: int, others: Sequence[AllocatorSettings], gpu: Gpu | None
) -> WhatIf:
    peak, recorded = timeline.peak_reserved(number), recorded_settings(timeline)
    total, outside, name = None, 0, ""
    if gpu is not None:
        total, outside, name = gpu.total, gpu.context, gpu.name
    elif any(settings.per_process_memory_fraction < 1 for settings in (recorded, *others)):
        total = timeline.devices[number].total_bytes
        name = "" if total is None else f"a device of {format_bytes(total)}"
        if total is None and any(settings.per_process_memory_fraction < 1 for settings in others):
            raise UsageError(
                "per_process_memory_fraction is a share of the device's memory, which this recording does not contain;"
                " add --gpu, as in --gpu a100-40gb"
            )

    def figures(settings: AllocatorSettings) -> ReplayFigures:
        # the same device for each: what a limit costs would be taken for what a setting costs
        return _figures(timeline, number, settings, None if total is None else SimpleDevice(total, outside))

    return WhatIf(
        device=timeline.devices[number].name,
        recorded_reserved=None if peak is None else peak.bytes,
        before=figures(recorded),
        after=tuple(map(figures, others)),
        began_in_use=bool((timeline.rows.alloc_event[timeline.rows.device == number] < 0).any()),
        gpu=name,
        refused=() if total is not None else recorded_failures(timeline, number),
    )


def _figures(
    timeline: AllocationTimeline, number: int, settings: AllocatorSettings, device: SimpleDevice | None
) -> ReplayFigures:
    replayed = replay_timeline(timeline, settings, number, device)
    end, changes = holding(replayed.allocator), replayed.allocator.changes
    return ReplayFigures(
        settings=describe(settings) or DEFAULTS,
        peak_allocated=replayed.allocator.peak_allocated,
        peak_reserved=replayed.allocator.peak_reserved,
        end_reserved=end.reserved,
        end_cached=end.cached,
        end_fragmented=end.fragmented,
        failure=replayed.failure,
        replayed=len(replayed.allocated) / replayed.events if replayed.failure else 1.0,
        segments=sum(change.change in (ReservationKind.ALLOC, ReservationKind.MAP) for change in changes),
        served=tuple(replayed.served),
    )


def recorded_settings(timeline: AllocationTimeline) -> AllocatorSettings:
    """Settings of a recording, as far as known; its segments show whether they were expandable."""
    settings = settings_of_snapshot(timeline.settings)
    mapped = timeline.reservations.kind == ReservationKind.MAP
    if timeline.segments.expandable.any() or mapped.any():
        return replace(settings, expandable_segments=True)
    return settings


def recorded_failures(timeline: AllocationTimeline, device: int = 0) -> tuple[FailedRequest, ...]:
    """A device's failed requests; empty if the free memory of the device is not known for each."""
    marks = _failures(timeline, device)
    if not len(marks) or (marks.device_free_bytes < 0).any():
        return ()
    changes = _changes(timeline, device)
    end = int(timeline.segments.bytes[timeline.segments.device == device].sum())
    later = [int(changes.bytes[changes.event > event].sum()) for event in marks.event.tolist()]
    return tuple(
        FailedRequest(requested=size, room=end - changed + free)
        for changed, size, free in zip(later, marks.bytes.tolist(), marks.device_free_bytes.tolist(), strict=True)
    )


def recorded_events(timeline: AllocationTimeline, device: int = 0, *, older: bool = False) -> MemoryEvents:
    """A device's events in order; blocks are identified by their address.

    With ``older``, memory that was in use at the beginning is allocated first, by address: under other settings its
    layout would be another one.
    """
    rows = timeline.rows_of(device)
    rows = rows.take(np.argsort(rows.address, kind="stable"))
    changes, failures = _changes(timeline, device), _failures(timeline, device)
    kinds = np.array([EventKind["SEGMENT_" + ReservationKind(kind).name] for kind in changes.kind.tolist()], np.int64)
    table = np.concatenate(
        [
            _of_rows(rows, EventKind.ALLOC, rows.alloc_event, first=-1 if older else 0),
            _of_rows(rows, EventKind.FREE_REQUESTED, rows.free_requested_event),
            _of_rows(rows, EventKind.FREE_COMPLETED, rows.free_event),
            _columns(changes.event, kinds, changes.address, np.abs(changes.bytes), changes.stream),
            _columns(failures.event, EventKind.OOM, 0, failures.bytes),
        ]
    )
    # stable: an alloc comes before its free at the same event
    return MemoryEvents.of(table[np.argsort(table[:, 0], kind="stable"), 1:])


def replay_timeline(
    timeline: AllocationTimeline, settings: AllocatorSettings, device: int = 0, memory: SimpleDevice | None = None
) -> Replay:
    """Replay a device of a recording under other settings.

    By default this is on a device without limit (``memory``), on which each recorded failed request is repeated with
    the memory that was free then.
    """
    rooms = [] if memory is not None else [request.room for request in recorded_failures(timeline, device)]
    return replay(recorded_events(timeline, device, older=True), CachingAllocator(settings, memory), rooms=rooms)


def _of_rows(rows: AllocationRows, kind: EventKind, event: I64, first: int = 0) -> I64:
    rows, event = rows.take(event >= first), event[event >= first]
    return _columns(event, kind, rows.address, rows.bytes, rows.stream, np.maximum(rows.pool.astype(np.int64), 0))


def _columns(
    event: I64, kind: ArrayLike, address: ArrayLike, size: I64, stream: ArrayLike = 0, pool: ArrayLike = 0
) -> I64:
    """Rows of event, kind, address, bytes, stream and pool."""
    columns = [np.asarray(column).astype(np.int64) for column in (event, kind, address, size, stream, pool)]
    return np.stack(np.broadcast_arrays(*columns), 1)


def _changed(timeline: AllocationTimeline) -> Bools:
    return np.not_equal(timeline.reservations.kind, ReservationKind.REPORTED)


def _changes(timeline: AllocationTimeline, device: int) -> ReservationRows:
    return timeline.reservations.take((timeline.reservations.device == device) & _changed(timeline))


def _failures(timeline: AllocationTimeline, device: int) -> MarkRows:
    return timeline.marks.take((timeline.marks.device == device) & (timeline.marks.kind == MarkKind.OOM))
