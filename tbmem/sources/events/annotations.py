"""Named ranges of a recording, and the step and phase of each allocation by them and by the stacks."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from tbmem.model.category import Phase
from tbmem.model.columns import I8, I32, I64, Bools
from tbmem.model.stacks import Frame, Names, StackTable
from tbmem.model.timeline_tables import AllocationRows, RangeKind, RangeRows

_STEP_NAME = re.compile(r"ProfilerStep#(\d+)")
_OPTIMIZER_PREFIX = "Optimizer."
_OPTIMIZER_STEP_PREFIX = "Optimizer.step#"
STEPS_ARE_COUNTED = "The steps have no names: they are counted from 0 by the steps of the optimizer."
"""Note on such a recording."""


def kind_of_range(name: str) -> RangeKind:
    """What a range is, by the name that torch or tbmem gave it."""
    if _STEP_NAME.match(name):
        return RangeKind.STEP
    return RangeKind.OPTIMIZER if name.startswith(_OPTIMIZER_PREFIX) else RangeKind.ANNOTATION


def step_of_range(name: str) -> int:
    """Number in the name of a step; -1 for any other range."""
    found = _STEP_NAME.match(name)
    return int(found[1]) if found else -1


def read_ranges(annotations: list[dict[str, Any]], devices: dict[int, int], names: Names) -> RangeRows:
    """Ranges from the pairs of START and END.

    Args:
        annotations: As in the snapshot, in order of time.
        devices: Row of a device by torch's index of it.
        names: Numbers of the ranges' names.
    """
    found: list[list[int]] = []
    open_ranges: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
    for annotation in annotations:
        name, index = str(annotation.get("name", "")), int(annotation.get("device", -1))
        ns = int(annotation.get("time_us", -1)) * 1000
        if annotation.get("stage") == "START":
            one = [names.number(name), kind_of_range(name), ns, -1, devices.get(index, -1), step_of_range(name)]
            found.append(one)
            open_ranges[name, index].append(one)
        elif open_ranges[name, index]:
            open_ranges[name, index].pop()[3] = ns
    table = np.array(found, np.int64).reshape(-1, 6)
    columns = ("name", "kind", "begin_ns", "end_ns", "device", "step")
    return RangeRows.of(len(table), **{name: table[:, place] for place, name in enumerate(columns)})


def phases(rows: AllocationRows, ranges: RangeRows, stacks: StackTable) -> I8:
    """Phase of each allocation: what its stack tells, else whether an optimizer was running.

    With Python stacks only, what has none was allocated by a thread without Python: by autograd's, in backward.
    """
    table = np.append(phases_of(stacks), np.int8(Phase.OTHER))
    found: I8 = table[rows.stack]
    if len(stacks) and not any("::" in frame.function for frame in stacks.frames):
        found[(rows.stack < 0) & (rows.alloc_event >= 0)] = Phase.BACKWARD
    optimizer = ranges.take((ranges.kind == RangeKind.OPTIMIZER) & (ranges.end_ns >= 0))
    running = _within(rows.alloc_ns, optimizer) & (found == Phase.OTHER) & (rows.alloc_ns >= 0)
    found[running] = Phase.OPTIMIZER
    return found


def _within(ns: I64, ranges: RangeRows) -> Bools:
    """Whether each moment lies in one of some ranges (which may nest)."""
    begun = np.searchsorted(np.sort(ranges.begin_ns), ns, side="right")
    ended = np.searchsorted(np.sort(ranges.end_ns), ns, side="right")
    inside: Bools = begun > ended
    return inside


def steps(rows: AllocationRows, ranges: RangeRows, range_names: tuple[str, ...]) -> tuple[I32, bool]:
    """Step of each allocation.

    Returns:
        The steps, and whether they were counted by optimizer steps (from 0) for want of named ones.
    """
    named = ranges.take((ranges.kind == RangeKind.STEP) & (ranges.end_ns >= 0))
    if len(named):
        last = np.searchsorted(named.begin_ns, rows.alloc_ns, side="right") - 1
        inside = (last >= 0) & (rows.alloc_ns < named.end_ns[last])
        return np.where(inside, named.step[last], -1).astype(np.int32), False
    ends = _optimizer_ends(ranges, range_names)
    if not len(ends):
        return np.full(len(rows), -1, np.int32), False
    counted = np.searchsorted(ends, rows.alloc_ns, side="left")
    return np.where(rows.alloc_ns >= 0, counted, -1).astype(np.int32), True


def _optimizer_ends(ranges: RangeRows, range_names: tuple[str, ...]) -> I64:
    """When the steps of the optimizer that stepped first ended: a loop with two of them is counted once."""
    is_step = np.array([name.startswith(_OPTIMIZER_STEP_PREFIX) for name in range_names] or [False])
    stepped = ranges.take(is_step[ranges.name] & (ranges.end_ns >= 0)) if len(ranges) else ranges
    first = stepped.take(stepped.name == stepped.name[:1]) if len(stepped) else stepped
    return np.sort(first.end_ns)


def phases_of(stacks: StackTable) -> I8:
    """The phase that each stack tells, by the functions of torch that are in it.

    What backward recomputes (activation checkpointing) is backward.
    """
    of_frame = np.array([_phase(frame) for frame in stacks.frames] or [Phase.OTHER], np.int8)
    phases = np.full(len(stacks), Phase.OTHER, np.int8)
    if len(stacks.frame):
        # each stack has at least one frame; later phases of a step weigh more
        phases[:] = np.maximum.reduceat(of_frame[stacks.frame], stacks.offset[:-1])
    return phases


def _phase(frame: Frame) -> Phase:
    file = frame.file.replace("\\", "/")
    if "torch/optim/" in file:
        return Phase.OPTIMIZER
    if "torch::autograd::Engine::" in frame.function or frame.function == "_engine_run_backward":
        return Phase.BACKWARD
    if frame.function in ("_call_impl", "_wrapped_call_impl") and file.endswith("torch/nn/modules/module.py"):
        return Phase.FORWARD
    return Phase.OTHER
