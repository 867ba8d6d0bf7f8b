"""Floors go in; how long memory has taken to come and go, and how high it rose, come out."""

from __future__ import annotations

import math

from tbmem.analysis.detector.bounded_list import BoundedList

FALLEN_BACK = 0.5
"""Share of a rise that must be free again for it to have been a cycle."""
_LEAP = 0.6
"""Largest single rise, as a share of the whole: above it memory went up at once, as in a validation pass."""
_MARGIN = 0.25
"""Share of its height by which the next cycle may be higher."""
_KEPT = 8


class Cycles:
    """Remembers rises that fell back: epochs, collections, caches that are emptied.

    Args:
        least: Smallest height of a cycle in bytes.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._lowest = math.inf
        self._highest = -math.inf
        self._began = 0
        self._leap = 0.0
        self._lengths: BoundedList[int] = BoundedList(_KEPT)
        self._ceilings: BoundedList[float] = BoundedList(_KEPT)
        self.count = 0
        """Cycles seen so far."""

    def add(self, tick: int, level: float) -> bool:
        """Take in a floor.

        Args:
            tick: Judged steps so far.
            level: The floor in bytes.

        Returns:
            Whether a cycle has just ended.
        """
        rise = self._highest - self._lowest
        if rise >= self._least and self._highest - level > FALLEN_BACK * rise:
            gradual = self._leap <= _LEAP * rise
            if gradual:
                self._lengths.append(tick - self._began)
                self._ceilings.append(self._highest + _MARGIN * rise)
                self.count += 1
            self._begin(tick, level)
            return gradual
        if level < self._lowest:
            self._begin(tick, level)
        elif level > self._highest:
            self._leap = max(self._leap, level - self._highest)
            self._highest = level
        return False

    def _begin(self, tick: int, level: float) -> None:
        self._lowest = self._highest = level
        self._began = tick
        self._leap = 0.0

    @property
    def length(self) -> int:
        """Judged steps of the longest cycle remembered, 0 if there was none."""
        return max(self._lengths, default=0)

    @property
    def ceiling(self) -> float:
        """How high a cycle like those remembered may rise, in bytes."""
        return max(self._ceilings, default=-math.inf)
