"""Simulates torch's caching allocator for one device, decision by decision.

A request is rounded and served by the best fit among the free blocks of its pool and stream, else by a new segment. If
the device is full, cached memory is released and the device asked again before the request runs out of memory.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

from tbmem.analysis.allocator.blocks import Block, Pool, merge
from tbmem.analysis.allocator.device import SegmentChange, SimpleDevice
from tbmem.analysis.allocator.segments import (
    choose_expandable,
    collect_garbage,
    grow,
    release_cached,
    release_oversize,
)
from tbmem.analysis.allocator.settings import UNLIMITED, AllocatorSettings
from tbmem.analysis.allocator.sizes import SMALL, SMALLEST_BLOCK, round_size, segment_size
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import format_bytes


class Reason(str, Enum):
    """Why a request could not be served."""

    TOO_LARGE = "too_large"
    """More than the whole device, or its allowed share, even if nothing else were allocated."""
    LIMIT = "limit"
    """The allowed share of the device is used up."""
    FRAGMENTATION = "fragmentation"
    """Free reserved memory would have been enough, but lies in pieces or in another pool or stream."""
    FULL = "full"
    """Too little is left beside allocated memory."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A request that ran out of memory; all figures in bytes."""

    reason: Reason
    requested: int
    allocated: int
    reserved: int
    allowed: int
    """Limit of this process: the device, or its share of it."""
    largest_free: int
    """The largest cached block of the request's pool and stream."""

    @property
    def sentence(self) -> str:
        """The failure in one sentence."""
        text = f"{format_bytes(self.requested)} could not be allocated"
        free = self.reserved - self.allocated
        if self.reason is Reason.TOO_LARGE:
            return f"{text}: the device gives this process {format_bytes(self.allowed)} in all"
        if self.reason is Reason.FRAGMENTATION:
            return (
                f"{text}: {format_bytes(free)} are reserved and free, but in pieces; "
                f"the largest that fits is {format_bytes(self.largest_free)}"
            )
        limit = "this process may reserve" if self.reason is Reason.LIMIT else "the device has"
        return (
            f"{text}: {format_bytes(self.allocated)} are allocated, {format_bytes(free)} more are reserved, "
            f"and {limit} {format_bytes(self.allowed)}"
        )


