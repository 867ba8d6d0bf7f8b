"""Requests for whole segments go in, addresses come out until the device is full: cudaMalloc to the allocator."""

from __future__ import annotations

from typing import Protocol

from tbmem.units import MIB, TIB, round_up

UNKNOWN_CAPACITY = 1 * TIB
"""Bytes of a device whose size is not given: more than any has."""
GRANULARITY = 2 * MIB
"""The driver hands out physical memory in pages of this size."""
_FIRST_ADDRESS = 0x7F0000000000


class Device(Protocol):
    """Who gives segments to the allocator."""

    total: int
    """Bytes of the device, used or not."""

    def allocate(self, size: int) -> int | None:
        """Address of a new segment, ``None`` where so many bytes are not free."""

    def release(self, address: int, size: int) -> None:
        """Take a segment back."""

    def reserve(self, size: int) -> int:
        """Address space without memory behind it; there is always enough."""

    def map(self, address: int, size: int) -> bool:
        """Put memory behind address space; whether so many bytes were free."""

    def unmap(self, address: int, size: int) -> None:
        """Take that memory back."""


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
        """Take a segment back; its address is not used again."""
        del address
        self.used -= _pages(size)

    def reserve(self, size: int) -> int:
        """Address space without memory behind it."""
        address = self._next
        self._next += _pages(size)
        return address

    def map(self, address: int, size: int) -> bool:
        """Put memory behind address space; whether so many bytes were free."""
        del address
        return self._take(size)

    def unmap(self, address: int, size: int) -> None:
        """Take that memory back."""
        self.release(address, size)

    def _take(self, size: int) -> bool:
        if self.used + _pages(size) > self.total:
            return False
        self.used += _pages(size)
        return True


def _pages(size: int) -> int:
    return round_up(size, GRANULARITY)
