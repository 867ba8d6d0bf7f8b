"""A series of levels goes in; the minima of blocks of 1, 2, 4 ... steps (its floors) come out."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

KEPT = 12
"""Floors kept at each scale."""
SCALES = 16
"""Blocks are 1 to 2**15 steps long; memory is bounded by KEPT * SCALES floors."""


class Floor(NamedTuple):
    """The lowest level of one block of steps."""

    level: int
    """Bytes."""
    step: int
    """Last step of the block."""


class Floors:
    """The low-water marks of a series at dyadic scales, online and in constant memory.

    What is free again at the end of a block does not lift its floor, so sawtooths, spikes and validation
    passes leave no mark here, whatever their period; memory that is kept lifts every floor after it.
    """

    def __init__(self) -> None:
        self._scales: list[deque[Floor]] = [deque(maxlen=KEPT) for _ in range(SCALES)]
        self._count = 0

    def add(self, step: int, level: int) -> int:
        """Take in one level.

        Args:
            step: The step that it belongs to.
            level: Bytes held when that step ended.

        Returns:
            The coarsest scale at which this level completed a block.
        """
        self._count += 1
        self._scales[0].append(Floor(level, step))
        scale, blocks = 0, self._count
        while blocks % 2 == 0 and scale + 1 < SCALES:
            finer = self._scales[scale]
            lower = min(finer[-1].level, finer[-2].level)
            scale += 1
            blocks //= 2
            self._scales[scale].append(Floor(lower, step))
        return scale

    def at(self, scale: int) -> deque[Floor]:
        """The last floors of blocks of ``2**scale`` steps, oldest first."""
        return self._scales[scale]