class SimulatedOutOfMemory(Exception):
    """A simulated request failed; ``failure`` is the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


class CachingAllocator:
    """The state of the allocator; sizes and addresses in bytes."""

    def __init__(
        self, settings: AllocatorSettings | None = None, device: SimpleDevice | None = None, ties_by_age: bool = False
    ) -> None:
        """Create an empty allocator.

        Args:
            settings: Those of PYTORCH_ALLOC_CONF.
            device: Device of the segments; an unlimited one by default.
            ties_by_age: Of two free blocks of one size, use that of the older segment (torch from mid-2026 on), not
                that with the lower address.
        """
        self.settings = settings or AllocatorSettings()
        self.device = device or SimpleDevice()
        self.pools: dict[int, tuple[Pool, Pool]] = {0: (Pool(small=True), Pool(small=False))}
        self.changes: list[SegmentChange] = []
        self.allocated = self.active = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        self.retries = 0
        self._ties_by_age = ties_by_age
        self._segments_made = 0
        share = self.settings.per_process_memory_fraction
        self.allowed = int(share * self.device.total) if share < 1 else None
        self._collects = self.allowed is not None and self.settings.garbage_collection_threshold > 0
        self._rounds = any(self.settings.roundup_power2_divisions)

    def malloc(self, requested: int, stream: int = 0, pool_id: int = 0) -> Block:
        """Serve a request.

        Args:
            requested: Bytes, more than 0.
            stream: The requesting stream.
            pool_id: The memory pool; 0 is the default one.

        Returns:
            The block; it may be larger than requested.

        Raises:
            SimulatedOutOfMemory: The device has too little memory, even after cached memory was released.
        """
        size = self.round(requested)
        pool = self.pool(size <= SMALL, pool_id)
        if self._collects:
            pool.lookups += 1
        index = self.find(pool, stream, size)
        block = self._obtain(pool, stream, size, requested) if index is None else pool.free[stream].pop(index)[3]
        rest = block.size - size
        if rest and self._splits(pool, size, rest):
            block = self._split(block, size)
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
        merge(block, block.prev)
        merge(block, block.next)
        block.pool.add(block)

    def empty_cache(self) -> None:
        """Release all cached segments, and pages of expandable ones."""
        release_cached(self)

    def round(self, requested: int) -> int:
        """Bytes of the block for a request."""
        if self._rounds:
            return round_size(requested, self.settings)
        return (requested + 511) & -512 if requested > SMALLEST_BLOCK else SMALLEST_BLOCK

    def pool(self, small: bool, pool_id: int) -> Pool:
        """The pool of small or large blocks of a memory pool."""
        pools = self.pools.get(pool_id)
        if pools is None:
            pools = self.pools[pool_id] = (Pool(small=True, id=pool_id), Pool(small=False, id=pool_id))
        return pools[0] if small else pools[1]

    def next_age(self) -> int:
        """Number of a new segment; always 0 if addresses break ties between blocks of one size."""
        self._segments_made += 1
        return self._segments_made if self._ties_by_age else 0

    def note(self, change: ReservationKind, address: int, size: int, stream: int) -> None:
        """Record a change of a segment and its effect on the reserved bytes."""
        self.reserved += size if change in (ReservationKind.ALLOC, ReservationKind.MAP) else -size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved
        self.changes.append(SegmentChange(change, address, size, stream))

    def find(self, pool: Pool, stream: int, size: int) -> int | None:
        """Index of the cached block that serves a size, among the stream's free blocks; ``None`` if none does."""
        free = pool.free[stream]
        index: int | None = bisect_left(free, (size,))
        if index == len(free):
            return None
        assert index is not None
        if free[index][3].range is not None:
            index = choose_expandable(free, index, self.settings.expandable_segments)
            if index is None:
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
            collect_garbage(self)
        block = self._new_segment(pool, stream, size)
        if block is None and not self._rejected(size):
            if release_oversize(self, pool, stream, size):
                block = self._new_segment(pool, stream, size)
            if block is None:
                release_cached(self)
                self.retries += 1
                block = self._new_segment(pool, stream, size)
        if block is None:
            raise SimulatedOutOfMemory(self._failure(pool, stream, size, requested))
        return block

    def _new_segment(self, pool: Pool, stream: int, size: int) -> Block | None:
        needed = segment_size(size, self.settings)
        if self.allowed is not None and self.reserved + needed > self.allowed:
            return None
        if self._rejected(size):
            return None
        if self.settings.expandable_segments:
            return grow(self, pool, stream, size)
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

    def _split(self, rest: Block, size: int) -> Block:
        block = Block(rest.pool, rest.stream, rest.address, size, rest.age, rest.range)
        block.insert_before(rest)
        rest.address += size
        rest.size -= size
        rest.pool.add(rest)
        return block

    def _failure(self, pool: Pool, stream: int, size: int, requested: int) -> Failure:
        needed = segment_size(size, self.settings)
        allowed = self.device.total if self.allowed is None else self.allowed
        free = pool.free[stream]
        if needed > allowed:
            reason = Reason.TOO_LARGE
        elif self.reserved - self.active >= size:
            reason = Reason.FRAGMENTATION
        elif self.allowed is not None and self.reserved + needed > self.allowed:
            reason = Reason.LIMIT
        else:
            reason = Reason.FULL
        return Failure(
            reason=reason,
            requested=requested,
            allocated=self.allocated,
            reserved=self.reserved,
            allowed=allowed,
            largest_free=free[-1][0] if free else 0,
        )
