"""Computes an estimate from a simulated run: peaks, their breakdown, and whether they fit a GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import EventKind, MemoryEvents, holding, replay
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, describe
from tbmem.model.category import Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.gpus import Gpu
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.units import format_bytes

LOW, HIGH = 0.99, 1.03
"""Reserved bytes of real runs relative to their estimates: eight compared runs lay between 1.000 and 1.005."""
ALLOCATED_LOW, ALLOCATED_HIGH = 0.99, 1.01
"""The same for allocated bytes: between 0.9999 and 1.0001 on the GPU."""
COMPILED_LOW = 0.82
"""The lower end of both where torch.compile was left out: estimates were 10 to 21 % above compiled training runs."""
DIVIDED_LOW, DIVIDED_HIGH = 0.96, 1.08
"""Of both for a sharded model: real runs with gloo lay between 0.968 and 1.078 of their estimates
(``benchmarks/estimate_ranks.py``); on a rehearsed GPU within 1 % (``benchmarks/estimate_rehearsed.py``)."""


class Fit(str, Enum):
    """Whether a training run fits the GPU."""

    FITS = "fits"
    TIGHT = "tight"
    """Within the error of the estimate."""
    NO = "does_not_fit"

    @property
    def word(self) -> str:
        """``'fits'``, ``'tight'`` or ``'does not fit'``."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """parameters + optimizer state + max(gradients + its intermediates, activations), with this model's bytes."""

    parameters: int
    optimizer: int
    gradients: int
    intermediates: int
    """Most temporary bytes of the optimizer's step."""
    activations: int
    """What the backward pass finds, batch included."""

    @property
    def total(self) -> int:
        """The formula's value, in bytes."""
        return self.parameters + self.optimizer + max(self.gradients + self.intermediates, self.activations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The same training run with one change; sizes in bytes."""

    change: str
    allocated: int
    reserved: int
    fit: Fit
    batch: int
    ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFit:
    """Whether a training run fits one GPU, on which other kernels may run; sizes in bytes."""

    gpu: str
    capacity: int
    peak_allocated: int
    peak_reserved: int
    needed: int
    """Reserved, and outside of the allocator."""
    headroom: int
    """Capacity less what is needed; negative where that is more."""
    fit: Fit
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate; sizes in bytes unless named otherwise."""

    job: Job
    gpu: str
    settings: str
    """Settings of the allocator, from PYTORCH_ALLOC_CONF."""
    peak_allocated: int
    peak_reserved: int
    allocated_range: tuple[int, int]
    """Expected range of the true value."""
    reserved_range: tuple[int, int]
    peak_step: int
    peak_phase: str
    first_step: int
    """Allocated peak of the first step, which allocates the optimizer's state."""
    steady_step: int
    """Allocated peak of the last."""
    by_phase: Mapping[str, int]
    """Allocated peak of each phase in the last step."""
    by_category: Mapping[str, int]
    """Breakdown of the allocated peak."""
    by_module: Mapping[str, int]
    """Repeated layers are one entry, ``layers.*``."""
    formula: Formula
    outside: Mapping[str, int]
    """Memory outside of the allocator, by use."""
    capacity: int
    fit: Fit
    sentence: str
    fragmented: int
    """At the end."""
    notes: tuple[str, ...] = ()
    parameters: int = 0
    dtype: str = ""
    """Of most of their bytes."""
    architecture: str = ""
    """Of a config file: ``'LlamaForCausalLM of transformers 5.23.0'``."""
    optimizer: str = ""
    """Its class; empty without one."""
    sequence: int | None = None
    """Tokens of a sample, where that is known."""
    executed: str = ""
    """Kind of fake tensors, and torch's version."""
    alternatives: tuple[Alternative, ...] = ()
    gpus: tuple[GpuFit, ...] = ()
    """Each GPU that was asked for, this one first."""

    @property
    def fits(self) -> bool:
        """Whether it fits this GPU, be it tightly."""
        return self.fit is not Fit.NO

    @property
    def as_fit(self) -> GpuFit:
        """This GPU as one of several."""
        needed = self.peak_reserved + sum(self.outside.values())
        return GpuFit(
            gpu=self.gpu,
            capacity=self.capacity,
            peak_allocated=self.peak_allocated,
            peak_reserved=self.peak_reserved,
            needed=needed,
            headroom=self.capacity - needed,
            fit=self.fit,
            sentence=self.sentence,
        )


class RunEvents(NamedTuple):
    """Events of a run, and the indices of each row's alloc and free."""

    events: MemoryEvents
    """For the allocator; the key is the row."""
    alloc_index: I64
    free_index: I64
    """Of each row: index of its free; -1 for none."""
    time: I64
    """Of each event: its number in the run, which may have gaps."""

    @property
    def row(self) -> I64:
        """Of each event: its row."""
        return self.events.key

    @property
    def change(self) -> I64:
        """Of each event: bytes allocated, negative for a free."""
        return np.where(self.events.kind == EventKind.ALLOC, self.events.size, -self.events.size)

    def first_event_from(self, times: Sequence[int]) -> I64:
        """Index of the first event at or after each of some numbers of the run."""
        return np.searchsorted(self.time, np.array(times, dtype=np.int64))

    def alive_at(self, event: int) -> I64:
        """Rows alive just after an event."""
        return np.flatnonzero((self.alloc_index <= event) & ((self.free_index > event) | (self.free_index < 0)))

    def peak_bytes(self, rows: Bools) -> int:
        """Peak bytes of the selected rows together."""
        return int(np.cumsum(np.where(rows[self.row], self.change, 0)).max(initial=0))


def order_events(run: SimulatedRun) -> RunEvents:
    """Sort a run's events, and number them without gaps."""
    ended = np.flatnonzero(run.free_event >= 0)
    times = np.concatenate((run.alloc_event, run.free_event[ended]))
    order = np.argsort(times, kind="stable")
    row = np.concatenate((np.arange(len(run)), ended))[order]
    index = np.argsort(order)
    free_index = np.full(len(run), -1)
    free_index[ended] = index[len(run) :]
    kind = np.where(order < len(run), EventKind.ALLOC, EventKind.FREE)
    nothing = np.zeros(len(order), dtype=np.int64)
    return RunEvents(
        MemoryEvents(kind, row, run.size[row], run.stream[row], nothing), index[: len(run)], free_index, times[order]
    )


def estimate_from_run(
    job: Job, run: SimulatedRun, settings: AllocatorSettings, gpu: Gpu, outside: dict[str, int] | None = None
) -> Estimate:
    """Estimate a job from its run on a GPU; ``outside``: bytes of the GPU outside of the allocator, by use."""
    outside = {"CUDA context and kernels": gpu.context, **(outside or {})}
    order = order_events(run)
    replayed = replay(order.events, CachingAllocator(settings))
    levels = np.array(replayed.allocated, np.int64)
    allocated, reserved = replayed.allocator.peak_allocated, replayed.allocator.peak_reserved
    peak = int(np.argmax(levels))
    alive = order.alive_at(peak)
    steps = np.searchsorted(np.array(run.about["step_starts"]), order.time, side="right") - 1
    steady = steps == steps.max()
    allocated_band, reserved_band = (ALLOCATED_LOW, ALLOCATED_HIGH), (LOW, HIGH)
    if job.world_size > job.replicate:
        allocated_band = reserved_band = (DIVIDED_LOW, DIVIDED_HIGH)
    if run.about.get("compiled"):
        allocated_band, reserved_band = (
            (min(COMPILED_LOW, low), high) for low, high in (allocated_band, reserved_band)
        )
    expected = _within(reserved, reserved_band)
    fit, sentence = _verdict(order, settings, gpu, (allocated, reserved, expected[1]), sum(outside.values()))
    return Estimate(
        job=job,
        gpu=gpu.name,
        settings=describe(settings),
        peak_allocated=allocated,
        peak_reserved=reserved,
        allocated_range=_within(allocated, allocated_band),
        reserved_range=expected,
        peak_step=int(steps[peak]),
        peak_phase=Phase(int(run.phase[order.row[peak]])).name.lower(),
        first_step=int(levels[steps == 0].max(initial=0)),
        steady_step=int(levels[steady].max(initial=0)),
        by_phase=_by_phase(run, order, levels, steady),
        by_category=by_category(run, alive),
        by_module=_by_module(run, alive),
        formula=_formula(run, order),
        outside=outside,
        capacity=gpu.total,
        fit=fit,
        sentence=sentence,
        fragmented=holding(replayed.allocator).fragmented,
        notes=run.notes,
        parameters=int(run.about.get("parameters", 0)),
        dtype=str(run.about.get("dtype", "")),
        architecture=str(run.about.get("architecture", "")),
        optimizer=str(run.about.get("optimizer", "")),
        sequence=run.about.get("sequence"),
        executed=_executed(run.about),
    )


def _within(size: int, band: tuple[float, float]) -> tuple[int, int]:
    """Expected range of the true value, whose ratio to the estimate lies in a band."""
    return int(size * band[0]), int(size * band[1])


def _executed(about: Mapping[str, Any]) -> str:
    if "torch" not in about:
        return ""
    kernels = ", ".join(about.get("attention", ()))
    attention = f", attention by {kernels}" if kernels else ""
    return f"fake {str(about['device']).upper()} tensors, torch {about['torch']}{attention}"


def _by_phase(run: SimulatedRun, order: RunEvents, levels: I64, selected: Bools) -> dict[str, int]:
    """Allocated peak at allocs of each phase, of the selected events."""
    phases = np.where(selected & (order.events.kind == EventKind.ALLOC), run.phase[order.row], -1)
    peaks = {
        phase.name.lower(): int(levels[phases == phase].max(initial=-1))
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    }
    return {name: peak for name, peak in peaks.items() if peak >= 0}


def by_category(run: SimulatedRun, rows: I64) -> dict[str, int]:
    """Bytes of some rows by category, the largest first."""
    sums = np.bincount(run.category[rows], weights=run.size[rows], minlength=len(Category))
    named = {category.name.lower(): int(sums[category]) for category in Category if sums[category]}
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def _by_module(run: SimulatedRun, alive: I64) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for module, size in zip(run.module[alive].tolist(), run.size[alive].tolist(), strict=True):
        sums[layer_pattern(run.modules[module]) if module >= 0 else "(outside of modules)"] += size
    return dict(sums.most_common())


def layer_pattern(module: str) -> str:
    """A module's path without layer numbers: ``layers.*.attention`` for ``layers.3.attention``."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", module)


def _formula(run: SimulatedRun, order: RunEvents) -> Formula:
    final = run.step == run.step.max()
    category = run.category
    return Formula(
        parameters=order.peak_bytes((category == Category.PARAMETER) | (category == Category.BUFFER)),
        optimizer=order.peak_bytes(category == Category.OPTIMIZER_STATE),
        gradients=order.peak_bytes((category == Category.GRADIENT) & final),
        intermediates=order.peak_bytes((category == Category.TEMPORARY) & final & (run.phase == Phase.OPTIMIZER)),
        activations=order.peak_bytes(((category == Category.ACTIVATION) | (category == Category.INPUT)) & final),
    )


def _verdict(
    order: RunEvents, settings: AllocatorSettings, gpu: Gpu, peaks: tuple[int, int, int], outside: int
) -> tuple[Fit, str]:
    """Whether the peaks in bytes (allocated, reserved, reserved at most) fit beside what lies outside."""
    allocated, reserved, at_most = peaks
    need, room = reserved + outside, gpu.total
    has = f"{gpu.name} has {format_bytes(room)}"
    if at_most + outside <= room:
        return Fit.FITS, f"It fits: {format_bytes(need)} of {format_bytes(room)}, {format_bytes(room - need)} are left."
    # replay on a device of that size
    failure = replay(order.events, CachingAllocator(settings, SimpleDevice(room, outside))).failure
    if not failure and need <= room:
        at_most_need = format_bytes(at_most + outside)
        return Fit.TIGHT, f"It is tight: {format_bytes(need)} are needed, {at_most_need} at most, and {has}."
    if not failure:
        return (
            Fit.TIGHT,
            f"It is tight: {format_bytes(need)} are needed and {has}; cached memory will have to be released.",
        )
    no = f"It does not fit: {format_bytes(need)} are needed and {has}"
    if allocated + outside > room:  # where the replay stopped says nothing: any other allocator stops as well
        left = format_bytes(max(room - outside, 0))
        return Fit.NO, f"{no}. Tensors alone take {format_bytes(allocated)} at the peak, and {left} are left for them."
    return Fit.NO, f"{no}. {failure}."
