"""How cached memory goes back to the device: by garbage collection, as an oversize block, or all that is free."""

from __future__ import annotations

from bisect import bisect_left

from tbmem.analysis.allocator.blocks import Block, Pool
from tbmem.analysis.allocator.device import Change, Holder
from tbmem.analysis.allocator.expandable import shrink
from tbmem.analysis.allocator.settings import UNLIMITED


def release_cached(allocator: Holder) -> None:
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


def release_oversize(allocator: Holder, pool: Pool, stream: int, size: int) -> bool:
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


def collect_garbage(allocator: Holder) -> None:
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


def release_segment(allocator: Holder, block: Block) -> None:
    """Give back a segment that is one free block."""
    block.pool.remove(block)
    allocator.device.release(block.address, block.size)
    allocator.note(Change.FREE, block.address, block.size, block.stream)
