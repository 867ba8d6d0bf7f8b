"""Replays a recording under other settings of the allocator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.from_recording import (
    Refused,
    has_segments,
    recorded_events,
    recorded_failures,
    recorded_settings,
    what_if,
)
from tbmem.analysis.allocator.replay import Replay, holding
from tbmem.analysis.allocator.settings import AllocatorSettings, describe
from tbmem.errors import UsageError
from tbmem.model.gpus import Gpu
from tbmem.model.timeline import AllocationTimeline

DEFAULTS = "torch's defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One replay of a recording; bytes."""

    settings: str
    """As in PYTORCH_ALLOC_CONF."""
    peak_allocated: int
    peak_reserved: int
    end_reserved: int
    end_cached: int
    """At the end in whole free segments, which could go back to the device."""
    end_fragmented: int
    """At the end free, and only in pieces of segments."""
    segments: int
    """How often the device was asked for memory."""
    failure: str = ""
    """Why memory ran out, a sentence; empty if it did not. The other figures are then those up to there."""
    replayed: float = 1.0
    """Share of the recording that was replayed until then."""
    served: tuple[bool, ...] = ()
    """Of each request that failed when it was recorded: whether it is served here."""

    @property
    def allocated_percent(self) -> float:
        """The most that was allocated, of the most that was reserved."""
        return 100 * self.peak_allocated / self.peak_reserved if self.peak_reserved else 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A device of a recording under several settings."""

    device: str
    recorded_reserved: int | None
    """Peak as it was recorded."""
    before: Outcome
    """Replayed under the settings of the recording."""
    after: tuple[Outcome, ...]
    began_in_use: bool = True
    """Whether memory was in use when the recording began."""
    gpu: str = ""
    """What it was replayed on; empty: a device without end."""
    refused: tuple[Refused, ...] = ()
    """Requests that failed when it was recorded, in their order."""

    @property
    def note(self) -> str:
        """Why the replay may differ from what was recorded; empty if it does not."""
        if self.recorded_reserved is None or self.recorded_reserved == self.before.peak_reserved:
            return ""
        if self.began_in_use:
            return (
                "What was in use when the recording began is laid out afresh, without that moment's cache and gaps:"
                " compare the replays with each other."
            )
        return (
            "The recording does not tell all that its allocator went by, such as the cache when it began or the pool of"
            " a segment that is gone: compare the replays with each other."
        )


def what_ifs(
    timeline: AllocationTimeline,
    others: Sequence[AllocatorSettings],
    gpu: Gpu | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> tuple[WhatIf, ...]:
    """Replay each device of a recording that has a caching allocator, on ``gpu`` or on a device without end.

    Raises:
        UsageError: The recording has no events, or none of a caching allocator; or a setting is a share of the
            device's memory, and how much it has is not known.
    """
    cached = [number for number in range(len(timeline.devices)) if has_segments(timeline, number)]
    if not cached:
        raise UsageError("no segments of a caching allocator are in it: only snapshots of CUDA and estimates have them")
    numbers = [number for number in cached if len(recorded_events(timeline, number))]
    if not numbers:
        raise UsageError("no events are in it: record with torch.cuda.memory._record_memory_history()")
    for number in cached:
        if number not in numbers and on_skip is not None:
            on_skip(f"{timeline.devices[number].name}: no events of this device are in it")
    recorded = recorded_settings(timeline)
    return tuple(_of_device(timeline, number, recorded, others, gpu) for number in numbers)


def _of_device(
    timeline: AllocationTimeline,
    number: int,
    recorded: AllocatorSettings,
    others: Sequence[AllocatorSettings],
    gpu: Gpu | None,
) -> WhatIf:
    peak = timeline.peak_reserved(number)
    total = timeline.devices[number].total_bytes
    if gpu is None and total is None and any(one.per_process_memory_fraction < 1 for one in others):
        raise UsageError(
            "per_process_memory_fraction is a share of the device's memory, of which this recording does not tell;"
            " add --gpu, as in --gpu a100-40gb"
        )

    def outcome(settings: AllocatorSettings) -> Outcome:
        device = _memory(settings, gpu, total)
        return _outcome(settings, what_if(timeline, settings, number, device))

    before, *after = (outcome(settings) for settings in (recorded, *others))
    return WhatIf(
        device=timeline.devices[number].name,
        recorded_reserved=None if peak is None else peak.bytes,
        before=before,
        after=tuple(after),
        began_in_use=bool((timeline.rows.alloc_event[timeline.rows.device == number] < 0).any()),
        gpu="" if gpu is None else gpu.name,
        refused=() if gpu is not None else recorded_failures(timeline, number),
    )


def _memory(settings: AllocatorSettings, gpu: Gpu | None, total: int | None) -> SimpleDevice | None:
    """What to replay on; a share of the memory needs to know the whole."""
    if gpu is not None:
        return SimpleDevice(gpu.total, outside=gpu.context)
    if settings.per_process_memory_fraction < 1 and total is not None:
        return SimpleDevice(total)
    return None


def _outcome(settings: AllocatorSettings, replayed: Replay) -> Outcome:
    end = holding(replayed.allocator)
    failure = replayed.failure
    return Outcome(
        settings=describe(settings) or DEFAULTS,
        peak_allocated=replayed.peak_allocated,
        peak_reserved=replayed.peak_reserved,
        end_reserved=end.reserved,
        end_cached=end.cached,
        end_fragmented=end.fragmented,
        failure="" if failure is None else failure.sentence,
        replayed=1.0 if failure is None else len(replayed.allocated) / replayed.events,
        segments=sum(one.change.name in ("ALLOC", "MAP") for one in replayed.changes),
        served=tuple(replayed.served),
    )
