"""The recorded steps of a device laid over each other: curves on one axis, and the lines whose allocations differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tbmem.analysis.recordings.step_events import StepEvents
from tbmem.model.category import Phase
from tbmem.model.columns import F64, I8, I64, Bools
from tbmem.model.timeline import AllocationTimeline, Curve

_TOLERANCE = 0.002
"""Of the highest level: what differs by less is the same."""
_LEAST = 4096
"""Bytes: what differs by less is the same."""
_ROUNDING = 1e-6
_PARTS = (Phase.BACKWARD, Phase.OPTIMIZER)
"""Phases at whose beginning steps are aligned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedSteps:
    """Steps on one axis of equal columns; bytes."""

    steps: tuple[StepEvents, ...]
    highest: F64
    """Of each step (row) the highest level in each column; NaN after the end of one that was not finished."""
    typical: F64
    """Median over the steps."""
    differs: Bools
    """Where a step's level is not the typical one."""
    edges: tuple[float, ...]
    """Columns at which the backward pass and the optimizer begin; empty where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOfSteps:
    """What one source line allocated in the steps; bytes."""

    line: int
    allocated: tuple[int, ...]
    """In each step."""
    kept: tuple[int, ...]
    """Of it, what was alive at the end of the step after; of the last step, at the end of the recording."""

    @property
    def excess(self) -> float:
        """How far one step is above the others."""
        return max(self.allocated) - float(np.median(self.allocated))

    @property
    def kept_each(self) -> int:
        """What every step keeps, but the first, which makes the optimizer's state."""
        return min(self.kept[1:], default=0)


def folded_steps(
    timeline: AllocationTimeline, device: int, curve: Curve, steps: Sequence[StepEvents], columns: int
) -> FoldedSteps:
    """Lay steps over each other.

    Args:
        timeline: The recording.
        device: Number of the device.
        curve: Its allocated bytes.
        steps: At least one.
        columns: Points of each curve.
    """
    rows = timeline.rows_of(device)
    bounds = [np.array([step.begin, *_parts(rows.alloc_event, rows.phase, step), step.end]) for step in steps]
    count = max(len(bound) for bound in bounds)
    shares = np.median([np.diff(bound) / (bound[-1] - bound[0]) for bound in bounds if len(bound) == count], axis=0)
    edges = np.concatenate([[0.0], np.cumsum(shares / shares.sum())]) * columns
    highest = np.array([_levels(curve, bound, edges, columns) for bound in bounds])
    typical = np.nanmedian(highest, axis=0)
    tolerance = max(_TOLERANCE * float(typical.max()), _LEAST)
    return FoldedSteps(
        steps=tuple(steps),
        highest=highest,
        typical=typical,
        differs=np.abs(highest - typical) > tolerance,
        edges=tuple(edges[1:-1].tolist()),
    )


def _levels(curve: Curve, bound: I64, edges: F64, columns: int) -> F64:
    """The levels of one step; NaN after the end of a step that was not finished."""
    levels = _highest(curve, np.interp(np.arange(columns + 1), edges[: len(bound)], bound)).astype(np.float64)
    levels[np.arange(columns) >= np.ceil(edges[len(bound) - 1] - _ROUNDING)] = np.nan
    return levels


def _parts(event: I64, phase: I8, step: StepEvents) -> list[int]:
    """Events at which the backward pass and the optimizer begin, as far as there are any, in order."""
    inside = (event >= step.begin) & (event < step.end)
    begins = [event[inside & (phase == part)] for part in _PARTS]
    firsts = [int(events.min()) for events in begins if len(events)]
    return firsts if firsts == sorted(set(firsts)) and all(step.begin < first for first in firsts) else []


def _highest(curve: Curve, edges: F64) -> I64:
    """The highest level between neighbouring edges (events, fractions allowed)."""
    whole = np.ceil(edges - _ROUNDING)
    begin, end = (np.searchsorted(curve.event, part, "left") for part in (whole[:-1], whole[1:]))
    # the level before an interval lasts until its first event; the first point is the level before all events
    before = np.maximum(begin - 1, 0)
    starts = np.where(
        (end > begin) & (curve.event[np.minimum(begin, len(curve.event) - 1)] <= whole[:-1]), begin, before
    )
    levels = [
        int(curve.bytes[first:last].max()) for first, last in zip(starts, np.maximum(end, starts + 1), strict=True)
    ]
    return np.array(levels, np.int64)


def lines_of_steps(
    timeline: AllocationTimeline, device: int, steps: Sequence[StepEvents], line_of_stack: I64, limit: int
) -> list[LineOfSteps]:
    """Source lines whose allocations differ from step to step, or stay after each; those with most bytes first.

    Args:
        timeline: The recording.
        device: Number of the device.
        steps: Its steps.
        line_of_stack: Number of the source line of each stack.
        limit: Number of lines.
    """
    rows = timeline.rows.take((timeline.rows.device == device) & (timeline.rows.stack >= 0))
    line = line_of_stack[rows.stack]
    count = int(line_of_stack.max(initial=-1)) + 1
    allocated, kept = (np.zeros((len(steps), count), np.int64) for _ in range(2))
    for number, step in enumerate(steps):
        inside = (rows.alloc_event >= step.begin) & (rows.alloc_event < step.end)
        end = steps[number + 1].end if number + 1 < len(steps) else timeline.devices[device].events
        stays = inside & ((rows.free_event < 0) | (rows.free_event >= end))
        np.add.at(allocated[number], line[inside], rows.bytes[inside])
        np.add.at(kept[number], line[stays], rows.bytes[stays])
    found = [
        LineOfSteps(line=index, allocated=tuple(allocated[:, index].tolist()), kept=tuple(kept[:, index].tolist()))
        for index in range(count)
    ]
    differing = [each for each in found if max(each.excess, each.kept_each) >= _LEAST]
    return sorted(differing, key=lambda each: -max(each.excess, each.kept_each * len(steps)))[:limit]
