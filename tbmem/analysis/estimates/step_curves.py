"""Curves of a recording's steps, cut into phases, so that an estimate can be laid over a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tbmem.analysis.plots.curves import downsampled
from tbmem.model.category import Category, Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline, Curve

_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Span(NamedTuple):
    """The events of a phase within a step."""

    phase: str
    """``'FORWARD'``, ``'BACKWARD'``, ``'OPTIMIZER'``, or ``'OTHER'`` for a step whose phases are not known."""
    begin: int
    end: int
    """The first event after it."""


class Step(NamedTuple):
    """A step of a recording."""

    number: int
    spans: tuple[Span, ...]
    is_first: bool
    """Whether most of the optimizer's state was allocated in it."""


@dataclass(frozen=True, slots=True)
class PhaseCurve:
    """Memory over a phase of a step."""

    phase: str
    share: float
    """Of the step's events."""
    peak: int
    """Most allocated bytes."""
    at: list[float]
    """Of each point: share of the phase's events, from 0 to 1; the first is the level before the phase."""
    bytes: list[int]
    """Allocated bytes."""
    reserved: list[int] | None
    """Bytes reserved by the allocator; ``None`` if the recording does not have them."""


def steps_of(timeline: AllocationTimeline, device: int) -> list[Step]:
    """The steps of a recording; a phase begins at its first allocation and ends where the next begins."""
    rows = timeline.rows
    selected = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0) & (rows.step >= 0))
    selected = selected[np.argsort(rows.alloc_event[selected], kind="stable")]
    event, step, phase = rows.alloc_event[selected], rows.step[selected], rows.phase[selected]
    if not len(event):
        return []
    numbers, first = np.unique(step, return_index=True)
    order = np.argsort(first)
    begins = event[first[order]].tolist()
    ends = [*begins[1:], timeline.devices[device].events]
    state = _state_by_step(timeline, device)
    return [
        Step(
            number,
            _spans(event[step == number], phase[step == number], begin, end),
            2 * state.get(number, 0) > sum(state.values()),
        )
        for number, begin, end in zip(numbers[order].tolist(), begins, ends, strict=True)
        if end > begin
    ]


def _state_by_step(timeline: AllocationTimeline, device: int) -> dict[int, int]:
    """Bytes of the optimizer's state that was alive at the end, by the step that allocated it."""
    rows = timeline.rows
    kept = (rows.device == device) & (rows.category == Category.OPTIMIZER_STATE) & (rows.free_event < 0)
    steps = np.where(rows.alloc_event[kept] >= 0, rows.step[kept], -1)
    return {number: int(rows.bytes[kept][steps == number].sum()) for number in np.unique(steps).tolist()}


def _spans(event: I64, phase: I64, begin: int, end: int) -> tuple[Span, ...]:
    found: list[tuple[str, int]] = []
    for wanted in _PHASES:
        at = event[phase == wanted]
        if len(at) and (not found or at[0] > found[-1][1]):
            found.append((wanted.name, int(at[0])))
    if not found:
        return (Span(Phase.OTHER.name, begin, end),)
    starts = [begin, *(at for _, at in found[1:])]
    names = (name for name, _ in found)
    return tuple(map(Span, names, starts, [*starts[1:], end]))


def phase_curves(curve: Curve, reserved: Curve, step: Step, points: int) -> list[PhaseCurve]:
    """The curves of a step's phases, of about ``points`` points each."""
    length = step.spans[-1].end - step.spans[0].begin
    return [_phase_curve(curve, reserved, span, length, points) for span in step.spans]


def _phase_curve(curve: Curve, reserved: Curve, span: Span, length: int, points: int) -> PhaseCurve:
    begin, end = np.searchsorted(curve.event, (span.begin, span.end)).tolist()
    # the level before the phase is drawn, and is not part of its peak
    before = max(begin - 1, 0)
    shown = before + downsampled(curve.bytes[before:end], points)
    events = np.maximum(curve.event[shown], span.begin)
    held = None
    if len(reserved.event):
        held = reserved.bytes[np.searchsorted(reserved.event, curve.event[shown], side="right") - 1].tolist()
    return PhaseCurve(
        phase=span.phase,
        share=round((span.end - span.begin) / length, 5),
        peak=int(curve.bytes[begin:end].max(initial=int(curve.bytes[before]) if begin == end else 0)),
        at=np.round((events - span.begin) / (span.end - span.begin), 4).tolist(),
        bytes=curve.bytes[shown].tolist(),
        reserved=held,
    )


def by_category_at_peak(timeline: AllocationTimeline, device: int) -> dict[str, int]:
    """Bytes at the peak by the names of :class:`Category`, the largest first, whatever the rules call them."""
    alive = timeline.rows.take(timeline.alive_at(device, timeline.peak(device).event))
    sums = np.bincount(alive.category, weights=alive.bytes, minlength=len(Category))
    named = {category.name: int(sums[category]) for category in Category if sums[category]}
    return dict(sorted(named.items(), key=lambda item: -item[1]))
