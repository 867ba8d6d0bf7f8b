"""Orders the allocs and frees of a SimulatedRun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tbmem.analysis.allocator.events import EventKind, MemoryEvents
from tbmem.model.columns import I64, Bools
from tbmem.model.simulated_run import SimulatedRun


class RunEvents(NamedTuple):
    """Events of a run, and the indices of each row's alloc and free."""

    events: MemoryEvents
    """For the allocator; the key is the row."""
    alloc_index: I64
    """Of each row: index of its alloc."""
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
        MemoryEvents(kind, row, run.size[row], nothing, nothing), index[: len(run)], free_index, times[order]
    )
