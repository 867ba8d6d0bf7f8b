"""A recording and settings of the allocator go in; what it would have reserved and wasted under them comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tbmem.analysis.allocator.recorded import Refused, recorded_failures, what_if
from tbmem.analysis.allocator.replay import Replay, holding
from tbmem.analysis.allocator.settings import AllocatorSettings, describe, settings_of_snapshot
from tbmem.errors import UsageError
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
    served: tuple[bool, ...] = ()
    """Of each request that failed when it was recorded: whether it is served here."""

    @property
    def wasted(self) -> float:
        """Share of the most that was reserved that was never needed at once."""
        return 1 - self.peak_allocated / self.peak_reserved if self.peak_reserved else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A device of a recording under several settings."""

    device: str
    recorded_reserved: int | None
    """Peak as it was recorded."""
    before: Outcome
    """Replayed under the settings of the recording."""
    after: tuple[Outcome, ...]
    refused: tuple[Refused, ...] = ()
    """Requests that failed when it was recorded, in their order."""

    @property
    def note(self) -> str:
        """Why the replay may differ from what was recorded; empty if it does not."""
        if self.recorded_reserved is None or self.recorded_reserved == self.before.peak_reserved:
            return ""
        return (
            "What was in use when the recording began is laid out afresh, without that moment's cache and gaps:"
            " compare the replays with each other."
        )


def what_ifs(timeline: AllocationTimeline, others: Sequence[AllocatorSettings]) -> tuple[WhatIf, ...]:
    """Replay each device of a recording that has a caching allocator.

    Args:
        timeline: A recording with addresses and segments.
        others: Settings to try.

    Raises:
        UsageError: The recording has no events, or none of a caching allocator.
    """
    recorded = settings_of_snapshot(timeline.settings)
    segments = timeline.segments.device
    numbers = [number for number, device in enumerate(timeline.devices) if (segments == number).any()]
    if not numbers:
        raise UsageError("no segments of a caching allocator are in it: only snapshots of CUDA and estimates have them")
    numbers = [number for number in numbers if (timeline.rows.alloc_event[timeline.rows.device == number] >= 0).any()]
    if not numbers:
        raise UsageError("no events are in it: record with torch.cuda.memory._record_memory_history()")
    return tuple(_of_device(timeline, number, recorded, others) for number in numbers)


def _of_device(
    timeline: AllocationTimeline, number: int, recorded: AllocatorSettings, others: Sequence[AllocatorSettings]
) -> WhatIf:
    peak = timeline.peak_reserved(number)
    before, *after = (
        _outcome(settings, what_if(timeline, settings, recorded, number)) for settings in (recorded, *others)
    )
    return WhatIf(
        device=timeline.devices[number].name,
        recorded_reserved=None if peak is None else peak.bytes,
        before=before,
        after=tuple(after),
        refused=recorded_failures(timeline, number),
    )


def _outcome(settings: AllocatorSettings, replayed: Replay) -> Outcome:
    end = holding(replayed.allocator)
    return Outcome(
        settings=describe(settings) or DEFAULTS,
        peak_allocated=replayed.peak_allocated,
        peak_reserved=replayed.peak_reserved,
        end_reserved=end.reserved,
        end_cached=end.free_segments,
        end_fragmented=end.free_pieces,
        segments=sum(one.change.name in ("ALLOC", "MAP") for one in replayed.changes),
        served=tuple(replayed.served),
    )
