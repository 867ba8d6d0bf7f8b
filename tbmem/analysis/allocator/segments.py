"""Segments: how expandable ones grow and shrink, and how cached memory is returned to the device."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from tbmem.analysis.allocator.blocks import Block, Pool, Range, merge
from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.settings import UNLIMITED, AllocatorSettings
from tbmem.analysis.allocator.sizes import SMALL_SEGMENT
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import round_up

Free = list[tuple[int, int, int, Block]]


class AllocatorState(Protocol):
    """The part of the allocator that segments are taken from and given back to."""

    settings: AllocatorSettings
    device: SimpleDevice
    pools: dict[int, tuple[Pool, Pool]]
    reserved: int
    allowed: int | None

    def note(self, change: ReservationKind, address: int, size: int, stream: int) -> None:
        """Record a change of a segment and its effect on the reserved bytes."""

    def next_age(self) -> int:
        """Number of a new segment."""


def choose_expandable(free: Free, index: int, expandable: bool) -> int | None:
    """Best fit if the first block that is large enough (``index``) lies in an expandable segment.

    Args:
        free: Free blocks of the pool and stream.
        index: The first block that is large enough.
        expandable: Whether expandable segments are on; the segment may be older than the setting.

    Returns:
        Index of the block; ``None`` if a new segment is needed.
    """
    if not expandable:
        index += 1
        while index < len(free) and free[index][3].range is not None:
            index += 1
        return index if index < len(free) else None
    # a block counts with the unmapped space behind it, so that blocks that cannot grow are used first
    while (
        free[index][3].range is not None and index + 1 < len(free) and _room(free[index + 1][3]) < _room(free[index][3])
    ):
        index += 1
    return index


def grow(allocator: AllocatorState, pool: Pool, stream: int, size: int) -> Block | None:
    """Map memory until there is a free block of a size.

    Returns:
        The block, in no pool; ``None`` if the device is full. Pages that were mapped until then stay mapped.
    """
    block = _candidate(allocator, pool, stream, size)
    if not block.mapped and not _map(allocator, block, min(block.size, size)):
        return None
    while block.size < size:
        following = block.next
        assert following is not None
        if not _map(allocator, following, min(size - block.size, following.size)):
            return None
        block = following
    pool.remove(block)
    return block


def shrink(allocator: AllocatorState, block: Block) -> None:
    """Unmap the whole pages within a free block."""
    range = block.range
    assert range is not None
    first = -((range.address - block.address) // range.page) * range.page + range.address
    last = (block.address + block.size - range.address) // range.page * range.page + range.address
    if first >= last:
        return
    block.pool.remove(block)
    _cut(block, first, last)
    block.address, block.size, block.mapped = first, last - first, False
    merge(block, block.prev)
    merge(block, block.next)
    if block.is_split:
        block.pool.add_unmapped(block)
    allocator.device.release(first, last - first)
    allocator.note(ReservationKind.UNMAP, first, last - first, block.stream)


def _cut(block: Block, first: int, last: int) -> None:
    """Split off the parts of a block before and after its whole pages."""
    pool, end = block.pool, block.address + block.size
    if first > block.address:
        before = Block(pool, block.stream, block.address, first - block.address, block.age, block.range)
        before.insert_before(block)
        pool.add(before)
    if end > last:
        after = Block(pool, block.stream, last, end - last, block.age, block.range)
        after.insert_after(block)
        pool.add(after)


def _candidate(allocator: AllocatorState, pool: Pool, stream: int, size: int) -> Block:
    """First block at the lowest address from which adjacent free and unmapped blocks have room; else a new segment."""
    for _, unmapped in pool.unmapped[stream]:
        block = unmapped
        if block.prev is not None and not block.prev.busy:
            block = block.prev
        if _has_room(block, size):
            return block
    return _new_range(allocator, pool, stream)


def _new_range(allocator: AllocatorState, pool: Pool, stream: int) -> Block:
    page = SMALL_SEGMENT if pool.small else allocator.settings.large_segment_size
    total = allocator.device.total
    # torch reserves 1 1/8 of the device, so that pages can be mapped at the end
    size = round_up(total + total // 8, page)
    range = Range(allocator.device.reserve(size), size, page)
    block = Block(pool, stream, range.address, size, allocator.next_age(), range)
    block.mapped = False
    pool.add_unmapped(block)
    return block


def _has_room(block: Block | None, size: int) -> bool:
    room = 0
    while room < size and block is not None and not block.busy:
        room += block.size
        block = block.next
    return room >= size


def _map(allocator: AllocatorState, block: Block, size: int) -> bool:
    """Map pages to the first bytes of an unmapped block, which becomes a free one."""
    assert block.range is not None
    page = block.range.page
    mapped = round_up(size, page)
    if not allocator.device.map(block.address, mapped):
        return False
    address, pool = block.address, block.pool
    pool.remove_unmapped(block)
    block.mapped = True
    if mapped < block.size:
        rest = Block(pool, block.stream, address + mapped, block.size - mapped, block.age, block.range)
        rest.mapped = False
        rest.insert_after(block)
        pool.add_unmapped(rest)
        block.size = mapped
    merge(block, block.prev)
    merge(block, block.next)
    pool.add(block)
    allocator.note(ReservationKind.MAP, address, mapped, block.stream)
    return True


def _room(block: Block) -> int:
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)


def release_cached(allocator: AllocatorState) -> None:
    """Release every free segment of the default pool, and whole free pages of expandable ones.

    Private pools keep theirs until the graph or pool that owns them is released.
    """
    small, large = allocator.pools[0]
    for pool in (large, small):
        free = list(pool.blocks())
        for block in free:
            if block.range is None and not block.is_split:
                release_segment(allocator, block)
        for block in free:
            if block.range is not None:
                shrink(allocator, block)


def release_oversize(allocator: AllocatorState, pool: Pool, stream: int, size: int) -> bool:
    """With max_split_size: release one block that is large enough, else the largest ones until they add up.

    Returns:
        Whether enough was released for the request.
    """
    limit = allocator.settings.max_split_size
    if limit == UNLIMITED:
        return False
    needed = max(size, limit)
    free = pool.free[stream]
    index = bisect_left(free, (needed,))
    if index < len(free) and free[index][3].range is None:
        release_segment(allocator, free[index][3])
        return True
    released = 0
    while index > 0 and released < needed and free[index - 1][0] >= limit:
        index -= 1
        block = free[index][3]
        if block.range is None:
            released += block.size
            release_segment(allocator, block)
    return released >= needed


def collect_garbage(allocator: AllocatorState) -> None:
    """With garbage_collection_threshold: release the free segments that were unused for longest."""
    assert allocator.allowed is not None
    threshold = int(allocator.settings.garbage_collection_threshold * allocator.allowed)
    target = allocator.reserved - threshold
    if target <= 0:
        return
    large = allocator.pools[0][1]
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
            release_segment(allocator, block)
        blocks = remaining


def release_segment(allocator: AllocatorState, block: Block) -> None:
    """Release a segment that is one free block."""
    block.pool.remove(block)
    allocator.device.release(block.address, block.size)
    allocator.note(ReservationKind.FREE, block.address, block.size, block.stream)
