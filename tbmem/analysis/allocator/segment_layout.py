"""Segments with the blocks in them that are in use, as a snapshot shows what an allocator holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator


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
