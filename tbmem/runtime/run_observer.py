"""Tells observers, such as a notebook's cell, of each run that begins in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tbmem.model.run_summary import RunSummary
from tbmem.runtime.background_writer import Sink
from tbmem.runtime.process.guard import Guard


class ObservedRun(Protocol):
    """A MemoryCallback, as observers know it."""

    @property
    def summary(self) -> RunSummary | None:
        """What was found, once the run has ended."""


class RunObserver(Protocol):
    """Who hears of the runs."""

    def run_begins(self, memory: ObservedRun) -> Sink | None:
        """Called before a callback opens its run; the run's records also go to the sink that is returned."""


class RunObservers:
    """The observers of this process."""

    _observers: tuple[RunObserver, ...] = ()

    @classmethod
    def begin(cls, memory: ObservedRun) -> list[Sink]:
        """Tell all observers, and collect their sinks."""
        guard = Guard()
        found = [guard.run("observer of runs", observer.run_begins, memory) for observer in cls._observers]
        return [sink for sink in found if sink is not None]

    @classmethod
    @contextmanager
    def added(cls, observer: RunObserver) -> Iterator[None]:
        """Add an observer for the length of a block."""
        cls._observers += (observer,)
        try:
            yield
        finally:
            cls._observers = tuple(one for one in cls._observers if one is not observer)
