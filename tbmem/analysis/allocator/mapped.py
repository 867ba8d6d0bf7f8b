"""Events of expandable segments go in, backwards; the runs of addresses with memory behind them come out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tbmem.analysis.allocator.events import EventKind
from tbmem.analysis.allocator.layout import Group, Segment
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.allocator.sizes import SMALL, round_size


class MappedRuns:
    """Runs of mapped addresses by stream, pool and kind of pool."""

    def __init__(self) -> None:
        self._runs: dict[Group, list[tuple[int, int]]] = {}
        self._known: list[tuple[int, Group]] = []

    def add(self, group: Group, address: int, size: int) -> None:
        """Pages with memory behind them, in bytes."""
        runs, end = self._runs.setdefault(group, []), address + size
        kept = []
        for first, last in runs:
            if last < address or first > end:
                kept.append((first, last))
            else:
                address, end = min(first, address), max(last, end)
        self._runs[group] = sorted([*kept, (address, end)])
        self._know(address, group)

    def classify(self, rows: Sequence[tuple[int, int, int, int, int]], settings: AllocatorSettings) -> None:
        """Learn from the alloc that follows whether pages are mapped for the small or for the large pool."""
        waiting: list[tuple[int, int, int]] = []
        for kind, key, size, stream, pool in rows:
            if kind == EventKind.SEGMENT_MAP:
                waiting.append((key, stream, pool))
            elif waiting and kind in (EventKind.ALLOC, EventKind.OOM):
                small = round_size(size, settings) <= SMALL
                for address, of_stream, of_pool in waiting:
                    group = (of_stream, of_pool, small)
                    self._know(address, group)
                waiting = []

    def undo_map(self, address: int, size: int) -> None:
        """Pages that were mapped later have no memory yet."""
        for group, runs in self._runs.items():
            if any(first <= address < last for first, last in runs):
                self._runs[group] = list(_without(runs, address, address + size))

    def undo_unmap(self, address: int, size: int, stream: int, pool: int) -> None:
        """Pages that were unmapped later still have memory."""
        self.add(self._group_near(address, stream, pool), address, size)

    def _know(self, address: int, group: Group) -> None:
        place = bisect_left(self._known, (address, group))
        if self._known[place : place + 1] != [(address, group)]:
            self._known.insert(place, (address, group))

    def _group_near(self, address: int, stream: int, pool: int) -> Group:
        """Address spaces of groups do not mix: what is nearest is of the same."""
        same = [(abs(known - address), group) for known, group in self._known if group[:2] == (stream, pool)]
        return min(same)[1] if same else (stream, pool, False)

    def covers(self, address: int) -> bool:
        """Whether there is memory behind an address."""
        return any(first <= address < last for runs in self._runs.values() for first, last in runs)

    def bases(self) -> dict[Group, int]:
        """Where each group's address space begins, as far as is known."""
        result: dict[Group, int] = {}
        for address, group in self._known:
            result.setdefault(group, address)
        return result

    def segments(self) -> Iterator[Segment]:
        """The runs as segments without blocks."""
        for (stream, pool, small), runs in self._runs.items():
            for first, last in runs:
                yield Segment(first, last - first, stream, small, pool, expandable=True)


def _without(runs: list[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    for first, last in runs:
        if first < start:
            yield first, min(last, start)
        if last > end:
            yield max(first, end), last
