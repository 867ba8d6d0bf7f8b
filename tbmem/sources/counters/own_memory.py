"""Resident memory that tbmem itself has added to this process: packages, threads, and what its recordings leave."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tbmem.sources.counters.child_processes import resident_bytes
from tbmem.sources.counters.malloc import MallocHeap, find_trim
from tbmem.sources.gc_pause import gc_paused

_WORTH_GIVING_BACK = 8 << 20
"""Bytes of growth during a recording below which the heap is left as it is."""


class OwnMemory:
    """The bytes, counted by reading the resident memory before and after work in which the program does not run.

    A lower bound: what malloc gives back of the program's own after a recording is counted against it.
    """

    def __init__(self, resident: Callable[[], int] = lambda: resident_bytes(os.getpid())) -> None:
        self.resident = resident
        self.bytes = 0
        self._is_working = False

    def add(self, count: int) -> None:
        """Add what was found to be tbmem's."""
        self.bytes = max(self.bytes + count, 0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count what is added meanwhile, once where such work is part of other work."""
        if self._is_working:
            yield
            return
        self._is_working, before = True, self.resident()
        try:
            yield
        finally:
            self._is_working = False
            self.add(self.resident() - before)


own_memory = OwnMemory()
"""That of this process."""


class OwnUse:
    """Memory that a recording uses from now on; ``give_back`` returns what it has left free in the heap.

    glibc's malloc keeps what is freed between blocks that are still in use. It would stand in the program's resident
    memory to the end, and hide the program's own spikes, which malloc serves from it.

    Args:
        account: Where what is left at the end is added.
    """

    def __init__(self, account: OwnMemory = own_memory) -> None:
        self._account = account
        self._before = self._last = account.resident()
        self._heap = MallocHeap.of_this_process()
        self._within = self._between = self._collected = 0

    @contextmanager
    def working(self, *, collects: bool = False) -> Iterator[None]:
        """Count work of the recording itself; it ``collects`` the records that were made while the program ran.

        Python collects no garbage meanwhile: the program's would count as the recording's, and a full collection takes
        as long as the rest.
        """
        began, alive = self._account.resident(), self._heap.read().allocated if collects else None
        self._between += began - self._last
        try:
            with gc_paused():
                yield
        finally:
            self._last = self._account.resident()
            self._within += self._last - began
            rest = None if alive is None else self._heap.read().allocated
            self._collected += 0 if alive is None or rest is None else max(alive - rest, 0)

    @property
    def records(self) -> int:
        """Bytes added while the program ran that were records: as many as were collected."""
        return min(max(self._between, 0), self._collected)

    @property
    def program_growth(self) -> int:
        """Bytes added while the program ran that were its own."""
        return max(self._between, 0) - self.records

    def give_back(self) -> None:
        """Return the heap's free pages to the system (malloc_trim(3)) if the process has grown since the beginning."""
        trim = find_trim()
        with self.working():
            if trim is not None and self._account.resident() - self._before >= _WORTH_GIVING_BACK:
                trim(0)
        self._account.add(max(self._within + self.records, 0))
