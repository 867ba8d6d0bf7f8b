"""Tracking of allocations that survive their step: what all trackers share, and the sites that they report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from tbmem.model.evidence import CodeLine, Site
from tbmem.sources.survivors.frame_lines import Frame, UserLines

MOST_SITES = 32  # sites that are reported at most
_ENOUGH_STEPS = 4  # sizes of fewer steps rise by chance
_SMALLEST_SHARE = 1e-3  # an allocation below this share of its step's bytes says nothing about sizes
FEWEST_STEPS = 3  # watched steps that a report needs


@dataclass(frozen=True, slots=True)
class AllocationSite:
    """Where in the program memory is allocated."""

    frames: tuple[Frame, ...] = ()  # the user's functions, innermost first
    operator: str = ""  # the operator that allocates
    in_backward: bool = False  # whether autograd runs it


class Survivor(NamedTuple):
    """Memory that was allocated in a step and outlived it."""

    size: int
    site: AllocationSite


class AllocationSites:
    """Allocations of each watched step that are still alive, by site."""

    def __init__(self) -> None:
        self.steps = 0  # watched steps so far
        self._alive: dict[int, tuple[int, Survivor]] = {}  # step and allocation, by address
        self._outlived: defaultdict[AllocationSite, Counter[int]] = defaultdict(Counter)  # bytes by step

    def step(self, survivors: Mapping[int, Survivor]) -> None:
        """A watched step has ended."""
        for address, survivor in survivors.items():
            self._alive[address] = self.steps, survivor
            self._outlived[survivor.site][self.steps] += survivor.size
        self.steps += 1

    def free(self, address: int) -> None:
        """Memory was freed, or its address given to something else; unknown addresses are older than the watch."""
        self._alive.pop(address, None)

    def report(self, line_of: Callable[[Frame], CodeLine]) -> tuple[Site, ...]:
        """The sites whose allocations survive or become larger, most generations first, then most bytes."""
        survivors: defaultdict[AllocationSite, Counter[int]] = defaultdict(Counter)
        for step, (size, site) in self._alive.values():
            if step < self.steps - 1:  # what was allocated last has had no time to be freed
                survivors[site][step] += size
        growing = {site for site in self._outlived if rises(self._series(site))}
        candidates = sorted({*survivors, *growing}, key=lambda site: _rank(survivors.get(site, {})))
        by_lines: defaultdict[tuple[tuple[CodeLine, ...], str, bool], Counter[int]] = defaultdict(Counter)
        growing_lines = set()
        for site in candidates[: 4 * MOST_SITES]:
            key = (tuple(line_of(frame) for frame in site.frames), site.operator, site.in_backward)
            by_lines[key].update(survivors[site])
            if site in growing:
                growing_lines.add(key)
        steps = max(self.steps - 1, 0)
        return tuple(
            Site(
                stack=key[0],
                operator=key[1],
                in_backward=key[2],
                generations=len(by_step),
                steps=steps,
                bytes_per_step=by_step.total() / max(steps, 1),
                growing=key in growing_lines,
            )
            for key, by_step in sorted(by_lines.items(), key=lambda item: _rank(item[1]))[:MOST_SITES]
        )

    def largest_growing(self) -> list[int]:
        """Bytes per step of the site that grows most among those whose allocations outlive their step; else zeros."""
        growing = [series for series in map(self._series, self._outlived) if rises(series)]
        return max(growing, key=_increase, default=[0] * self.steps)

    def outliving(self) -> list[list[int]]:
        """Bytes per step of each site of which something outlives every step."""
        return [self._series(site) for site, by_step in self._outlived.items() if len(by_step) == self.steps]

    def _series(self, site: AllocationSite) -> list[int]:
        return [self._outlived[site][step] for step in range(self.steps)]


def _rank(survived: Mapping[int, int]) -> tuple[int, int]:
    return -len(survived), -sum(survived.values())


def _increase(series: Sequence[int]) -> int:
    return series[-1] - series[0]


class RecurringSizes:
    """Sizes of what each watched step allocated and freed again."""

    def __init__(self) -> None:
        self._smallest = 0.0
        self._steps: list[list[int]] = []

    def step(self, sizes: Iterable[int]) -> None:
        """A watched step has ended."""
        sizes = sorted(sizes, reverse=True)
        if not self._steps:
            self._smallest = sum(sizes) * _SMALLEST_SHARE
        self._steps.append([size for size in sizes if size >= self._smallest])

    def grow(self, outliving: Sequence[Sequence[int]] = ()) -> float:
        """Share, by bytes, of the recurring allocations that got larger from step to step, 0 to 1.

        The largest of a step is compared with the largest of the next, the second with the second, and so on; of what
        outlives its step, each site with itself. Under a curriculum all of them rise. The one that rises most is left
        out if there are others: one tensor that grows (``torch.cat``) is no curriculum, however large.
        """
        ranks = zip(*self._steps, strict=False)  # as many as the step with the fewest has
        series: list[Sequence[int]] = [*ranks, *outliving]
        rising = [sizes for sizes in series if rises(sizes)]
        if not rising:
            return 0.0
        most = max(rising, key=_increase)
        rest = sum(map(sum, series)) - sum(most)
        return (sum(map(sum, rising)) - sum(most)) / rest if rest else 1.0


def rises(series: Sequence[int]) -> bool:
    """Whether a series never falls and rises at every second step or more often."""
    pairs = list(zip(series, series[1:], strict=False))
    if len(series) < _ENOUGH_STEPS or any(after < before for before, after in pairs):
        return False
    return 2 * sum(after > before for before, after in pairs) >= len(pairs)


def no_operation() -> None:
    """Do nothing between two watched steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorReport:
    """What a few watched steps showed."""

    sites: tuple[Site, ...] | None = None  # that survive or grow; ``None`` where they could not be tracked
    sizes_grow: float = 0.0  # share of the recurring allocations (by bytes) that got larger from step to step
    notes: tuple[str, ...] = ()  # what could not be seen, and why: one sentence each
    seconds: float = 0.0  # what it cost outside the steps


