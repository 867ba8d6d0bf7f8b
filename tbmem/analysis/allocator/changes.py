"""What the allocator decides about memory of the device: segments got and given back, pages mapped and unmapped."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tbmem.analysis.allocator.blocks import Pool
    from tbmem.analysis.allocator.device import Device
    from tbmem.analysis.allocator.settings import AllocatorSettings


class Change(IntEnum):
    """What happens to a segment."""

    ALLOC = 0
    FREE = 1
    MAP = 2
    UNMAP = 3


class SegmentChange(NamedTuple):
    """One decision; address and size in bytes."""

    change: Change
    address: int
    size: int
    stream: int


class Holder(Protocol):
    """What the rules for growing and giving back need of the allocator."""

    settings: AllocatorSettings
    device: Device
    pools: dict[int, tuple[Pool, Pool]]
    reserved: int
    allowed: int | None

    def note(self, change: Change, address: int, size: int, stream: int) -> None:
        """Note a change and what it does to the reserved bytes."""

    def next_age(self) -> int:
        """Number of a new segment."""
