"""A FakeRun goes in; its allocs and frees, in one order and numbered without gaps, come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tbmem.analysis.allocator.events import EventKind, IntArray, MemoryEvents
from tbmem.model.category import Phase
from tbmem.model.fake_run import FakeRun


@dataclass(frozen=True)
class RunEvents:
    """The events of a run, and where each row begins and ends among them."""

    events: MemoryEvents
    """As the allocator takes them; a row's number is its key."""
    row: IntArray
    """Of each event: whose it is."""
    begins: IntArray
    """Of each row: the event that allocates it."""
    ends: IntArray
    """Of each row: the event that frees it; -1 for none."""
    time: IntArray
    """Of each event: its number in the run, which counts some that are left out."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.row)

    def at(self, times: Sequence[int]) -> IntArray:
        """First event from each of some numbers of the run on."""
        return np.searchsorted(self.time, np.array(times, dtype=np.int64)).astype(np.int64)

    def alive_at(self, event: int) -> IntArray:
        """Rows alive just after an event."""
        return np.flatnonzero((self.begins <= event) & ((self.ends > event) | (self.ends < 0)))


def events_of_run(run: FakeRun) -> RunEvents:
    """Put a run's events in order."""
    rows = np.arange(len(run))
    ended = np.flatnonzero(run.free_event >= 0)
    times = np.concatenate((run.alloc_event, run.free_event[ended]))
    order = np.argsort(times, kind="stable")
    row = np.concatenate((rows, ended))[order]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ends = np.full(len(run), -1, dtype=np.int64)
    ends[ended] = place[len(run) :]
    nothing = np.zeros(len(order), dtype=np.int64)
    kind = np.where(order < len(run), int(EventKind.ALLOC), int(EventKind.FREE)).astype(np.uint8)
    events = MemoryEvents(kind=kind, key=row, size=run.size[row], stream=nothing, pool=nothing)
    return RunEvents(events, row, place[: len(run)], ends, times[order])


@dataclass(frozen=True)
class SteadyPeak:
    """The highest moment of a run's last step."""

    bytes: int
    rows: IntArray
    """Alive then."""
    phase: Phase
    """Of what was allocated last."""


def steady_peak(run: FakeRun) -> SteadyPeak:
    """What a run asks for at most once it is under way, in bytes that are asked for: no allocator rounds them."""
    order = events_of_run(run)
    change = np.where(order.events.kind == EventKind.ALLOC, order.events.size, -order.events.size)
    held = np.cumsum(change)
    first = int(order.at(run.about["step_starts"][-1:])[0]) if run.about["step_starts"] else 0
    event = min(first, len(held) - 1) + int(np.argmax(held[min(first, len(held) - 1) :]))
    return SteadyPeak(int(held[event]), order.alive_at(event), Phase(int(run.phase[order.row[event]])))
