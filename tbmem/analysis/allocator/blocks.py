"""Blocks of segments, and pools of free blocks in the allocator's search order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Range:
    """Address space of an expandable segment, in bytes."""

    address: int
    size: int
    page: int


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment, in use or free."""

    pool: Pool
    stream: int
    address: int
    size: int
    age: int
    """Number of its segment in order of creation; breaks ties between blocks of one size."""
    range: Range | None = None
    """Its expandable segment, if any."""
    requested: int = 0
    allocated: bool = False
    busy: bool = False
    """In use, possibly only by another stream."""
    mapped: bool = True
    """Whether there is memory behind its addresses."""
    prev: Block | None = field(default=None, repr=False)
    next: Block | None = field(default=None, repr=False)
    freed_at: int = 0
    """Look-ups in its pool when it became free; its age for garbage collection."""

    @property
    def is_split(self) -> bool:
        """Whether it is a part of its segment."""
        return self.prev is not None or self.next is not None

    def insert_before(self, other: Block) -> None:
        """Link as the left neighbour of a block."""
        _link(other.prev, self)
        _link(self, other)

    def insert_after(self, other: Block) -> None:
        """Link as the right neighbour of a block."""
        _link(self, other.next)
        _link(other, self)

    def merge(self, neighbour: Block | None) -> None:
        """Take in a free neighbour of the same kind; this block is in no pool."""
        if neighbour is None or neighbour.busy or neighbour.mapped != self.mapped:
            return
        neighbour.pool.remove(neighbour)
        if self.prev is neighbour:
            self.address = neighbour.address
            _link(neighbour.prev, self)
        else:
            _link(self, neighbour.next)
        self.size += neighbour.size


def _link(left: Block | None, right: Block | None) -> None:
    """Make two blocks neighbours; ``None`` is the end of a segment."""
    if left is not None:
        left.next = right
    if right is not None:
        right.prev = left


class Pool:
    """Free blocks of one kind (small or large) of one memory pool, and address space without memory, by stream."""

    __slots__ = ("free", "id", "lookups", "small", "unmapped")

    def __init__(self, small: bool, id: int = 0) -> None:
        """An empty pool, for requests of up to 1 MiB or for larger ones; memory pool 0 is the default one."""
        self.small = small
        self.id = id
        self.lookups = 0
        self.free: defaultdict[int, list[tuple[int, int, int, Block]]] = defaultdict(list)
        self.unmapped: defaultdict[int, list[tuple[int, Block]]] = defaultdict(list)

    def add(self, block: Block) -> None:
        """Add a block that is free or has no memory mapped."""
        if block.mapped:
            block.freed_at = self.lookups
            insort(self.free[block.stream], (block.size, block.age, block.address, block))
        else:
            insort(self.unmapped[block.stream], (block.address, block))

    def remove(self, block: Block) -> None:
        """Remove a block."""
        if block.mapped:
            free = self.free[block.stream]
            del free[bisect_left(free, (block.size, block.age, block.address))]
        else:
            unmapped = self.unmapped[block.stream]
            del unmapped[bisect_left(unmapped, (block.address,))]

    def blocks(self) -> Iterator[Block]:
        """Free blocks by stream, size and address."""
        for stream in sorted(self.free):
            for entry in self.free[stream]:
                yield entry[3]
