"""Suspects of a leak: stacks whose allocations pile up, step by step.

The age of what is alive tells a leak from a large batch: a leak keeps blocks of every step, and frees none of them.
"""

from __future__ import annotations

import numpy as np

from tbmem.analysis.breakdown import Moment, groups, sums
from tbmem.analysis.report import Labels, Suspect
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.columns import I32, I64, Bools
from tbmem.model.timeline_tables import ALIVE
from tbmem.units import format_bytes

MIN_GENERATIONS = 3
"""Steps of which something must be alive."""


def suspects_of(moment: Moment, lines: SourceLines, labels: Labels, limit: int = 20) -> tuple[Suspect, ...]:
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
    return tuple(sorted(found, key=lambda one: -one.bytes)[:limit])


def _piling(free_event: I64, step: I32, group: I64, steps: int) -> Bools:
    """Members of groups of which none was freed and that have members of every step."""
    size = int(group.max(initial=-1)) + 1
    freed = sums(group, (free_event != ALIVE).astype(np.int64), size)
    first, _ = groups(group, step)
    generations = np.bincount(group[first], minlength=size)
    piling: Bools = (freed == 0) & (generations == steps)
    of_member: Bools = piling[group]
    return of_member


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
