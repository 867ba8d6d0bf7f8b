"""Sources of a spike: lines and operators that made a step of a profiler window need more than the others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.source_lines import SourceLines
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import format_bytes

_NAMED = 3  # sources that are named at most, ...
_LEAST_PART = 0.1  # ... each of which must have made this part of the difference.


class SpikeSource(NamedTuple):
    """A line or an operator that made a step need more than the others."""

    line: str
    """``'model/attention.py:41 forward'``; empty where no stack was recorded. Of a trace it is the function's first."""
    operator: str
    bytes: int  # what it held at the step's peak, less the median of what it holds at the other steps' peaks
    allocations: int  # those alive at the step's peak

    def __str__(self) -> str:
        place = self.line or self.operator or "a place without a stack"
        detail = f" ({self.operator})" if self.line and self.operator else ""
        return f"{format_bytes(self.bytes)} by {place}{detail}"


class SpikeSources(NamedTuple):
    """What a step, but not the others of its window, held at its peak."""

    largest: tuple[SpikeSource, ...] = ()
    others: int = 0  # bytes of all that are not named

    def __str__(self) -> str:
        others = (f"{format_bytes(self.others)} by others",) if self.others > 0 else ()
        return "beyond what its window's other steps held: " + ", ".join((*map(str, self.largest), *others))

    def to_evidence(self, file: str) -> dict[str, Any]:
        """The same as the evidence of a finding, with the recording's file name."""
        allocated = [
            {"line": source.line, "operator": source.operator, "bytes": source.bytes, "allocations": source.allocations}
            for source in self.largest
        ]
        return {"allocated_by": allocated, "files": [file]}


def step_levels(timeline: AllocationTimeline, device: int) -> dict[int, int]:
    """By step of a recording its peak in bytes."""
    curve = timeline.curve(device)
    peaks = _step_peaks(timeline, device)
    return {step: int(curve.bytes[np.searchsorted(curve.event, event)]) for step, event in peaks.items()}


def _step_peaks(timeline: AllocationTimeline, device: int) -> dict[int, int]:
    """By step the event of its peak, which is always reached by an allocation, and that one knows its step."""
    rows = timeline.rows
    mine = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0) & (rows.step >= 0))
    curve = timeline.curve(device)
    levels = curve.bytes[np.searchsorted(curve.event, rows.alloc_event[mine])]
    order = np.lexsort((-levels, rows.step[mine]))
    steps, first = np.unique(rows.step[mine][order], return_index=True)
    return dict(zip(steps.tolist(), rows.alloc_event[mine][order[first]].tolist(), strict=True))


def spike_sources(timeline: AllocationTimeline, device: int, step: int) -> SpikeSources:
    """What a step, but not the window's others, held at its peak, the largest first; nothing without any of them."""
    others = _step_peaks(timeline, device)
    highest = others.pop(step, None)
    if highest is None or not others:
        return SpikeSources()
    place, numbers = _places(timeline)
    held, counts = _held(timeline, device, highest, place, numbers)
    held_by_others = [_held(timeline, device, other, place, numbers)[0] for other in others.values()]
    # the lower one of two, of which the other may be a spike itself
    more = held - np.quantile(held_by_others, 0.5, axis=0, method="lower").astype(np.int64)
    least = max(_LEAST_PART * more[more > 0].sum(), 1)
    sources = []
    for at in [at for at in np.argsort(-more)[:_NAMED] if more[at] >= least]:
        row = np.argmax(place == at)
        operator = int(timeline.rows.operator[row])
        name = timeline.operators[operator] if operator >= 0 else ""
        line = SourceLines(timeline.stacks).line(int(timeline.rows.stack[row]))
        sources.append(SpikeSource(line, name, int(more[at]), int(counts[at])))
    rest = int(more[more > 0].sum()) - sum(source.bytes for source in sources)
    return SpikeSources(tuple(sources), rest if rest >= least else 0) if sources else SpikeSources()


def _places(timeline: AllocationTimeline) -> tuple[I64, int]:
    """Number of the place by row, and how many there are: a line and an operator, for many operators share a line."""
    rows = timeline.rows
    lines = SourceLines(timeline.stacks).codes(rows.stack)
    numbers, place = np.unique((lines + 1) * (len(timeline.operators) + 1) + rows.operator + 1, return_inverse=True)
    return place.astype(np.int64), len(numbers)


def _held(timeline: AllocationTimeline, device: int, event: int, place: I64, places: int) -> tuple[I64, I64]:
    """Bytes and allocations by place that were alive at an event."""
    alive = timeline.alive_at(device, event)
    held = np.bincount(place[alive], timeline.rows.bytes[alive], places).astype(np.int64)
    return held, np.bincount(place[alive], minlength=places)
