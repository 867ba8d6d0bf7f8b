"""Levels after steps go in; the minima of blocks of 4, 8, 16 ... steps (its floors) come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tbmem.analysis.detector.bounded_list import BoundedList
from tbmem.analysis.growth_rate import Point

BLOCK = 4
"""Judged steps of the finest block."""
MARKS_PER_SCALE = 24
"""Floors kept at each scale."""
SCALES = 10
"""Blocks are 4 to 2048 steps long; memory is bounded by KEPT * SCALES floors."""


class LowWaterMark(NamedTuple):
    """What was lowest in one block of steps."""

    level: float
    """Bytes."""
    step: int
    """First step of the block: where memory climbs, that is where its lowest level is."""
    tick: int
    """Judged steps until its end."""
    blocks: int | None = None
    """Live allocations, where they are counted."""
    work: int | None = None
    """Distance of the peak from the level: what the steps themselves need. Bytes; ``None`` where peaks are unknown."""
    left_out: int = 0
    """Steps before it that were not judged."""

    @property
    def point(self) -> Point:
        """The floor for a growth rate, in which only judged steps count."""
        return Point(self.step - self.left_out, self.level)


class LowWaterMarks:
    """The low-water marks of a series at dyadic scales, online and in constant memory.

    What is free again at the end of a block does not lift its floor, so sawtooths, spikes and validation
    passes leave no mark here, whatever their period; memory that is kept lifts every floor after it.
    """

    def __init__(self) -> None:
        self._scales: list[BoundedList[LowWaterMark]] = [BoundedList(MARKS_PER_SCALE) for _ in range(SCALES)]
        self._count = 0

    def add(self, mark: LowWaterMark) -> int:
        """Take in the floor of one finest block.

        Returns:
            The coarsest scale at which it completed a block.
        """
        self._count += 1
        scales = self._scales
        scales[0].append(mark)
        scale, count = 0, self._count
        while not count & 1 and scale + 1 < SCALES:
            finer = scales[scale]
            scale += 1
            count >>= 1
            scales[scale].append(_lower(finer[-2], finer[-1]))
        return scale

    def at(self, scale: int) -> BoundedList[LowWaterMark]:
        """The last floors of blocks of ``BLOCK * 2**scale`` steps, oldest first."""
        return self._scales[scale]

    def last(self, scale: int, count: int) -> list[LowWaterMark]:
        """The last ``count`` floors of a scale, or all if there are fewer."""
        marks = self._scales[scale]
        return list(marks)[-count:]


def _lower(one: LowWaterMark, other: LowWaterMark) -> LowWaterMark:
    """The floor of two blocks that follow each other."""
    return LowWaterMark(
        min(one.level, other.level),
        one.step,
        other.tick,
        _least(one.blocks, other.blocks),
        _least(one.work, other.work),
        one.left_out,
    )


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return None
    return min(one, other)


def levels(marks: Sequence[LowWaterMark]) -> list[float]:
    """The levels alone."""
    return [mark.level for mark in marks]
