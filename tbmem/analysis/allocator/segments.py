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
    """Best fit where the first block that is large enough (``index``) lies in an expandable segment.

    The segment may be one of before expandable segments were switched off. ``None`` where a new segment is needed.
    """
    if not expandable:
        index += 1
        while index < len(free) and free[index][3].range is not None:
            index += 1
        return index if index < len(free) else None
    # a block that can grow counts as large as it can become: what cannot grow is used up first
    while (
        free[index][3].range is not None and index + 1 < len(free) and _room(free[index + 1][3]) < _room(free[index][3])
    ):
        index += 1
    return index


def grow(allocator: AllocatorState, pool: Pool, stream: int, size: int) -> Block | None:
    """A free block of at least so many bytes, made by putting memory behind address space.

    Returns:
        The block, in no pool; ``None`` where the device is full. What was mapped until then stays.
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
    """Give whole pages within a free block back."""
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
    """Leave what lies before and after whole pages as free blocks of their own."""
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
    """Free and unmapped blocks side by side with room for the size, at the lowest address; else a new segment."""
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
    # torch takes an eighth more than the device has, so that pages can move to the end
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
    """Put pages behind the first bytes of an unmapped block, which becomes a free one."""
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
    """Give back every whole free segment of the default pool, and whole free pages of expandable ones.

    Private pools keep theirs: they are released with the graph or pool that owns them.
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
    """With max_split_size: give back one block that is large enough, else the largest until they add up.

    Returns:
        Whether that frees enough for the request.
    """
    limit = allocator.settings.max_split_size
    if limit == UNLIMITED:
        return False
    wanted = max(size, limit)
    free = pool.free[stream]
    index = bisect_left(free, (wanted,))
    if index < len(free) and free[index][3].range is None:
        release_segment(allocator, free[index][3])
        return True
    released = 0
    while index > 0 and released < wanted and free[index - 1][0] >= limit:
        index -= 1
        block = free[index][3]
        if block.range is None:
            released += block.size
            release_segment(allocator, block)
    return released >= wanted


def collect_garbage(allocator: AllocatorState) -> None:
    """With garbage_collection_threshold: give back the free segments that were not used for longest."""
    assert allocator.allowed is not None
    threshold = int(allocator.settings.garbage_collection_threshold * allocator.allowed)
    target = allocator.reserved - threshold
    if target <= 0:
        return
    large = allocator.pools[0][1]
    whole = [block for block in large.blocks() if not block.is_split]
    ages = [large.lookups - block.parked_at for block in whole]
    total, count, reclaimed, freed = sum(ages), len(whole), 0, True
    while reclaimed < target and freed and count:
        mean, freed, kept = total / count, False, []
        for block, age in zip(whole, ages, strict=True):
            if block.range is not None or age < mean:
                kept.append((block, age))
                continue
            freed = True
            reclaimed, total, count = reclaimed + block.size, total - age, count - 1
            release_segment(allocator, block)
        whole, ages = [block for block, _ in kept], [age for _, age in kept]


def release_segment(allocator: AllocatorState, block: Block) -> None:
    """Give back a segment that is one free block."""
    block.pool.remove(block)
    allocator.device.release(block.address, block.size)
    allocator.note(ReservationKind.FREE, block.address, block.size, block.stream)
