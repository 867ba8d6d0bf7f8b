"""Allocations of a training that never ran go in; peaks, what they are made of and whether it fits come out."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.events import IntArray
from tbmem.analysis.allocator.replay import Replay, holding, replay
from tbmem.analysis.allocator.settings import AllocatorSettings, describe
from tbmem.analysis.allocator.simulator import Failure
from tbmem.analysis.run_events import RunEvents, events_of_run
from tbmem.model.category import Category, Phase
from tbmem.model.estimate import Estimate, Fit, Formula
from tbmem.model.fake_run import FakeRun
from tbmem.model.gpus import Gpu
from tbmem.model.job import Job
from tbmem.units import format_bytes

LOW, HIGH = 0.99, 1.03
"""Reserved bytes of real runs against their estimates: the eight that were compared lay between 1.000 and 1.005."""
ALLOCATED_LOW, ALLOCATED_HIGH = 0.99, 1.01
"""The same of allocated bytes: between 0.9999 and 1.0001 on the GPU."""
DIVIDED_LOW, DIVIDED_HIGH = 0.96, 1.08
"""Of both, where ranks divide a model: those that really ran lay between 0.968 and 1.078 of their estimates, joined by
gloo (``benchmarks/estimate_ranks.py``); with NCCL none were compared."""


@dataclass(frozen=True)
class _Timeline:
    """The run as the allocator saw it."""

    run: FakeRun
    replayed: Replay
    order: RunEvents

    @property
    def allocated(self) -> IntArray:
        return self.replayed.allocated

    @property
    def row(self) -> IntArray:
        return self.order.row

    def begun(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each event: whether it is an alloc."""
        begun: np.ndarray[tuple[int], np.dtype[np.bool_]] = self.order.begins[self.row] == np.arange(len(self.row))
        return begun


def estimate_of(
    job: Job, run: FakeRun, settings: AllocatorSettings, gpu: Gpu, outside: dict[str, int] | None = None
) -> Estimate:
    """Judge a run.

    Args:
        job: What was executed.
        run: Its allocations.
        settings: What PYTORCH_ALLOC_CONF will say.
        gpu: Where it shall fit.
        outside: Bytes there that are not the allocator's, by what they are for.
    """
    outside = {"CUDA context and kernels": gpu.context, **(outside or {})}
    line = _timeline(run, settings)
    peak = int(np.argmax(line.allocated))
    alive = line.order.alive_at(peak)
    steps = _step_of_event(run, line)
    reserved = line.replayed.peak_reserved
    allocated_band, reserved_band = _bands(job)
    expected = _within(reserved, reserved_band)
    fit, sentence = _verdict(run, settings, gpu, reserved, expected[1], sum(outside.values()))
    return Estimate(
        job=job,
        gpu=gpu.name,
        settings=describe(settings),
        peak_allocated=line.replayed.peak_allocated,
        peak_reserved=reserved,
        allocated_range=_within(line.replayed.peak_allocated, allocated_band),
        reserved_range=expected,
        peak_step=int(steps[peak]),
        peak_phase=Phase(int(run.phase[line.row[peak]])).name.lower(),
        first_step=_highest(line, steps == 0),
        steady_step=_highest(line, steps == steps.max()),
        by_phase=_by_phase(line, steps == steps.max()),
        by_category=_by_category(run, alive),
        by_module=_by_module(run, alive),
        formula=_formula(line),
        outside=outside,
        capacity=gpu.total,
        fit=fit,
        sentence=sentence,
        fragmented=holding(line.replayed.allocator).fragmented,
        notes=run.notes,
        parameters=int(run.about.get("parameters", 0)),
        dtype=str(run.about.get("dtype", "")),
        architecture=str(run.about.get("architecture", "")),
        seconds=float(run.about.get("seconds", 0.0)),
        executed=_executed(run),
    )


def _bands(job: Job) -> tuple[tuple[float, float], tuple[float, float]]:
    """What true values are as multiples of estimates, at least and at most: of allocated and of reserved bytes."""
    if job.world_size > job.replicate:
        return (DIVIDED_LOW, DIVIDED_HIGH), (DIVIDED_LOW, DIVIDED_HIGH)
    return (ALLOCATED_LOW, ALLOCATED_HIGH), (LOW, HIGH)


