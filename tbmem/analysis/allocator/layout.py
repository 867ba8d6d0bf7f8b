"""Segments with the blocks that are in use go in, an allocator that holds them comes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tbmem.analysis.allocator.blocks import Block, Pool, Range
from tbmem.analysis.allocator.simulator import CachingAllocator
from tbmem.analysis.allocator.sizes import SMALL_SEGMENT
from tbmem.units import round_up


@dataclass(frozen=True)
class LiveBlock:
    """A block in use; address and sizes in bytes."""

    address: int
    size: int
    requested: int
    allocated: bool = True
    """False: freed, but another stream may still use it."""


@dataclass(frozen=True)
class Segment:
    """Memory that the allocator got from the device, in one piece."""

    address: int
    size: int
    stream: int
    small: bool
    pool: int = 0
    expandable: bool = False
    blocks: tuple[LiveBlock, ...] = ()
    """In use, by address; what lies between them is free."""


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


def reserved_bytes(segments: Sequence[Segment]) -> int:
    """Bytes of all segments."""
    return sum(segment.size for segment in segments)


Group = tuple[int, int, bool]
Blocks = dict[int, Block]


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
            pool.add_unmapped(hole)
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
        allocator.requested += entry.requested
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


def segments_now(allocator: CachingAllocator, live: Iterable[Block]) -> list[Segment]:
    """What an allocator holds, as a snapshot shows it: the opposite of :func:`seed`.

    Args:
        allocator: The allocator.
        live: Its blocks in use.
    """
    heads: dict[int, Block] = {}
    pools = [pool for pair in allocator.pools.values() for pool in pair]
    for block in (*live, *(block for pool in pools for block in pool.blocks())):
        head = block
        while head.prev is not None and head.prev.mapped:
            head = head.prev
        heads[head.address] = head
    return [_segment(heads[address]) for address in sorted(heads)]


def _segment(head: Block) -> Segment:
    """Mapped neighbours from a block on."""
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