class SurvivorTracker(ABC):
    """Tracks the surviving allocations of a few steps; every call comes from the training thread, between steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.budget = 0.5  # seconds that reading may take in all
        self.clock = clock
        self._seconds = 0.0  # what tracking has cost so far
        self._lines = UserLines()
        self._sites = AllocationSites()
        self._notes: list[str] = []

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether enough has been seen, or more would cost too much: ``finish`` is due."""

    def begin(self, step: int) -> None:
        """Watch from now on; ``step`` is the one that begins."""
        with self._off_if_it_fails(), self._counted():
            self._begin(step)

    def mark(self, step: int, between: Callable[[], object] = no_operation) -> None:
        """A watched step has ended and the next begins; what runs ``between`` them is neither watched nor counted."""
        with self._off_if_it_fails():
            with self._counted():
                start_next = self._end_step(step)
            between()
            with self._counted():
                start_next()

    def finish(self) -> SurvivorReport:
        """Stop, whatever happens, and report the steps that were marked as ended."""
        try:
            with self._counted():
                self._take_last()
        finally:
            self.abandon()
        if not self._sites.steps:
            return SurvivorReport(notes=tuple(self._notes or ["no step was watched"]), seconds=self._seconds)
        with self._counted():
            sites, grow = self._sites.report(self._lines.line), self._sizes_grow()
        return SurvivorReport(sites=sites, sizes_grow=grow, notes=tuple(self._notes), seconds=self._seconds)

    @abstractmethod
    def abandon(self) -> None:
        """Stop and report nothing; never raises, may come at any moment and more than once."""

    @abstractmethod
    def _begin(self, step: int) -> None: ...

    @abstractmethod
    def _end_step(self, step: int) -> Callable[[], object]:
        """Take in the step that has ended; returns what begins the next one."""

    @abstractmethod
    def _take_last(self) -> object:
        """Take in what was freed since the last mark."""

    @abstractmethod
    def _sizes_grow(self) -> float: ...

    def _is_spent(self, allowed: float) -> bool:
        """Whether reading has taken its seconds; three times as many while too few steps were watched."""
        return self._seconds > 3 * allowed or (self._seconds > allowed and self._sites.steps >= FEWEST_STEPS)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        start = self.clock()
        try:
            yield
        finally:
            self._seconds += self.clock() - start

    @contextmanager
    def _off_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abandon()
            raise
