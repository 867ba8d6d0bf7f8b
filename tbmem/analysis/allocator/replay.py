"""Memory events, and their replay on the simulated allocator, with the segments and blocks that it holds then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemory
from tbmem.model.columns import I64
from tbmem.model.oom import AllocatorUsage


class EventKind(IntEnum):
    """Kind of an event, named as in CUDA memory snapshots."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The last reference is gone; other streams may still use the memory."""
    FREE_COMPLETED = 2
    FREE = 3
    """Both at once."""
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8


Row: TypeAlias = tuple[EventKind, int, int, int, int]
"""Kind, key, bytes, stream, pool."""


@dataclass(frozen=True, eq=False)
class MemoryEvents:
    """One device's events in order; all columns have the same length."""

    kind: I64
    key: I64
    """The block: its address, or any number that no other live block has."""
    size: I64
    """Requested bytes of an alloc, bytes of a segment."""
    stream: I64
    pool: I64
    """The memory pool; 0 is the default one."""

    @classmethod
    def of(cls, rows: Sequence[Row] | I64) -> MemoryEvents:
        """Events from rows of kind, key, bytes, stream and pool."""
        return cls(*np.asarray(rows, dtype=np.int64).reshape(-1, 5).T)

    def __len__(self) -> int:
        return len(self.kind)

    def rows(self) -> Iterable[tuple[int, int, int, int, int]]:
        """Rows of plain integers, for a fast loop in Python."""
        columns = (self.kind, self.key, self.size, self.stream, self.pool)
        return zip(*(column.tolist() for column in columns), strict=True)


# plain integers: comparisons of enum members are slow
_ALLOC, _REQUESTED, _COMPLETED = int(EventKind.ALLOC), int(EventKind.FREE_REQUESTED), int(EventKind.FREE_COMPLETED)
_FREE, _OOM = int(EventKind.FREE), int(EventKind.OOM)
_RELEASES = frozenset({int(EventKind.SEGMENT_FREE), int(EventKind.SEGMENT_UNMAP)})


@dataclass(kw_only=True, eq=False)
class Replay:
    """A replay and its result."""

    allocator: CachingAllocator
    """After the replay; its peaks are the highest values, also between two events."""
    events: int
    """Number of events, replayed or not."""
    live: dict[int, Block] = field(default_factory=dict)
    """Its blocks in use, by the events' keys."""
    allocated: list[int] = field(default_factory=list)
    """Bytes of blocks in use after each event that was replayed, rounding included."""
    change_event: list[int] = field(default_factory=list)
    """The event at which each change of a segment happened."""
    served: list[bool] = field(default_factory=list)
    """Whether each request that failed in the recording is served here, as far as it was repeated."""
    failure: str = ""
    """Why the first request that failed did, at which the replay ended; empty if none did."""

    def _run(self, events: MemoryEvents, rooms: Sequence[int]) -> None:
        allocator, live, last_release = self.allocator, self.live, -2
        allocated = self.allocated.append
        for index, (kind, key, size, stream, pool) in enumerate(events.rows()):
            if kind == _ALLOC:
                if size:
                    live[key] = allocator.malloc(size, stream, pool)
                    if len(allocator.changes) != len(self.change_event):
                        self._note_changes(index)
            elif kind == _REQUESTED:
                if key in live:
                    allocator.request_free(live[key])
            elif kind in (_COMPLETED, _FREE):
                if key in live:
                    allocator.free(live.pop(key))
            elif kind == _OOM and len(self.served) < len(rooms):
                self.served.append(self._retry(rooms[len(self.served)], size, stream, pool))
                self._note_changes(index)
            elif kind in _RELEASES:
                # consecutive releases of segments are one release
                if index != last_release + 1:
                    allocator.empty_cache()
                    self._note_changes(index)
                last_release = index
            allocated(allocator.allocated)

    def _retry(self, room: int, size: int, stream: int, pool: int) -> bool:
        allocator = self.allocator
        total, peaks = allocator.device.total, (allocator.peak_allocated, allocator.peak_reserved)
        allocator.device.total = room
        try:
            block = allocator.malloc(size, stream, pool)
        except SimulatedOutOfMemory:
            return False
        else:
            allocator.free(block)
            # the recorded allocator had released its cache before it failed
            allocator.empty_cache()
            return True
        finally:
            allocator.device.total = total
            allocator.peak_allocated, allocator.peak_reserved = peaks

    def _note_changes(self, index: int) -> None:
        self.change_event += [index] * (len(self.allocator.changes) - len(self.change_event))


def replay(
    events: MemoryEvents, allocator: CachingAllocator, live: dict[int, Block] | None = None, rooms: Sequence[int] = ()
) -> Replay:
    """Replay events until the end or until memory runs out.

    Recorded changes of segments are not repeated, with one exception: where segments were released, all cached memory
    is released, since a user's empty_cache() cannot be distinguished from the allocator's own releases.

    Args:
        events: The events of one device.
        allocator: It may already hold blocks.
        live: These blocks by the events' keys.
        rooms: For each recorded failure the bytes that could have been reserved. The request is repeated, and its
            block freed at once, since the recording continued without it.
    """
    replayed = Replay(allocator=allocator, events=len(events), live=live or {})
    try:
        replayed._run(events, rooms)
    except SimulatedOutOfMemory as stopped:
        replayed.failure = str(stopped)
    return replayed


def holding(allocator: CachingAllocator) -> AllocatorUsage:
    """Memory that the allocator holds, cached and fragmented."""
    blocks = allocator.free_blocks()
    cached, free = sum(map(_releasable, blocks)), sum(block.size for block in blocks)
    return AllocatorUsage(reserved=allocator.reserved, active=allocator.active, cached=cached, fragmented=free - cached)


def _releasable(block: Block) -> int:
    """Bytes of a free block that can be released: a whole segment, or whole pages of an expandable one."""
    if block.range is None:
        return 0 if block.is_split else block.size
    page, offset = block.range.page, block.address - block.range.address
    first, last = -(-offset // page) * page, (offset + block.size) // page * page
    return max(last - first, 0)


def segments_now(allocator: CachingAllocator, live: Iterable[Block]) -> list[list[Block]]:
    """The segments of an allocator by address, each as its blocks in order; ``live`` are those in use."""
    heads = (block for block in (*live, *allocator.free_blocks()) if block.prev is None or not block.prev.mapped)
    return [_from(head) for head in sorted(heads, key=lambda head: head.address)]


def _from(head: Block) -> list[Block]:
    """A block and its mapped neighbours to the right."""
    blocks = [head]
    while (following := blocks[-1].next) is not None and following.mapped:
        blocks.append(following)
    return blocks
