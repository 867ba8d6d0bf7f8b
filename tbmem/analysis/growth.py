"""The level after each step goes in; whether memory is kept from step to step comes out."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tbmem.analysis.floors import KEPT, Floor, Floors

STEEP_PERCENT = 5.0
"""Growth over ``KEPT`` single steps, in per cent of the level, that is not waited out."""
_RISES = 0.8
"""Share of the floors that must lie above the one before."""
_FALLS = 0.1
"""Largest sum of all falls, as a share of the growth."""
_JUMP = 0.4
"""Largest single rise, as a share of the growth: above it memory has changed its level once, not grown."""
_HALF = 0.25
"""Smallest growth in either half, as a share of the growth: below it a ramp has ended, or just begun."""
_LAST_QUARTER = 0.1
"""The same for the last quarter."""
_FALLEN_BACK = 0.5
"""Share of a reported growth that must be free again before it is taken back."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A stretch of steps in which the floor of the memory rose again and again."""

    first_step: int
    last_step: int
    base: int
    """Floor at the start in bytes."""
    level: int
    """Floor at the end in bytes."""
    block: int
    """Steps per block whose floors were compared."""

    @property
    def bytes(self) -> int:
        """Growth in bytes."""
        return self.level - self.base

    @property
    def bytes_per_step(self) -> float:
        """Mean growth in bytes per step."""
        return self.bytes / max(self.last_step - self.first_step, 1)


class Change(Enum):
    """What has become of the growth."""

    GREW = "grew"
    """It was found, or has gone on."""
    FELL = "fell"
    """Most of it is free again: it was a cycle, or a cache that was emptied."""
    ENDED = "ended"
    """It stays where it is, and has not gone on for as long as it lasted: a ramp, or a cache that is full."""


class GrowthTest:
    """Finds growth that does not end, step by step.

    Args:
        patience: Steps over which floors must have risen.
        min_growth: Smallest growth in bytes.
        min_growth_percent: Smallest growth in per cent of the level.
    """

    def __init__(self, *, patience: int, min_growth: int, min_growth_percent: float) -> None:
        self._floors = Floors()
        self._patience = patience
        self._finest = max(math.ceil(math.log2(patience / KEPT)), 0)
        self._min_growth = min_growth
        self._min_share = min_growth_percent / 100
        self._highest = 0
        self._cycle = 0
        self._ceiling = 0
        self.current: Growth | None = None
        """The growth that stands, from its first step on; ``None`` while memory is not growing."""

    def update(self, step: int, level: int) -> Change | None:
        """Take in the level after ``step``.

        Returns:
            What has changed about ``current``, usually nothing.
        """
        coarsest = self._floors.add(step, level)
        if self.current is not None:
            self._highest = max(self._highest, level)
            ending = self._ending(self.current, step, level)
            if ending is not None:
                return ending
        # blocks below the patience can only speak at single steps, when growth is steep
        for scale in range(coarsest, self._finest - 1, -1):
            if self._has_grown(scale, level):
                return Change.GREW
        return Change.GREW if self._finest and self._has_grown(0, level) else None

    def _has_grown(self, scale: int, level: int) -> bool:
        found = self._test(scale)
        if found is None or self._is_known_cycle(found):
            return False
        self._highest = max(self._highest, level)
        self.current = self._joined(found)
        return True

    def _ending(self, growth: Growth, step: int, level: int) -> Change | None:
        lasted = growth.last_step - growth.first_step
        if growth.level - level > _FALLEN_BACK * growth.bytes:
            self._cycle = max(self._cycle, step - growth.first_step)
            self._ceiling = max(self._ceiling, self._highest)
            self.current, self._highest = None, 0
            return Change.FELL
        if step - growth.last_step > max(self._patience, lasted):
            self.current, self._highest = None, 0
            return Change.ENDED
        return None

    def _is_known_cycle(self, found: Growth) -> bool:
        """Whether memory has risen so far before and come back: then only longer blocks, or new heights, count."""
        return found.block < self._cycle and found.level <= self._ceiling

    def _joined(self, found: Growth) -> Growth:
        """The same growth seen again begins where it was first seen."""
        known = self.current
        if known is None or found.base < known.base:
            return found
        last_step = found.last_step if found.level > known.level else known.last_step
        level = max(found.level, known.level)
        return Growth(known.first_step, last_step, known.base, level, found.block)

    def _test(self, scale: int) -> Growth | None:
        floors = self._floors.at(scale)
        if len(floors) < KEPT:
            return None
        base, level = floors[0].level, floors[-1].level
        growth = level - base
        if growth < self._min_growth or growth < self._min_share * base:
            return None
        block = 1 << scale
        if scale < self._finest and growth < STEEP_PERCENT / 100 * base:
            return None
        if not _is_staircase(floors, growth):
            return None
        return Growth(floors[0].step, floors[-1].step, base, level, block)


def _is_staircase(floors: deque[Floor], growth: int) -> bool:
    """Whether the floors climb throughout: no plateau, no single jump, no lasting fall."""
    levels = [floor.level for floor in floors]
    changes = [after - before for before, after in pairwise(levels)]
    middle = len(levels) // 2
    return (
        sum(change > 0 for change in changes) >= _RISES * len(changes)
        and -sum(change for change in changes if change < 0) <= _FALLS * growth
        and max(changes) <= _JUMP * growth
        and levels[middle - 1] - levels[0] >= _HALF * growth
        and levels[-1] - levels[middle] >= _HALF * growth
        and levels[-1] - levels[-1 - len(levels) // 4] >= _LAST_QUARTER * growth
    )
