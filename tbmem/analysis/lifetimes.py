"""Classes of allocations that lived alike."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.breakdown import Moment
from tbmem.analysis.report import LifetimeClass
from tbmem.model.columns import I32, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST


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
