"""Segments of a recording put into an allocator, and the mapped runs of expandable segments."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tbmem.analysis.allocator.blocks import Block, Pool, Range
from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import EventKind
from tbmem.analysis.allocator.settings import SMALL, SMALL_SEGMENT, AllocatorSettings, round_size
from tbmem.units import round_up

Group = tuple[int, int, bool]
Blocks = dict[int, Block]


@dataclass(frozen=True)
class LiveBlock:
    """A block in use; address and sizes in bytes."""

    address: int
    size: int
    requested: int
    allocated: bool = True
    """False if freed while another stream may still use it."""


@dataclass(frozen=True)
class Segment:
    """A segment with its blocks in use."""

    address: int
    size: int
    stream: int
    small: bool
    pool: int = 0
    expandable: bool = False
    blocks: tuple[LiveBlock, ...] = ()
    """In use, by address; memory between them is free."""


def segments_of(segments: Iterable[list[Block]]) -> list[Segment]:
    """Segments of an allocator, as ``segments_now`` returns them."""
    return [
        Segment(
            address=blocks[0].address,
            size=sum(block.size for block in blocks),
            stream=blocks[0].stream,
            small=blocks[0].pool.small,
            pool=blocks[0].pool.id,
            expandable=blocks[0].range is not None,
            blocks=tuple(
                LiveBlock(block.address, block.size, block.requested, block.allocated) for block in blocks if block.busy
            ),
        )
        for blocks in segments
    ]


def seed(allocator: CachingAllocator, segments: Iterable[Segment], bases: dict[Group, int] | None = None) -> Blocks:
    """Put segments into an allocator that holds nothing.

    Args:
        allocator: The allocator; its reserved, active and allocated bytes are those of the segments afterwards.
        segments: What it shall hold.
        bases: Where the address space of an expandable segment begins, if lower than its first mapped page.

    Returns:
        The blocks in use, by address.
    """
    live: Blocks = {}
    expandable: defaultdict[Group, list[Segment]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment.address):
        if segment.expandable:
            expandable[group_of(segment)].append(segment)
        else:
            pool = allocator.pool(segment.small, segment.pool)
            _chain(allocator, pool, segment, allocator.next_age(), None, live)
        allocator.reserved += segment.size
    for group, runs in expandable.items():
        _seed_range(allocator, runs, (bases or {}).get(group, runs[0].address), live)
    allocator.peak_reserved, allocator.peak_allocated = allocator.reserved, allocator.allocated
    return live


def group_of(segment: Segment) -> Group:
    """Segments of one group share an expandable segment's address space."""
    return segment.stream, segment.pool, segment.small


def _seed_range(allocator: CachingAllocator, runs: list[Segment], base: int, live: Blocks) -> None:
    """One expandable segment: its mapped runs, and address space without memory between and after them."""
    first = runs[0]
    pool = allocator.pool(first.small, first.pool)
    page = SMALL_SEGMENT if first.small else allocator.settings.large_segment_size
    total = allocator.device.total
    size = max(total + total // 8, runs[-1].address + runs[-1].size - base + page)
    range = Range(base, round_up(size, page), page)
    age, last, cursor = allocator.next_age(), None, base
    for run in (*runs, None):
        end = base + range.size if run is None else run.address
        if end > cursor:
            hole = Block(pool, first.stream, cursor, end - cursor, age, range)
            hole.mapped = False
            last = _follow(hole, last)
            pool.add(hole)
        if run is not None:
            last = _chain(allocator, pool, run, age, range, live, last)
            cursor = run.address + run.size


def _chain(
    allocator: CachingAllocator,
    pool: Pool,
    segment: Segment,
    age: int,
    range: Range | None,
    live: Blocks,
    last: Block | None = None,
) -> Block | None:
    """A segment's blocks as neighbours, used and free ones; returns the last."""
    cursor = segment.address
    for entry in segment.blocks:
        if entry.address > cursor:
            last = _free(pool, segment.stream, cursor, entry.address, age, range, last)
        block = Block(pool, segment.stream, entry.address, entry.size, age, range)
        block.busy, block.allocated, block.requested = True, entry.allocated, entry.requested
        last = live[entry.address] = _follow(block, last)
        allocator.active += entry.size
        allocator.allocated += entry.size if entry.allocated else 0
        cursor = entry.address + entry.size
    end = segment.address + segment.size
    return _free(pool, segment.stream, cursor, end, age, range, last) if end > cursor else last


def _free(pool: Pool, stream: int, start: int, end: int, age: int, range: Range | None, last: Block | None) -> Block:
    block = _follow(Block(pool, stream, start, end - start, age, range), last)
    pool.add(block)
    return block


def _follow(block: Block, last: Block | None) -> Block:
    if last is not None:
        block.insert_after(last)
    return block


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
