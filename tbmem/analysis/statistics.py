"""Finds the outlier among figures of ranks or recordings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

_PERCENT = 2.0
"""Minimum deviation from the median, of the median."""
_SPREADS = 4.0
"""Minimum deviation as a multiple of the others' median deviation."""
_MIN_VALUES = 3


def outlier(values: Sequence[int]) -> int | None:
    """Index of the value farthest from the median, if it is an outlier; fewer than three have none."""
    if len(values) < _MIN_VALUES:
        return None
    middle = median(values)
    deviation = [abs(value - middle) for value in values]
    index = max(range(len(values)), key=deviation.__getitem__)
    others = median([value for number, value in enumerate(deviation) if number != index])
    is_outlier = 100 * deviation[index] > _PERCENT * middle and deviation[index] > _SPREADS * others
    return index if is_outlier else None
