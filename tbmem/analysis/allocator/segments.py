"""A simulated device, and its segments: how expandable ones grow and shrink, and how cached memory is returned."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from tbmem.analysis.allocator.blocks import Block, Pool, Range
from tbmem.analysis.allocator.settings import SMALL_SEGMENT, UNLIMITED, AllocatorSettings
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import MIB, TIB, round_up

UNKNOWN_CAPACITY = 1 * TIB
"""Bytes of a device whose size is not given; more than any device has."""
_GRANULARITY = 2 * MIB
"""Bytes of the driver's pages of physical memory."""
_FIRST_ADDRESS = 0x7F0000000000


class SimpleDevice:
    """A device whose addresses are used in order, each once."""

    def __init__(self, total: int = UNKNOWN_CAPACITY, outside: int = 0) -> None:
        """A device of ``total`` bytes; ``outside`` are used by the context, libraries and other processes."""
        self.total = total
        self.used = outside
        self._next = _FIRST_ADDRESS

    def allocate(self, size: int) -> int | None:
        """Allocate a segment; returns its address, ``None`` if the device is full."""
        return self.reserve(size) if self.map(size) else None

    def reserve(self, size: int) -> int:
        """Reserve address space without memory; it is unlimited."""
        address = self._next
        self._next += round_up(size, _GRANULARITY)
        return address

    def map(self, size: int) -> bool:
        """Map memory to address space; returns whether that many bytes were free."""
        used = self.used + round_up(size, _GRANULARITY)
        if used > self.total:
            return False
        self.used = used
        return True

    def release(self, size: int) -> None:
        """Free a segment, or unmap memory; its address is not used again."""
        self.used -= round_up(size, _GRANULARITY)


class SegmentChange(NamedTuple):
    """One decision of the allocator; address and size in bytes."""

    change: ReservationKind
    address: int
    size: int
    stream: int


