"""Figures of siblings go in; the one that stands out, if one does, comes out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

_PERCENT = 2.0
"""Of the middle: as far as it must lie from it."""
_SPREADS = 4.0
"""Times as far as the others' middle distance."""
_FEWEST = 3


def outlier(values: Sequence[int]) -> int | None:
    """Place of the value that lies farthest from the middle, if it stands out.

    Args:
        values: Of ranks or recordings; fewer than three have no odd one.
    """
    if len(values) < _FEWEST:
        return None
    middle = median(values)
    distance = [abs(value - middle) for value in values]
    at = max(range(len(values)), key=distance.__getitem__)
    others = median([value for number, value in enumerate(distance) if number != at])
    stands_out = 100 * distance[at] > _PERCENT * middle and distance[at] > _SPREADS * others
    return at if stands_out else None
