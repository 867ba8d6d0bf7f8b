"""Simulates torch's caching allocator for one device, decision by decision.

A request is rounded and served by the best fit among the free blocks of its pool and stream, else by a new segment. If
the device is full, cached memory is released and the device asked again before the request runs out of memory.
"""

from __future__ import annotations

from bisect import bisect_left

from tbmem.analysis.allocator.blocks import Block, Pool
from tbmem.analysis.allocator.segments import Segments, SimpleDevice
from tbmem.analysis.allocator.settings import (
    SMALL,
    SMALLEST_BLOCK,
    UNLIMITED,
    AllocatorSettings,
    round_size,
    segment_size,
)
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import format_bytes


class SimulatedOutOfMemory(Exception):
    """A simulated request failed; the message says why."""


class CachingAllocator(Segments):
    """The state of the allocator; sizes and addresses in bytes."""

    def __init__(
        self, settings: AllocatorSettings | None = None, device: SimpleDevice | None = None, ties_by_age: bool = False
    ) -> None:
        """An empty allocator, by default with torch's settings on an unlimited device.

        With ``ties_by_age``, of two free blocks of one size that of the older segment is used (torch from mid-2026 on),
        not that with the lower address.
        """
        super().__init__(settings or AllocatorSettings(), device or SimpleDevice(), ties_by_age)
        self.allocated = self.active = self.peak_allocated = 0
        self._collects = self.allowed is not None and self.settings.garbage_collection_threshold > 0
        self._rounds = any(self.settings.roundup_power2_divisions)

    def malloc(self, requested: int, stream: int = 0, pool_id: int = 0) -> Block:
        """Serve a request for more than 0 bytes; the block may be larger.

        Raises:
            SimulatedOutOfMemory: The device has too little memory, even after cached memory was released.
        """
        size = self.round(requested)
        pool = self.pool(size <= SMALL, pool_id)
        if self._collects:
            pool.lookups += 1
        index = self.find(pool, stream, size)
        block = self._obtain(pool, stream, size, requested) if index is None else pool.free[stream].pop(index)[3]
        if block.size != size and self._splits(pool, size, block.size - size):
            rest = block
            block = Block(pool, stream, rest.address, size, rest.age, rest.range)
            block.insert_before(rest)
            rest.address += size
            rest.size -= size
            pool.add(rest)
        block.allocated = block.busy = True
        block.requested = requested
        self.active += block.size
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def free(self, block: Block) -> None:
        """Free a block that is not used by another stream."""
        self.request_free(block)
        self.complete_free(block)

    def request_free(self, block: Block) -> None:
        """Drop the last reference; the memory may still be in use on another stream (record_stream)."""
        if block.allocated:
            block.allocated = False
            self.allocated -= block.size

    def complete_free(self, block: Block) -> None:
        """Return a block to its pool once no stream uses it."""
        block.busy = False
        self.active -= block.size
        block.merge(block.prev)
        block.merge(block.next)
        block.pool.add(block)

    def round(self, requested: int) -> int:
        """Bytes of the block for a request."""
        if self._rounds:
            return round_size(requested, self.settings)
        return (requested + 511) & -512 if requested > SMALLEST_BLOCK else SMALLEST_BLOCK

    def find(self, pool: Pool, stream: int, size: int) -> int | None:
        """Index of the stream's free block that serves a size; ``None`` if none does."""
        free = pool.free[stream]
        index = bisect_left(free, (size,))
        if index < len(free) and free[index][3].range is not None:
            index = _best_fit(free, index, self.settings.expandable_segments)
        if index == len(free):
            return None
        limit = self.settings.max_split_size
        if limit != UNLIMITED:
            available = free[index][0]
            if size < limit and available >= limit:
                return None
            if size >= limit and available >= size + self.settings.max_non_split_rounding:
                return None
        return index

    def _obtain(self, pool: Pool, stream: int, size: int, requested: int) -> Block:
        if self._collects:
            self.collect_garbage()
        block = self._new_segment(pool, stream, size)
        if block is None and not self._rejected(size):
            if self.release_oversize(pool, stream, size):
                block = self._new_segment(pool, stream, size)
            if block is None:
                self.empty_cache()
                block = self._new_segment(pool, stream, size)
        if block is None:
            raise SimulatedOutOfMemory(self._failure(pool, stream, size, requested))
        return block

    def _new_segment(self, pool: Pool, stream: int, size: int) -> Block | None:
        needed = segment_size(size, self.settings)
        if self._rejected(size) or (self.allowed is not None and self.reserved + needed > self.allowed):
            return None
        if self.settings.expandable_segments:
            return self.grow(pool, stream, size)
        address = self.device.allocate(needed)
        if address is None:
            return None
        self.note(ReservationKind.ALLOC, address, needed, stream)
        return Block(pool, stream, address, needed, self.next_age())

    def _rejected(self, size: int) -> bool:
        if not self.settings.throw_on_cudamalloc_oom:
            return False
        limit = int(self.settings.per_process_memory_fraction * self.device.total)
        return self.reserved + segment_size(size, self.settings) > limit

    def _splits(self, pool: Pool, size: int, rest: int) -> bool:
        if pool.small or self.settings.expandable_segments:
            return rest >= SMALLEST_BLOCK
        return rest > SMALL and size < self.settings.max_split_size

    def _failure(self, pool: Pool, stream: int, size: int, requested: int) -> str:
        text, free = f"{format_bytes(requested)} could not be allocated", format_bytes(self.reserved - self.allocated)
        needed = segment_size(size, self.settings)
        allowed = self.device.total if self.allowed is None else self.allowed
        if needed > allowed:
            return f"{text}: the device gives this process {format_bytes(allowed)} in all"
        if self.reserved - self.active >= size:
            blocks = pool.free[stream]
            largest = format_bytes(blocks[-1][0] if blocks else 0)
            return f"{text}: {free} are reserved and free, but in pieces; the largest that fits is {largest}"
        limited = self.allowed is not None and self.reserved + needed > self.allowed
        limit = f"{'this process may reserve' if limited else 'the device has'} {format_bytes(allowed)}"
        return f"{text}: {format_bytes(self.allocated)} are allocated, {free} more are reserved, and {limit}"


def _best_fit(free: list[tuple[int, int, int, Block]], index: int, expandable: bool) -> int:
    """Index of the best fit if the first block that is large enough (``index``) lies in an expandable segment."""
    if not expandable:
        # the segment is older than the setting
        while index < len(free) and free[index][3].range is not None:
            index += 1
        return index
    # a block counts with the unmapped space behind it, so that blocks that cannot grow are used first
    while (
        free[index][3].range is not None and index + 1 < len(free) and _room(free[index + 1][3]) < _room(free[index][3])
    ):
        index += 1
    return index


def _room(block: Block) -> int:
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)
