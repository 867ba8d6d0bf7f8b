"""Replays memory events on the simulated allocator, and reports the segments and blocks that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator, Failure, SimulatedOutOfMemory
from tbmem.analysis.allocator.device import SegmentChange, SimpleDevice
from tbmem.analysis.allocator.events import EventKind, IntArray, MemoryEvents
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.model.oom import AllocatorUsage

# plain integers: comparisons of enum members are slow
_ALLOC, _REQUESTED, _COMPLETED = int(EventKind.ALLOC), int(EventKind.FREE_REQUESTED), int(EventKind.FREE_COMPLETED)
_FREE, _OOM = int(EventKind.FREE), int(EventKind.OOM)
_RELEASES = frozenset({int(EventKind.SEGMENT_FREE), int(EventKind.SEGMENT_UNMAP)})


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Result of a replay; bytes, one entry per event that was replayed."""

    allocated: IntArray
    """Bytes of blocks in use after each event, rounding included."""
    peak_allocated: int
    peak_reserved: int
    """The highest value, also between two events."""
    changes: Sequence[SegmentChange]
    change_event: IntArray
    """The event at which each change of a segment happened."""
    events: int
    """Number of events, replayed or not."""
    failure: Failure | None
    """The first request that failed, at which the replay ended, if any."""
    served: Sequence[bool]
    """Whether each request that failed in the recording is served here, as far as it was repeated."""
    allocator: CachingAllocator
    """The allocator after the replay."""


def replay(
    events: MemoryEvents,
    settings: AllocatorSettings | None = None,
    device: SimpleDevice | None = None,
    allocator: CachingAllocator | None = None,
    live: dict[int, Block] | None = None,
    rooms: Sequence[int] = (),
) -> Replay:
    """Replay events until the end or until memory runs out.

    Recorded changes of segments are not repeated, with one exception: where segments were released, all cached memory
    is released, since a user's empty_cache() cannot be distinguished from the allocator's own releases.

    Args:
        events: The events of one device.
        settings: Those of PYTORCH_ALLOC_CONF.
        device: Device of the segments; an unlimited one by default.
        allocator: An allocator that already holds blocks; its settings and device are used.
        live: Its blocks in use, by the events' keys.
        rooms: For each recorded failure the bytes that could have been reserved. The request is repeated, and its
            block freed at once, since the recording continued without it.
    """
    allocator = allocator or CachingAllocator(settings, device)
    loop = _Loop(allocator, dict(live or {}), rooms)
    failure = None
    try:
        loop.run(events)
    except SimulatedOutOfMemory as stopped:
        failure = stopped.failure
    return Replay(
        allocated=np.array(loop.allocated, dtype=np.int64),
        peak_allocated=allocator.peak_allocated,
        peak_reserved=allocator.peak_reserved,
        changes=allocator.changes,
        change_event=np.array(loop.change_event, dtype=np.int64),
        events=len(events),
        failure=failure,
        served=tuple(loop.served),
        allocator=allocator,
    )


class _Loop:
    """The loop over events and its results."""

    def __init__(self, allocator: CachingAllocator, live: dict[int, Block], rooms: Sequence[int]) -> None:
        self.allocator = allocator
        self.live = live
        self.allocated: list[int] = []
        self.change_event: list[int] = []
        self.served: list[bool] = []
        self._rooms = rooms
        self._last_release = -2

    def run(self, events: MemoryEvents) -> None:
        allocator, live = self.allocator, self.live
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
            elif kind == _OOM and len(self.served) < len(self._rooms):
                self.served.append(self._retry(size, stream, pool))
                self._note_changes(index)
            elif kind in _RELEASES:
                # consecutive releases of segments are one release
                if index != self._last_release + 1:
                    allocator.empty_cache()
                    self._note_changes(index)
                self._last_release = index
            allocated(allocator.allocated)

    def _retry(self, size: int, stream: int, pool: int) -> bool:
        allocator = self.allocator
        total, peaks = allocator.device.total, (allocator.peak_allocated, allocator.peak_reserved)
        allocator.device.total = self._rooms[len(self.served)]
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


def holding(allocator: CachingAllocator) -> AllocatorUsage:
    """Memory that the allocator holds, cached and fragmented."""
    cached = free = 0
    for block in (block for pair in allocator.pools.values() for pool in pair for block in pool.blocks()):
        cached += _releasable(block)
        free += block.size
    return AllocatorUsage(reserved=allocator.reserved, active=allocator.active, cached=cached, fragmented=free - cached)


def _releasable(block: Block) -> int:
    """Bytes of a free block that can be released: a whole segment, or whole pages of an expandable one."""
    if block.range is None:
        return 0 if block.is_split else block.size
    page, offset = block.range.page, block.address - block.range.address
    first, last = -(-offset // page) * page, (offset + block.size) // page * page
    return max(last - first, 0)


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


def segments_now(allocator: CachingAllocator, live: Iterable[Block]) -> list[Segment]:
    """The segments of an allocator, with its blocks in use."""
    heads: dict[int, Block] = {}
    pools = [pool for pair in allocator.pools.values() for pool in pair]
    for block in (*live, *(block for pool in pools for block in pool.blocks())):
        head = block
        while head.prev is not None and head.prev.mapped:
            head = head.prev
        heads[head.address] = head
    return [_segment(heads[address]) for address in sorted(heads)]


def _segment(head: Block) -> Segment:
    """Segment of a block and its mapped neighbours to the right."""
    block: Block | None = head
    end, blocks = head.address, []
    while block is not None and block.mapped:
        if block.busy:
            blocks.append(LiveBlock(block.address, block.size, block.requested, block.allocated))
        end = block.address + block.size
        block = block.next
    return Segment(
        address=head.address,
        size=end - head.address,
        stream=head.stream,
        small=head.pool.small,
        pool=head.pool.id,
        expandable=head.range is not None,
        blocks=tuple(blocks),
    )
