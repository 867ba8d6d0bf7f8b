"""The recorded steps one by one: how long each phase took, what was allocated and what was freed."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.result import RecordedStep
from tbmem.analysis.recordings.running_sum import RunningSum
from tbmem.analysis.recordings.step_events import StepEvents, steps_of
from tbmem.model.category import Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, RangeKind

_SHOWN = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def recorded_steps(timeline: AllocationTimeline, device: int) -> tuple[RecordedStep, ...]:
    """The steps of a device, in order; the last one may not be finished.

    A phase lasts, on the host's clock, from its first allocation to that of another phase; the optimizer's own range,
    where it is recorded, from its beginning to its end. Between the phases, and before the first, is ``other``.
    """
    rows = timeline.rows_of(device)
    steps = steps_of(timeline, device)
    changes = _phase_changes(timeline, device)
    allocated, freed = RunningSum(rows.alloc_event, rows.bytes), RunningSum(rows.free_event, rows.bytes)
    begun = _Begun(rows)
    recorded = []
    for at, step in enumerate(steps):
        following = steps[at + 1] if at + 1 < len(steps) else None
        begin_ns, end_ns = _times(timeline, begun, step, following)
        known = 0 <= begin_ns < end_ns
        phases = _durations(changes, begin_ns, end_ns) if known else np.full(len(Phase), -1)
        recorded.append(
            RecordedStep(
                step=step.step,
                ns=end_ns - begin_ns if known else -1,
                **{f"{phase.name.lower()}_ns": int(phases[phase]) for phase in _SHOWN},
                other_ns=int(phases[Phase.OTHER] + phases[Phase.SETUP]) if known else -1,
                allocated_bytes=allocated.within(step.begin, step.end),
                freed_bytes=freed.within(step.begin, step.end),
            )
        )
    return tuple(recorded)


class _Begun:
    """Times of events of allocations."""

    def __init__(self, rows: AllocationRows) -> None:
        self._rows = rows
        self._order = np.argsort(rows.alloc_event, kind="stable")
        self._event = rows.alloc_event[self._order]

    def at(self, event: int) -> int:
        """Unix time in nanoseconds of an event; -1 if no allocation has it."""
        first, last = np.searchsorted(self._event, event, "left"), np.searchsorted(self._event, event, "right")
        return int(self._rows.alloc_ns[self._order[first:last]].max(initial=-1))

    def last_before(self, event: int) -> int:
        """Unix time in nanoseconds of the latest event before one; -1 without any."""
        rows = self._rows
        allocated, freed = rows.alloc_ns[rows.alloc_event < event], rows.free_ns[rows.free_event < event]
        return max(int(allocated.max(initial=-1)), int(freed.max(initial=-1)))


def _times(
    timeline: AllocationTimeline, begun: _Begun, step: StepEvents, following: StepEvents | None
) -> tuple[int, int]:
    """Beginning and end of a step in Unix time: its range, else its first allocation and that of the next step."""
    ranges = timeline.ranges
    of_step = (ranges.kind == RangeKind.STEP) & (ranges.step == step.step) & (ranges.end_ns >= 0)
    if of_step.any():
        first = int(np.flatnonzero(of_step)[0])
        return int(ranges.begin_ns[first]), int(ranges.end_ns[first])
    return begun.at(step.begin), begun.last_before(step.end) if following is None else begun.at(following.begin)


def _phase_changes(timeline: AllocationTimeline, device: int) -> tuple[I64, I64]:
    """Times at which a phase may begin, in order, and the phase."""
    rows, ranges = timeline.rows, timeline.ranges
    recorded = (rows.device == device) & (rows.alloc_event >= 0) & (rows.alloc_ns >= 0)
    optimizer = ranges.take((ranges.kind == RangeKind.OPTIMIZER) & (ranges.end_ns >= 0))
    ns = np.concatenate([rows.alloc_ns[recorded], optimizer.begin_ns, optimizer.end_ns])
    begins, ends = np.full(len(optimizer), Phase.OPTIMIZER), np.full(len(optimizer), Phase.OTHER)
    phase = np.concatenate([rows.phase[recorded].astype(np.int64), begins, ends])
    order = np.argsort(ns, kind="stable")
    return ns[order], phase[order]


def _durations(changes: tuple[I64, I64], begin_ns: int, end_ns: int) -> I64:
    """Nanoseconds of each phase within a step."""
    ns, phase = changes
    first, last = np.searchsorted(ns, [begin_ns, end_ns])
    edges = np.concatenate([[begin_ns], ns[first:last], [end_ns]])
    of_edge = np.concatenate([[int(Phase.OTHER)], phase[first:last]])
    durations = np.zeros(len(Phase), np.int64)
    np.add.at(durations, of_edge, np.diff(edges))
    return durations