def _within(size: int, band: tuple[float, float]) -> tuple[int, int]:
    low, high = band
    return int(size * low), int(size * high)


def _executed(run: FakeRun) -> str:
    about = run.about
    if "torch" not in about:
        return ""
    kernels = ", ".join(about.get("attention", ()))
    attention = f", attention by {kernels}" if kernels else ""
    return f"fake {str(about['device']).upper()} tensors, torch {about['torch']}{attention}"


def _timeline(run: FakeRun, settings: AllocatorSettings) -> _Timeline:
    order = events_of_run(run)
    return _Timeline(run, replay(order.events, settings), order)


def _step_of_event(run: FakeRun, line: _Timeline) -> IntArray:
    """The step that an event falls into; -1 before the first."""
    starts = np.array(run.about["step_starts"], dtype=np.int64)
    return np.searchsorted(starts, line.order.time, side="right").astype(np.int64) - 1


def _highest(line: _Timeline, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return int(line.allocated[which].max()) if which.any() else 0


def _by_phase(line: _Timeline, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> dict[str, int]:
    """Highest value while rows of a phase are made."""
    begun = line.begun()
    phases = line.run.phase[line.row]
    result = {}
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        during = which & begun & (phases == phase)
        if during.any():
            result[phase.name.lower()] = int(line.allocated[during].max())
    return result


def _by_category(run: FakeRun, alive: IntArray) -> dict[str, int]:
    sums = {category.name.lower(): int(run.size[alive][run.category[alive] == category].sum()) for category in Category}
    return dict(sorted(((name, size) for name, size in sums.items() if size), key=lambda item: -item[1]))


def _by_module(run: FakeRun, alive: IntArray) -> dict[str, int]:
    sums: defaultdict[str, int] = defaultdict(int)
    for module, size in zip(run.module[alive].tolist(), run.size[alive].tolist(), strict=True):
        sums[merged(run.modules[module]) if module >= 0 else "(outside of modules)"] += size
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def merged(module: str) -> str:
    """A module's path with numbers of layers left out: ``layers.3.attention`` becomes ``layers.*.attention``."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", module)


def _formula(line: _Timeline) -> Formula:
    run = line.run
    last = int(run.step.max())
    final = run.step == last

    def most(which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        change = np.zeros(len(line.row) + 1, dtype=np.int64)
        np.add.at(change, line.order.begins[which], run.size[which])
        ended = which & (line.order.ends >= 0)
        np.add.at(change, line.order.ends[ended], -run.size[ended])
        return int(change.cumsum().max())

    kept = (run.category == Category.ACTIVATION) | (run.category == Category.INPUT)
    return Formula(
        parameters=most((run.category == Category.PARAMETER) | (run.category == Category.BUFFER)),
        optimizer=most(run.category == Category.OPTIMIZER_STATE),
        gradients=most((run.category == Category.GRADIENT) & final),
        intermediates=most((run.category == Category.TEMPORARY) & final & (run.phase == Phase.OPTIMIZER)),
        activations=most(kept & final),
    )


def _verdict(
    run: FakeRun, settings: AllocatorSettings, gpu: Gpu, reserved: int, at_most: int, outside: int
) -> tuple[Fit, str]:
    need, room = reserved + outside, gpu.total
    has = f"{gpu.name} has {format_bytes(room)}"
    if at_most + outside <= room:
        return Fit.FITS, f"It fits: {format_bytes(need)} of {format_bytes(room)}, {format_bytes(room - need)} are left."
    failure = _on_device(run, settings, gpu, outside)
    if failure is None:
        return Fit.TIGHT, f"It is tight: {format_bytes(need)} are wanted and {has}; cached memory will have to go back."
    return Fit.NO, f"It does not fit: {format_bytes(need)} are needed and {has}. {failure.sentence}."


def _on_device(run: FakeRun, settings: AllocatorSettings, gpu: Gpu, outside: int) -> Failure | None:
    """The same requests on a device of that size."""
    return replay(events_of_run(run).events, settings, SimpleDevice(gpu.total, outside)).failure
