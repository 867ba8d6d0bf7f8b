"""What is reported of surviving births, and what every watcher of births can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tbmem.model.evidence import Site

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


class Spending:
    """Adds up what watching costs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._clock = clock

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what runs inside, also when it fails."""
        began = self._clock()
        try:
            yield
        finally:
            self.seconds += self._clock() - began


class Births(Protocol):
    """Watches the births of a few steps; every call comes from the training thread, between steps."""

    @property
    def is_full(self) -> bool:
        """Whether enough has been seen, or more would cost too much: ``finish`` is due."""

    def begin(self, step: int) -> None:
        """Watch from now on; ``step`` is the one that begins."""

    def mark(self, step: int, between: Callable[[], object] = nothing) -> None:
        """The watched step ``step`` has ended and the next begins.

        Args:
            step: The one that has ended.
            between: Our own work at the border of the two, which is not watched: recording it would cost more than
                the work itself. Its time is not counted as spent on births.
        """

    def finish(self) -> BirthReport:
        """Watch no longer, whatever happens, and report the steps that were marked as ended."""

    def abandon(self) -> None:
        """Watch no longer and report nothing; never raises, may come at any moment and more than once."""
