"""The steps of a recording as ranges of its events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.model.category import Phase
from tbmem.model.columns import I32, I64
from tbmem.model.timeline import AllocationTimeline


class StepEvents(NamedTuple):
    """The events of one step: from ``begin`` until before ``end``."""

    step: int
    begin: int
    end: int


def steps_of(timeline: AllocationTimeline, device: int) -> list[StepEvents]:
    """Steps of a device, in order; the last one may not be finished.

    They are those that allocations are in. Where most allocations are in none, as only some steps of a long recording
    are numbered, it is what lies between two optimizer phases. Two optimizers may step in one step.
    """
    rows = timeline.rows.take((timeline.rows.device == device) & (timeline.rows.alloc_event >= 0))
    rows = rows.take(np.argsort(rows.alloc_event, kind="stable"))
    event = np.append(rows.alloc_event, timeline.devices[device].events)
    numbered = _runs(rows.step, event)
    is_optimizer = rows.phase == Phase.OPTIMIZER
    # the first step begins with the recording, and the last one may not be finished
    after = [0, *(np.flatnonzero(is_optimizer[:-1] & ~is_optimizer[1:]) + 1).tolist(), len(rows)]
    between = [StepEvents(at + 1, *map(int, event[after[at : at + 2]])) for at in range(len(after) - 1)]
    between = between if is_optimizer.any() else []
    are_few = 2 * np.count_nonzero(rows.step >= 0) < len(rows)
    return between if are_few and len(between) > 2 * len(numbered) else numbered


def _runs(step: I32, event: I64) -> list[StepEvents]:
    """Steps of consecutive allocations with the same number."""
    changes = np.flatnonzero(step[1:] != step[:-1]) + 1
    begins, ends = [0, *changes.tolist()], [*changes.tolist(), len(step)]
    runs = [StepEvents(int(step[a]), int(event[a]), int(event[b])) for a, b in zip(begins, ends, strict=True) if b]
    return [run for run in runs if run.step >= 0 and run.end > run.begin]
