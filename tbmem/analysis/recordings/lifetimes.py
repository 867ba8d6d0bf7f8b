"""Classes of allocations that lived alike, and suspects of a leak: stacks whose allocations pile up, step by step.

The age of what is alive tells a leak from a large batch: a leak keeps blocks of every step, and frees none of them.
"""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.breakdown import Moment, groups, sums
from tbmem.analysis.recordings.result import Labels, LifetimeClass, Suspect
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.columns import I32, I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST
from tbmem.units import format_bytes

MIN_GENERATIONS = 3
"""Steps of which something must be alive for a suspicion."""
_MOST_SUSPECTS = 20


def lifetimes_of(moment: Moment) -> tuple[LifetimeClass, ...]:
    """Classes of the rows of a device, the one that holds most of the peak first."""
    timeline = moment.timeline
    rows = timeline.rows
    own = rows.device == moment.device
    alive = np.zeros(len(rows), np.bool_)
    alive[moment.alive] = True
    found = [
        _class(timeline, name, own & which, alive) for name, which in _classes(timeline).items() if (own & which).any()
    ]
    return tuple(sorted(found, key=lambda one: -one.peak_bytes))


def _classes(timeline: AllocationTimeline) -> dict[str, Bools]:
    rows = timeline.rows
    before, ends = rows.alloc_event == BEFORE, rows.free_event == ALIVE
    freed = ~before & (rows.free_event >= 0)
    last = free_steps(timeline)
    same = freed & (rows.step >= 0) & (last == rows.step)
    across = freed & (rows.step >= 0) & (last >= 0) & (last != rows.step)
    return {
        "whole recording": before & ends,
        "from before, freed": before & (rows.free_event >= 0),
        "to the end": ~before & ends,
        "within a step": same,
        "across steps": across,
        "freed, step not known": freed & ~same & ~across,
        "free not recorded": rows.free_event == LOST,
    }


def free_steps(timeline: AllocationTimeline) -> I32:
    """Step in which each row was freed: that of the last allocation before; -1 if not known."""
    rows = timeline.rows
    found = np.full(len(rows), -1, np.int32)
    for device in range(len(timeline.devices)):
        made = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
        made = made[np.argsort(rows.alloc_event[made])]
        own = np.flatnonzero((rows.device == device) & (rows.free_event >= 0))
        if not len(made) or not len(own):
            continue
        place = np.searchsorted(rows.alloc_event[made], rows.free_event[own], side="right") - 1
        found[own] = np.where(place >= 0, rows.step[made[np.maximum(place, 0)]], -1)
    return found


def _class(timeline: AllocationTimeline, name: str, which: Bools, alive: Bools) -> LifetimeClass:
    rows = timeline.rows
    timed = which & (rows.alloc_ns >= 0) & (rows.free_ns >= 0)
    spans = rows.free_ns[timed] - rows.alloc_ns[timed]
    return LifetimeClass(
        name=name,
        count=int(which.sum()),
        bytes=int(rows.bytes[which].sum()),
        peak_bytes=int(rows.bytes[which & alive].sum()),
        median_ns=int(np.median(spans)) if len(spans) else -1,
    )


def suspects_of(moment: Moment, lines: SourceLines, labels: Labels) -> tuple[Suspect, ...]:
    """What one stack made in every step and is all still there: all of it, or all of one operator, module and size."""
    rows = moment.timeline.rows
    own = np.flatnonzero((rows.device == moment.device) & (rows.alloc_event >= 0) & (rows.step >= 0) & (rows.bytes > 0))
    steps = np.unique(rows.step[own])
    if len(steps) < MIN_GENERATIONS:
        return ()
    place = (rows.stack[own], rows.operator[own], rows.module[own])
    alike = [groups(*place, rows.bytes[own])[1], groups(*place)[1]]
    kept = [_piling(rows.free_event[own], rows.step[own], group, len(steps)) for group in alike]
    told = (rows.stack[own] >= 0) | (rows.operator[own] >= 0)
    by_stack = _by_stack(own[(kept[0] | kept[1]) & told], rows.stack)
    found = [_suspect(moment, which, steps, lines, labels) for which in by_stack]
    return tuple(sorted(found, key=lambda one: -one.bytes)[:_MOST_SUSPECTS])


def _piling(free_event: I64, step: I32, group: I64, steps: int) -> Bools:
    """Members of groups of which none was freed and that have members of every step."""
    size = int(group.max(initial=-1)) + 1
    freed = sums(group, (free_event != ALIVE).astype(np.int64), size)
    first, _ = groups(group, step)
    generations = np.bincount(group[first], minlength=size)
    piling: Bools = ((freed == 0) & (generations == steps))[group]
    return piling


def _by_stack(members: I64, stack: I32) -> list[I64]:
    """Rows, those of one stack together."""
    order = members[np.argsort(stack[members], kind="stable")]
    cuts = np.flatnonzero(np.diff(stack[order])) + 1
    return [part for part in np.split(order, cuts) if len(part)]


def _suspect(moment: Moment, which: I64, steps: I32, lines: SourceLines, labels: Labels) -> Suspect:
    rows = moment.timeline.rows
    first, size = int(which[0]), int(rows.bytes[which].sum())
    stack = int(rows.stack[first])
    operator = moment.timeline.operators[rows.operator[first]] if rows.operator[first] >= 0 else ""
    line = lines.line(stack) or operator
    per_step = size // len(steps)
    return Suspect(
        line=line,
        stack=lines.frames(stack),
        bytes=size,
        count=len(which),
        bytes_per_step=per_step,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        generations=len(steps),
        category=labels.names[labels.code[first]],
        message=(
            f"{format_bytes(per_step)} a step from {line}: made in each of steps {steps[0]} to {steps[-1]}"
            f" and none of it freed ({len(which)} allocations, {format_bytes(size)} at the end)."
        ),
    )
