"""The device as the allocator sees it: cudaMalloc and its like, and the changes of segments that they make."""

from __future__ import annotations

from typing import NamedTuple

from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import MIB, TIB, round_up

UNKNOWN_CAPACITY = 1 * TIB
"""Bytes of a device whose size is not given: more than any has."""
_GRANULARITY = 2 * MIB
"""The driver hands out physical memory in pages of this size."""
_FIRST_ADDRESS = 0x7F0000000000


class SegmentChange(NamedTuple):
    """One decision of the allocator; address and size in bytes."""

    change: ReservationKind
    address: int
    size: int
    stream: int


class SimpleDevice:
    """A device with so many bytes, its addresses handed out in order."""

    def __init__(self, total: int = UNKNOWN_CAPACITY, outside: int = 0) -> None:
        """An empty device.

        Args:
            total: Bytes of the device.
            outside: Bytes that something else uses: the context, libraries, other processes.
        """
        self.total = total
        self.used = outside
        self._next = _FIRST_ADDRESS

    def allocate(self, size: int) -> int | None:
        """Address of a new segment, ``None`` where so many bytes are not free."""
        return self.reserve(size) if self._take(size) else None

    def release(self, address: int, size: int) -> None:
        """Take a segment, or the memory behind address space, back; its address is not used again."""
        del address
        self.used -= round_up(size, _GRANULARITY)

    def reserve(self, size: int) -> int:
        """Address space without memory behind it; there is always enough."""
        address = self._next
        self._next += round_up(size, _GRANULARITY)
        return address

    def map(self, address: int, size: int) -> bool:
        """Put memory behind address space; whether so many bytes were free."""
        del address
        return self._take(size)

    def _take(self, size: int) -> bool:
        used = self.used + round_up(size, _GRANULARITY)
        if used > self.total:
            return False
        self.used = used
        return True
