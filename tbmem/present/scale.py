"""The largest of some bytes goes in; the binary unit for an axis comes out."""

from __future__ import annotations

from typing import NamedTuple

from tbmem.units import GIB, KIB, MIB, TIB


class Unit(NamedTuple):
    """A unit for a whole axis."""

    name: str
    """``'GiB'``."""
    bytes: int


_UNITS = (Unit("TiB", TIB), Unit("GiB", GIB), Unit("MiB", MIB), Unit("KiB", KIB))


def unit_for(largest: int | float) -> Unit:
    """The unit in which a number is at least 1.

    Args:
        largest: Bytes.
    """
    return next((unit for unit in _UNITS if abs(largest) >= unit.bytes), Unit("B", 1))
