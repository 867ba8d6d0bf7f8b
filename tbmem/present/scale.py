"""The largest of some bytes goes in; the binary unit for an axis comes out, and where its ticks lie."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import NamedTuple

from tbmem.units import GIB, KIB, MIB, TIB


class Unit(NamedTuple):
    """A unit for a whole axis."""

    name: str
    """``'GiB'``."""
    bytes: int


_UNITS = (Unit("TiB", TIB), Unit("GiB", GIB), Unit("MiB", MIB), Unit("KiB", KIB))
_STEPS = (1, 2, 2.5, 5, 10)


def unit_for(largest: int | float) -> Unit:
    """The unit in which a number is at least 1.

    Args:
        largest: Bytes.
    """
    return next((unit for unit in _UNITS if abs(largest) >= unit.bytes), Unit("B", 1))


def round_ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers from below ``low`` to above ``high``.

    Args:
        low: Smallest value.
        high: Largest value.
        about: How many ticks are wanted.
    """
    width = (high - low) or 1.0
    power = 10.0 ** floor(log10(width / about))
    step = next(factor * power for factor in _STEPS if width / (factor * power) <= about)
    return [number * step for number in range(floor(low / step), ceil(high / step) + 1)]
