"""Base of what watches surviving births, and their report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tbmem.model.evidence import Site
from tbmem.sources.survivors.allocation_sites import Generations
from tbmem.sources.survivors.frame_lines import UserLines

BUDGET = 0.5
"""Seconds that reading may take in all."""
FEWEST_STEPS = 3
"""Watched steps without which nothing can be said."""


def nothing() -> None:
    """What is done between two watched steps where there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BirthReport:
    """What a few watched steps showed."""

    sites: tuple[Site, ...] | None = None
    """Places whose births survive or grow, most generations first; ``None`` where births could not be watched."""
    sizes_grow: float = 0.0
    """Share of the recurring allocations (by bytes) that got larger from step to step."""
    notes: tuple[str, ...] = ()
    """What could not be seen, and why: one sentence each."""
    seconds: float = 0.0
    """What it cost outside the steps."""


class Births(ABC):
    """Watches the births of a few steps; every call comes from the training thread, between steps.

    Args:
        budget: Seconds that reading may take in all.
        clock: Seconds.
    """

    def __init__(self, budget: float, clock: Callable[[], float]) -> None:
        self._budget = budget
        self._clock = clock
        self._seconds = 0.0
        """What watching has cost so far."""
        self._code = UserLines()
        self._generations = Generations()
        self._notes: list[str] = []

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether enough has been seen, or more would cost too much: ``finish`` is due."""

    @abstractmethod
    def begin(self, step: int) -> None:
        """Watch from now on; ``step`` is the one that begins."""

    @abstractmethod
    def mark(self, step: int, between: Callable[[], object] = nothing) -> None:
        """The watched step ``step`` has ended and the next begins.

        Args:
            step: The one that has ended.
            between: Our own work at the border of the two, which is not watched: recording it would cost more than
                the work itself. Its time is not counted as spent on births.
        """

    def finish(self) -> BirthReport:
        """Watch no longer, whatever happens, and report the steps that were marked as ended."""
        try:
            with self._counted():
                self._take_last()
        finally:
            self.abandon()
        if not self._generations.steps:
            return BirthReport(notes=tuple(self._notes or ["no step was watched"]), seconds=self._seconds)
        with self._counted():
            sites = self._generations.sites(self._code.line)
            grow = self._sizes_grow()
        return BirthReport(sites=sites, sizes_grow=grow, notes=tuple(self._notes), seconds=self._seconds)

    @abstractmethod
    def abandon(self) -> None:
        """Watch no longer and report nothing; never raises, may come at any moment and more than once."""

    @abstractmethod
    def _take_last(self) -> None:
        """Take in what was freed since the last mark."""

    @abstractmethod
    def _sizes_grow(self) -> float:
        """Share of the recurring allocations (by bytes) that got larger from step to step."""

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the seconds of what runs inside, also when it fails."""
        began = self._clock()
        try:
            yield
        finally:
            self._seconds += self._clock() - began
