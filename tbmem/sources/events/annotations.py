"""Named time ranges of a recording, and the step and phase of each allocation by ranges and stacks."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from tbmem.model.category import Phase
from tbmem.model.columns import I8, I32
from tbmem.model.stacks import Frame, Numbering, StackTable
from tbmem.model.timeline_tables import AllocationRows, RangeKind, RangeRows

_STEP_NAME = re.compile(r"ProfilerStep#(\d+)")
_OPTIMIZER_PREFIX = "Optimizer."
_OPTIMIZER_STEP_PREFIX = "Optimizer.step#"
STEPS_ARE_COUNTED = "The steps have no names: they are counted from 0 by the steps of the optimizer."
"""Note on a recording without named steps."""


def kind_of_range(name: str) -> RangeKind:
    """Kind of a range by the name that torch or tbmem gave it."""
    if _STEP_NAME.match(name):
        return RangeKind.STEP
    return RangeKind.OPTIMIZER if name.startswith(_OPTIMIZER_PREFIX) else RangeKind.ANNOTATION


def step_of_range(name: str) -> int:
    """Number in the name of a step; -1 for other ranges."""
    match = _STEP_NAME.match(name)
    return int(match[1]) if match else -1


def read_ranges(annotations: list[dict[str, Any]], devices: dict[int, int], names: Numbering[str]) -> RangeRows:
    """Ranges from a snapshot's pairs of START and END; ``devices`` has rows by torch's index, ``names`` is extended."""
    rows: list[list[int]] = []
    open_ranges: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
    for annotation in annotations:
        name, index = str(annotation.get("name", "")), int(annotation.get("device", -1))
        ns = int(annotation.get("time_us", -1)) * 1000
        if annotation.get("stage") == "START":
            row = [names[name], kind_of_range(name), ns, -1, devices.get(index, -1), step_of_range(name)]
            rows.append(row)
            open_ranges[name, index].append(row)
        elif open_ranges[name, index]:
            open_ranges[name, index].pop()[3] = ns
    name, kind, begin, end, device, step = np.array(rows, np.int64).reshape(-1, 6).T
    return RangeRows.of(len(rows), name=name, kind=kind, begin_ns=begin, end_ns=end, device=device, step=step)


def phases(rows: AllocationRows, ranges: RangeRows, stacks: StackTable) -> I8:
    """Phase of each allocation by its stack, else by the optimizer's ranges.

    With Python stacks only, allocations without one are those of autograd's threads, which have no Python frames.
    """
    phase: I8 = np.append(phases_of(stacks), np.int8(Phase.OTHER))[rows.stack]
    if len(stacks) and not any("::" in frame.function for frame in stacks.frames):
        phase[(rows.stack < 0) & (rows.alloc_event >= 0)] = Phase.BACKWARD
    optimizer = ranges.take((ranges.kind == RangeKind.OPTIMIZER) & (ranges.end_ns >= 0))
    # ranges may nest
    begun = np.searchsorted(np.sort(optimizer.begin_ns), rows.alloc_ns, side="right")
    ended = np.searchsorted(np.sort(optimizer.end_ns), rows.alloc_ns, side="right")
    phase[(begun > ended) & (phase == Phase.OTHER) & (rows.alloc_ns >= 0)] = Phase.OPTIMIZER
    return phase


def steps(rows: AllocationRows, ranges: RangeRows, range_names: tuple[str, ...]) -> tuple[I32, bool]:
    """Step of each allocation, and whether steps without names were counted, from 0, by those of the optimizer."""
    named = ranges.take((ranges.kind == RangeKind.STEP) & (ranges.end_ns >= 0))
    if len(named):
        last = np.searchsorted(named.begin_ns, rows.alloc_ns, side="right") - 1
        inside = (last >= 0) & (rows.alloc_ns < named.end_ns[last])
        return np.where(inside, named.step[last], -1).astype(np.int32), False
    is_step = np.array([name.startswith(_OPTIMIZER_STEP_PREFIX) for name in range_names] or [False])
    stepped = ranges.take(is_step[ranges.name] & (ranges.end_ns >= 0))
    # a loop with two optimizers is counted once
    ends = np.sort(stepped.end_ns[stepped.name == stepped.name[:1]])
    if not len(ends):
        return np.full(len(rows), -1, np.int32), False
    counted = np.searchsorted(ends, rows.alloc_ns, side="left")
    return np.where(rows.alloc_ns >= 0, counted, -1).astype(np.int32), True


def phases_of(stacks: StackTable) -> I8:
    """Phase of each stack by its torch functions; recomputation in backward (checkpointing) is backward."""
    of_frame = np.array([_phase(frame) for frame in stacks.frames] or [Phase.OTHER], np.int8)
    phases = np.full(len(stacks), Phase.OTHER, np.int8)
    if len(stacks.frame):
        # each stack has at least one frame; the latest phase of a step counts
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
    if frame.function == "forward" and file.endswith(".py"):
        return Phase.FORWARD  # stacks of C++ and Python leave out Python frames that call no operator
    return Phase.OTHER
