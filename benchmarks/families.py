"""A seed goes in; memory series of runs that leak, spike or do neither, with their truth, come out.

Each family puts parts together that real runs are made of: lazy optimizer state, gradient accumulation, validation,
batches of varying length, caches that fill, epochs that end, a collector that runs now and then, and leaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tbmem.model.sample import MemorySample

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
Array = np.ndarray


@dataclass
class Series:
    """One run of one device, and what is true about it."""

    family: str
    end: Array
    """Bytes after each step."""
    peak: Array
    """Highest within each step."""
    blocks: Array
    """Live allocations."""
    updated: Array | None = None
    """Whether the optimizer stepped; ``None`` where no optimizer is known."""
    leak_from: int | None = None
    """Index of the first step that leaks."""
    spikes: list[int] = field(default_factory=list)
    """Indices of steps with an outlier."""
    passes: Array | None = None
    """Whether a validation pass ran in a step, which is no outlier but may stand out as one."""
    kept: Array | None = None
    """Bytes that have leaked by each step."""
    capacity: float = 0.0
    device: str = "cuda:0"

    @property
    def leaks(self) -> bool:
        """Whether it leaks."""
        return self.leak_from is not None

    def samples(self) -> list[MemorySample]:
        """The series as the monitor would have read it, a step of 0.1 s each."""
        exact = self.device != "cpu"
        ends, peaks, blocks = (each.astype(np.int64).tolist() for each in (self.end, self.peak, self.blocks))
        updated: Sequence[bool | None] = (
            [None] * len(ends) if self.updated is None else [bool(each) for each in self.updated]
        )
        top = np.maximum.accumulate(np.ceil(self.peak * 1.03 / (20 * MIB)) * 20 * MIB).astype(np.int64).tolist()
        total = int(self.capacity) or None
        rows = zip(ends, peaks, blocks, updated, top, strict=True)
        return [
            MemorySample(
                step=step,
                time=1e9 + step / 10,
                device=self.device,
                allocated=end,
                reserved=reserved if exact else end,
                peak_allocated=peak if exact else None,
                live_blocks=count if exact else None,
                inactive_split=(reserved - end) // 4 if exact else None,
                device_total=total,
                updated=stepped,
            )
            for step, (end, peak, count, stepped, reserved) in enumerate(rows, start=1)
        ]


class Run:
    """A run in the making.

    Args:
        dice: Source of randomness.
        steps: Length.
    """

    def __init__(self, dice: np.random.Generator, steps: int) -> None:
        self.dice, self.steps = dice, steps
        self.base = 10 ** dice.uniform(np.log10(200 * MIB), np.log10(40 * GIB))
        self.work = self.base * dice.uniform(0.2, 2.0)
        """What a step needs on top."""
        self.at = np.arange(steps)
        self.end = np.full(steps, self.base)
        self.peak = np.full(steps, self.base + self.work)
        self.blocks = np.full(steps, float(dice.integers(200, 5000)))
        self.updated: Array | None = None
        self.leak_from: int | None = None
        self.spikes: list[int] = []
        self.passes: Array | None = None
        self.kept: Array | None = None
        self.unrest = 0.0
        """Size of what comes and goes at random, in bytes."""
        lazy = int(dice.integers(1, 4))
        state = self.base * dice.uniform(0.3, 0.65)
        self.end[:lazy] -= state
        self.peak[:lazy] -= state
        self.blocks[:lazy] *= 0.5

    def uniform(self, low: float, high: float) -> float:
        """A number between two others."""
        return float(self.dice.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        """A number whose logarithm is uniform."""
        return float(10 ** self.dice.uniform(np.log10(low), np.log10(high)))

    def integer(self, low: int, high: int) -> int:
        """A whole number, the upper end included."""
        return int(self.dice.integers(low, high + 1))

    def hold(self, amount: Array | float, blocks: Array | float = 0) -> None:
        """Keep memory beyond the step."""
        self.end = self.end + amount
        self.peak = self.peak + amount
        self.blocks = self.blocks + blocks

    # what runs do

    def accumulation(self) -> None:
        """Gradients of several micro-batches; in half of the runs the optimizer is known."""
        every = int(self.dice.choice([2, 4, 8, 16, 32]))
        between = (self.at % every) != every - 1
        gradients = self.base * self.uniform(0.1, 0.3)
        self.end = self.end + gradients * between
        self.blocks = self.blocks + 150 * between
        self.peak = self.peak + gradients
        if self.dice.random() < 0.5:
            self.updated = ~between

    def validation(self) -> None:
        """Some steps in a regular beat need more, and keep a part of it until they are over."""
        every, wide = int(self.dice.choice([25, 50, 100, 250])), self.integer(1, 5)
        on = (self.at % every) < wide
        on[:every] = False
        self.passes = on
        self.peak = self.peak + self.work * self.uniform(0.1, 1) * on
        self.end = self.end + self.work * self.uniform(0, 0.3) * on
        self.blocks = self.blocks + 40 * on

    def lengths(self, kept: float | None = None) -> None:
        """Batches of varying length; a part of each stays until the next."""
        length = np.clip(self.dice.lognormal(-1.0, 0.5, self.steps), 0.05, 1.0)
        kept = float(self.dice.choice([0, 0.01, 0.05, 0.2])) if kept is None else kept
        self.peak = self.peak - self.work * (1 - length) + self.work * kept * length
        self.end = self.end + self.work * kept * length
        self.unrest = max(self.unrest, 0.05 * self.work * kept)

    def noise(self) -> None:
        """Noise that remembers: other threads, caches, an allocator with several streams."""
        size, memory = self.base * self.log_uniform(1e-4, 1e-2), self.uniform(0.3, 0.97)
        shocks, noise = self.dice.normal(0, size, self.steps), np.zeros(self.steps)
        for step in range(1, self.steps):
            noise[step] = memory * noise[step - 1] + shocks[step]
        self.unrest = max(self.unrest, size / (1 - memory**2) ** 0.5)
        self.hold(noise)

    def collector(self) -> None:
        """Garbage in cycles, freed when Python's collector runs, which is not quite regular."""
        rate, every = self.base * self.log_uniform(1e-4, 1e-2), self.integer(10, 80)
        held, count = np.zeros(self.steps), np.zeros(self.steps)
        garbage, pieces, due = 0.0, 0, every
        for step in range(self.steps):
            garbage += rate * self.uniform(0.5, 1.5)
            pieces += 5
            if step >= due:
                garbage, pieces = rate * self.uniform(0, 2), 3
                due = step + max(3, int(every * self.uniform(0.5, 1.6)))
            held[step], count[step] = garbage, pieces
        self.unrest = max(self.unrest, rate)
        self.hold(held, count)

    def shift(self) -> None:
        """From one step on everything needs more: unfrozen layers, another optimizer."""
        first = self.integer(30, self.steps - 50)
        after = self.at >= first
        self.hold(self.base * self.uniform(0.005, 0.3) * after, self.integer(1, 200) * after)

    def cache(self) -> None:
        """A bounded cache fills and stays full."""
        entries = self.integer(20, 200)
        held = np.minimum(self.at, entries)
        self.hold(held * self.base * self.uniform(0.0005, 0.003), held)

    def epochs(self) -> None:
        """A list that is emptied at the end of each epoch."""
        every = self.integer(60, 260)
        held = self.at % every
        self.hold(held * self.base * self.log_uniform(3e-5, 1e-3), held * 2)

    def curriculum(self) -> None:
        """Sequences get longer for a while, smoothly or in eight stages."""
        share = np.clip(self.at / self.integer(200, 1200), 0, 1)
        if self.dice.random() < 0.5:
            share = np.round(share * 8) / 8
        kept = float(self.dice.choice([0, 0.02, 0.2]))
        need = self.work * (0.2 + 0.8 * share)
        self.peak = self.peak - self.work + need * (1 + kept)
        self.end = self.end + need * kept

    def warm_up(self) -> None:
        """Growth that halves again and again."""
        held = 1 - self.uniform(0.5, 0.97) ** self.at
        self.hold(held * self.base * self.log_uniform(1e-3, 0.3), np.round(held * 50))

    # what they must not do

    def leak(self, *, every: int = 1, late: bool = False, uneven: bool = False, one_block: bool = False) -> None:
        """Memory that is never freed: by the end 16 MiB to 20 GiB, 0.2 % of the level and four times the noise."""
        first = self.integer(self.steps // 5, 3 * self.steps // 5) if late else self.integer(0, 20)
        least = max(16 * MIB, 0.002 * self.base, 4 * self.unrest)
        total = self.log_uniform(least, max(min(20 * GIB, 2 * self.base), least))
        when = np.arange(first, self.steps, every)
        amounts = np.full(len(when), total / len(when))
        if uneven:
            amounts *= self.dice.lognormal(0, 0.6, len(when))
        held, count = np.zeros(self.steps), np.zeros(self.steps)
        held[when] = np.maximum(np.round(amounts / 512), 1) * 512
        if not one_block:
            count[when] = self.dice.integers(1, 30, len(when))
        self.kept = np.cumsum(held)
        self.hold(self.kept, np.cumsum(count))
        self.leak_from = first

    def partial_resets(self) -> None:
        """A buffer that is emptied now and then, but for a part."""
        first, every, kept = self.integer(0, 20), self.integer(40, 160), self.uniform(0.1, 0.5)
        per_step = self.log_uniform(64 * MIB, min(20 * GIB, 2 * self.base)) / self.steps
        held, base, lasting, passing = np.zeros(self.steps), np.zeros(self.steps), 0.0, 0.0
        for step in range(first, self.steps):
            passing += per_step
            if step and step % every == 0:
                lasting, passing = lasting + passing * kept, 0.0
            held[step], base[step] = lasting + passing, lasting
        self.kept = base
        self.hold(held, held / per_step)
        self.leak_from = first

    def outlier(self) -> None:
        """One step that needs far more than any of the hundred before it; in half of the runs it keeps it, too."""
        where = self.integer(min(200, self.steps // 3), self.steps - 20)
        around = self.peak[max(0, where - 100) : where].max()
        height = around * self.log_uniform(0.16, 2.0) + max(around - self.peak[where], 0)
        self.peak[where] += height
        if self.dice.random() < 0.5:
            self.end[where] += 0.5 * height
        self.spikes.append(where)

    def finish(self, family: str, outlier: bool) -> Series:
        """The series, with an outlier if it shall have one."""
        if outlier:
            self.outlier()
        self.peak = np.maximum(self.peak, self.end)
        capacity = max(float(self.peak.max()) * self.uniform(1.02, 3), 1 * GIB)
        return Series(
            family,
            self.end,
            self.peak,
            self.blocks,
            self.updated,
            self.leak_from,
            self.spikes,
            self.passes,
            self.kept,
            capacity,
        )


Recipe = Callable[[Run], object]


def _mixed(*parts: str) -> Recipe:
    def cook(run: Run) -> None:
        for part in parts:
            getattr(run, part)()

    return cook


INNOCENT: dict[str, Recipe] = {
    "flat": lambda run: None,
    "accumulation": _mixed("accumulation"),
    "validation": _mixed("validation"),
    "lengths": _mixed("lengths"),
    "noise": _mixed("noise"),
    "collector": _mixed("collector"),
    "shift": _mixed("shift"),
    "three shifts": _mixed("shift", "shift", "shift"),
    "cache fills": _mixed("cache"),
    "epochs": _mixed("epochs"),
    "curriculum": _mixed("curriculum"),
    "warm-up": _mixed("warm_up"),
    "mixture": lambda run: (run.accumulation(), run.validation(), run.lengths(0.05)),
    "mixture 2": _mixed("lengths", "collector", "validation", "shift"),
    "mixture 3": _mixed("noise", "cache", "validation"),
}
LEAKING: dict[str, Recipe] = {
    "leak": lambda run: run.leak(),
    "leak, late": lambda run: run.leak(late=True),
    "leak, every k": lambda run: run.leak(every=int(run.dice.choice([5, 10, 25, 50, 100]))),
    "leak + lengths": lambda run: (
        run.lengths(float(run.dice.choice([0.01, 0.05, 0.2]))),
        run.leak(uneven=True),
    ),
    "leak + accumulation": lambda run: (run.accumulation(), run.leak()),
    "leak + validation": lambda run: (run.validation(), run.leak(every=int(run.dice.choice([1, 50])))),
    "leak + collector": lambda run: (run.collector(), run.leak()),
    "leak + noise": lambda run: (run.noise(), run.leak()),
    "leak, partial resets": _mixed("partial_resets"),
    "leak, one tensor": lambda run: run.leak(one_block=True),
    "leak in a mixture": lambda run: (
        run.accumulation(),
        run.validation(),
        run.lengths(0.05),
        run.leak(uneven=True),
    ),
}
FAMILIES = {**INNOCENT, **LEAKING}


def make(family: str, dice: np.random.Generator, steps: int, *, outlier: bool = False) -> Series:
    """One series of a family.

    Args:
        family: A key of ``FAMILIES``.
        dice: Source of randomness.
        steps: Length.
        outlier: Whether one step of it spikes.
    """
    run = Run(dice, steps)
    FAMILIES[family](run)
    return run.finish(family, outlier)
