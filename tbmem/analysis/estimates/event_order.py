"""Orders the allocs and frees of a SimulatedRun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tbmem.analysis.allocator.events import EventKind, IntArray, MemoryEvents
from tbmem.model.simulated_run import SimulatedRun

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RunEvents:
    """Events of a run, and the indices of each row's alloc and free."""

    events: MemoryEvents
    """For the allocator; the key is the row."""
    row: IntArray
    """Of each event: its row."""
    alloc_index: IntArray
    """Of each row: index of its alloc."""
    free_index: IntArray
    """Of each row: index of its free; -1 for none."""
    time: IntArray
    """Of each event: its number in the run, which may have gaps."""

    def first_event_from(self, times: Sequence[int]) -> IntArray:
        """Index of the first event at or after each of some numbers of the run."""
        return np.searchsorted(self.time, np.array(times, dtype=np.int64)).astype(np.int64)

    def alive_at(self, event: int) -> IntArray:
        """Rows alive just after an event."""
        return np.flatnonzero((self.alloc_index <= event) & ((self.free_index > event) | (self.free_index < 0)))

    def peak_bytes(self, rows: BoolArray) -> int:
        """Peak bytes of the selected rows together."""
        sizes = np.where(rows[self.row], self.events.size, 0)
        return int(np.cumsum(np.where(self.events.kind == EventKind.ALLOC, sizes, -sizes)).max(initial=0))


def order_events(run: SimulatedRun) -> RunEvents:
    """Sort a run's events, and number them without gaps."""
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
