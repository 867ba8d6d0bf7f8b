"""A simulated device: cudaMalloc, cuMemMap and the like."""

from __future__ import annotations

from tbmem.units import MIB, TIB, round_up

UNKNOWN_CAPACITY = 1 * TIB
"""Bytes of a device whose size is not given; more than any device has."""
_GRANULARITY = 2 * MIB
"""Bytes of the driver's pages of physical memory."""
_FIRST_ADDRESS = 0x7F0000000000


class SimpleDevice:
    """A device whose addresses are used in order, each once."""

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