class Segments:
    """Segments of one device and the pools of their free blocks; sizes and addresses in bytes."""

    def __init__(self, settings: AllocatorSettings, device: SimpleDevice, ties_by_age: bool) -> None:
        self.settings = settings
        self.device = device
        self.pools: dict[int, tuple[Pool, Pool]] = {0: (Pool(small=True), Pool(small=False))}
        self.changes: list[SegmentChange] = []
        self.reserved = self.peak_reserved = 0
        share = settings.per_process_memory_fraction
        self.allowed = int(share * device.total) if share < 1 else None
        self._ties_by_age = ties_by_age
        self._segments_made = 0

    def pool(self, small: bool, pool_id: int) -> Pool:
        """The pool of small or large blocks of a memory pool."""
        pools = self.pools.get(pool_id)
        if pools is None:
            pools = self.pools[pool_id] = (Pool(small=True, id=pool_id), Pool(small=False, id=pool_id))
        return pools[0] if small else pools[1]

    def free_blocks(self) -> list[Block]:
        """Free blocks of all pools."""
        return [block for pools in self.pools.values() for pool in pools for block in pool.blocks()]

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

    def grow(self, pool: Pool, stream: int, size: int) -> Block | None:
        """Map memory until a free block has a size; returns it, in no pool, or ``None`` if the device is full."""
        block = self._room_for(pool, stream, size)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            assert following is not None  # nosec B101  # for the type checker
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following
        pool.remove(block)
        return block

    def _room_for(self, pool: Pool, stream: int, size: int) -> Block:
        """First block at the lowest address from which adjacent free and unmapped ones have room, or a new segment."""
        for _, unmapped in pool.unmapped[stream]:
            block = unmapped
            if block.prev is not None and not block.prev.busy:
                block = block.prev
            room = 0
            following: Block | None = block
            while room < size and following is not None and not following.busy:
                room += following.size
                following = following.next
            if room >= size:
                return block
        page = SMALL_SEGMENT if pool.small else self.settings.large_segment_size
        # torch reserves 1 1/8 of the device, so that pages can be mapped at the end
        space = round_up(self.device.total + self.device.total // 8, page)
        range = Range(self.device.reserve(space), space, page)
        block = Block(pool, stream, range.address, space, self.next_age(), range, mapped=False)
        pool.add(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Map pages to the first bytes of an unmapped block, which becomes a free one."""
        assert block.range is not None  # nosec B101  # for the type checker
        mapped = round_up(size, block.range.page)
        if not self.device.map(mapped):
            return False
        address, pool = block.address, block.pool
        pool.remove(block)
        block.mapped = True
        if mapped < block.size:
            rest = block.size - mapped
            unmapped = Block(pool, block.stream, address + mapped, rest, block.age, block.range, mapped=False)
            unmapped.insert_after(block)
            pool.add(unmapped)
            block.size = mapped
        block.merge(block.prev)
        block.merge(block.next)
        pool.add(block)
        self.note(ReservationKind.MAP, address, mapped, block.stream)
        return True

    def shrink(self, block: Block) -> None:
        """Unmap the whole pages within a free block of an expandable segment."""
        range, pool, end = block.range, block.pool, block.address + block.size
        assert range is not None  # nosec B101  # for the type checker
        first = -((range.address - block.address) // range.page) * range.page + range.address
        last = (end - range.address) // range.page * range.page + range.address
        if first >= last:
            return
        pool.remove(block)
        if first > block.address:
            before = Block(pool, block.stream, block.address, first - block.address, block.age, range)
            before.insert_before(block)
            pool.add(before)
        if end > last:
            after = Block(pool, block.stream, last, end - last, block.age, range)
            after.insert_after(block)
            pool.add(after)
        block.address, block.size, block.mapped = first, last - first, False
        block.merge(block.prev)
        block.merge(block.next)
        if block.is_split:
            pool.add(block)
        self.device.release(last - first)
        self.note(ReservationKind.UNMAP, first, last - first, block.stream)

    def release_segment(self, block: Block) -> None:
        """Release a segment that is one free block."""
        block.pool.remove(block)
        self.device.release(block.size)
        self.note(ReservationKind.FREE, block.address, block.size, block.stream)

    def empty_cache(self) -> None:
        """Release every free segment of the default pool, and whole free pages of expandable ones."""
        # private pools keep theirs until the graph or pool that owns them is released
        small, large = self.pools[0]
        for pool in (large, small):
            free = list(pool.blocks())
            for block in free:
                if block.range is None and not block.is_split:
                    self.release_segment(block)
            for block in free:
                if block.range is not None:
                    self.shrink(block)

    def release_oversize(self, pool: Pool, stream: int, size: int) -> bool:
        """With max_split_size: release one block that is large enough, else the largest ones until they add up."""
        limit = self.settings.max_split_size
        if limit == UNLIMITED:
            return False
        needed = max(size, limit)
        free = pool.free[stream]
        index = bisect_left(free, (needed,))
        if index < len(free) and free[index][3].range is None:
            self.release_segment(free[index][3])
            return True
        released = 0
        while index > 0 and released < needed and free[index - 1][0] >= limit:
            index -= 1
            block = free[index][3]
            if block.range is None:
                released += block.size
                self.release_segment(block)
        return released >= needed

    def collect_garbage(self) -> None:
        """With garbage_collection_threshold: release the free segments that were unused for longest."""
        assert self.allowed is not None  # nosec B101  # for the type checker
        target = self.reserved - int(self.settings.garbage_collection_threshold * self.allowed)
        if target <= 0:
            return
        large = self.pools[0][1]
        blocks = [(block, large.lookups - block.freed_at) for block in large.blocks() if not block.is_split]
        total, count, reclaimed, freed = sum(age for _, age in blocks), len(blocks), 0, True
        while reclaimed < target and freed and count:
            mean, freed, remaining = total / count, False, []
            for block, age in blocks:
                if block.range is not None or age < mean:
                    remaining.append((block, age))
                    continue
                freed = True
                reclaimed, total, count = reclaimed + block.size, total - age, count - 1
                self.release_segment(block)
            blocks = remaining
