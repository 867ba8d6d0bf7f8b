"""A device's counters go in; one DeviceReading, in the order of MemorySample, comes out."""

from __future__ import annotations

from typing import NamedTuple


class DeviceReading(NamedTuple):
    """A device's own counters, in ``MemorySample``'s order and with its meanings."""

    allocated: int | None = None
    reserved: int | None = None
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    active: int | None = None
    inactive_split: int | None = None
    live_blocks: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None


NOTHING = DeviceReading()
"""No counter was read."""
