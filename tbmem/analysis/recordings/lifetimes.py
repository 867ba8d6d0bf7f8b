"""Lifetime classes of allocations, and leak suspects: stacks whose allocations of every step are all still alive."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.breakdown import PeakState, groups, sums
from tbmem.analysis.recordings.result import Labels, LifetimeClass, Suspect
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.columns import I32, I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST
from tbmem.units import format_bytes

MIN_GENERATIONS = 3
"""Steps from which something must be alive for a suspicion."""
_MAX_SUSPECTS = 20


def lifetimes_of(state: PeakState) -> tuple[LifetimeClass, ...]:
    """Lifetime classes of a device's rows, the one with the most bytes at the peak first."""
    rows = state.timeline.rows
    at_peak = np.zeros(len(rows), np.bool_)
    at_peak[state.alive] = True
    classes = []
    for name, members in _classes(state.timeline).items():
        members &= rows.device == state.device
        timed = members & (rows.alloc_ns >= 0) & (rows.free_ns >= 0)
        if members.any():
            lifetime = LifetimeClass(
                name=name,
                count=int(members.sum()),
                bytes=int(rows.bytes[members].sum()),
                peak_bytes=int(rows.bytes[members & at_peak].sum()),
                median_ns=int(np.median(rows.free_ns[timed] - rows.alloc_ns[timed])) if timed.any() else -1,
            )
            classes.append(lifetime)
    return tuple(sorted(classes, key=lambda item: -item.peak_bytes))


def _classes(timeline: AllocationTimeline) -> dict[str, Bools]:
    rows = timeline.rows
    before, alive = rows.alloc_event == BEFORE, rows.free_event == ALIVE
    freed = ~before & (rows.free_event >= 0)
    last_step = _free_steps(timeline)
    same = freed & (rows.step >= 0) & (last_step == rows.step)
    across = freed & (rows.step >= 0) & (last_step >= 0) & (last_step != rows.step)
    return {
        "whole recording": before & alive,
        "from before, freed": before & (rows.free_event >= 0),
        "to the end": ~before & alive,
        "within a step": same,
        "across steps": across,
        "freed, step not known": freed & ~same & ~across,
        "free not recorded": rows.free_event == LOST,
    }


def _free_steps(timeline: AllocationTimeline) -> I32:
    """Step in which each row was freed, which is that of the last allocation before; -1 if not known."""
    rows = timeline.rows
    steps = np.full(len(rows), -1, np.int32)
    for device in range(len(timeline.devices)):
        allocated = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
        allocated = allocated[np.argsort(rows.alloc_event[allocated])]
        freed = np.flatnonzero((rows.device == device) & (rows.free_event >= 0))
        last = np.searchsorted(rows.alloc_event[allocated], rows.free_event[freed], side="right") - 1
        steps[freed] = np.append(rows.step[allocated], -1)[last]
    return steps


def suspects_of(state: PeakState, lines: SourceLines, labels: Labels) -> tuple[Suspect, ...]:
    """Stacks that allocated in every step and whose allocations, all or those of one size, are all still alive."""
    rows = state.timeline.rows
    in_steps = (rows.device == state.device) & (rows.alloc_event >= 0) & (rows.step >= 0)
    candidates = np.flatnonzero(in_steps & (rows.bytes > 0))
    steps = np.unique(rows.step[candidates])
    if len(steps) < MIN_GENERATIONS:
        return ()
    # most stacks keep nothing
    keeping = rows.stack[candidates[rows.free_event[candidates] == ALIVE]]
    candidates = candidates[np.isin(rows.stack[candidates], keeping, kind="table")]
    origin = (rows.stack[candidates], rows.operator[candidates], rows.module[candidates])
    piling_up = np.zeros(len(candidates), np.bool_)
    for _, group in (groups(*origin, rows.bytes[candidates]), groups(*origin)):
        piling_up |= _piling_up(rows.free_event[candidates], rows.step[candidates], group, len(steps))
    has_origin = (rows.stack[candidates] >= 0) | (rows.operator[candidates] >= 0)
    members = candidates[piling_up & has_origin]
    members = members[np.argsort(rows.stack[members], kind="stable")]
    by_stack = np.split(members, np.flatnonzero(np.diff(rows.stack[members])) + 1) if len(members) else []
    suspects = [_suspect(state, members, steps, lines, labels) for members in by_stack]
    return tuple(sorted(suspects, key=lambda suspect: -suspect.bytes)[:_MAX_SUSPECTS])


def _piling_up(free_event: I64, step: I32, group: I64, steps: int) -> Bools:
    """Members of groups with allocations in every step of which none was freed."""
    size = int(group.max(initial=-1)) + 1
    freed = sums(group, (free_event != ALIVE).astype(np.int64), size)
    first, _ = groups(group, step)
    generations = np.bincount(group[first], minlength=size)
    members: Bools = ((freed == 0) & (generations == steps))[group]
    return members


def _suspect(state: PeakState, members: I64, steps: I32, lines: SourceLines, labels: Labels) -> Suspect:
    rows = state.timeline.rows
    first, size = int(members[0]), int(rows.bytes[members].sum())
    stack = int(rows.stack[first])
    operator = state.timeline.operators[rows.operator[first]] if rows.operator[first] >= 0 else ""
    line = lines.line(stack) or operator
    per_step = size // len(steps)
    return Suspect(
        line=line,
        stack=lines.frames(stack),
        bytes=size,
        count=len(members),
        bytes_per_step=per_step,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        generations=len(steps),
        category=labels.names[labels.code[first]],
        message=(
            f"{format_bytes(per_step)} a step from {line}: made in each of steps {steps[0]} to {steps[-1]}"
            f" and none of it freed ({len(members)} allocations, {format_bytes(size)} at the end)."
        ),
    )
