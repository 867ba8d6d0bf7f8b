"""The level after each repetition of the same work goes in; whether it keeps memory each time comes out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tbmem.analysis.detector.limits import ENOUGH_STEPS
from tbmem.analysis.growth_rate import Point, growth_rate

_SETTLING = 0.25
"""Share of the repetitions in which caches fill; not judged."""
_HALF = 0.2
"""Smallest part of the growth that each half must have: below it memory has changed its level once."""


def growth_per_repetition(levels: Sequence[int]) -> float | None:
    """What each repetition keeps.

    Args:
        levels: Bytes after each repetition.

    Returns:
        Bytes per repetition; 0 where the level does not rise throughout; ``None`` for fewer than ``ENOUGH_STEPS``.
    """
    if len(levels) < ENOUGH_STEPS:
        return None
    judged = levels[max(int(len(levels) * _SETTLING), 1) :]
    third = max(len(judged) // 3, 1)
    low, middle, high = (median(part) for part in (judged[:third], judged[third:-third], judged[-third:]))
    growth = high - low
    if growth <= 0 or min(middle - low, high - middle) < _HALF * growth:
        return 0.0
    return max(growth_rate([Point(number, level) for number, level in enumerate(judged)]) or 0.0, 0.0)
