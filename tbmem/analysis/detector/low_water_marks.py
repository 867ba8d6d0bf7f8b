"""Low-water marks of a series: the minima of blocks of 4, 8, 16 ... evaluated steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tbmem.analysis.growth_rate import Point, Splice

BLOCK = 4
"""Judged steps of the finest block."""
MARKS_PER_SCALE = 24
SCALES = 10
"""Blocks are 4 to 2048 steps long; memory is bounded by MARKS_PER_SCALE * SCALES marks."""
_SAME = 4 << 10  # bytes by which levels of a block may differ that count as its lowest: small objects come and go
_LIFTS = 64  # blocks whose height above their low-water mark is remembered


class LowWaterMark(NamedTuple):
    """The minimum of one block of steps, in bytes."""

    level: float
    step: int  # first step of the block: where memory climbs, that is where its lowest level is
    tick: int  # evaluated steps until its end
    blocks: int | None = None  # live allocations, where they are counted
    work: int | None = None
    """Distance of the peak from the level: what the steps themselves need. ``None`` where peaks are unknown."""
    left_out: int = 0  # steps before it that were not judged
    until: int = 0  # the last step of the block at about that level

    @property
    def point(self) -> Point:
        """The mark for a growth rate, in which only evaluated steps count."""
        return Point(self.step - self.left_out, self.level)


class LowWaterMarks:
    """The low-water marks of a series at dyadic scales, online and in constant memory.

    What is free again at the end of a block does not lift its mark, so sawtooths, spikes and validation
    passes do not show here, whatever their period; memory that is kept lifts every mark after it.
    """

    def __init__(self) -> None:
        self._scales: list[deque[LowWaterMark]] = [deque(maxlen=MARKS_PER_SCALE) for _ in range(SCALES)]
        self._count = 0
        self._first: LowWaterMark | None = None

    def add(self, mark: LowWaterMark) -> int:
        """Add the mark of a finest block and return the coarsest scale at which it completed a block."""
        count = self._count + 1
        self._first = self._first or mark
        self._scales[0].append(mark)
        # each second block completes one of the next scale
        completed = min((count & -count).bit_length(), SCALES)
        for finer, coarser in pairwise(self._scales[:completed]):
            coarser.append(_merge(finer[-2], finer[-1]))
        # last: where an exception of the program's comes before it, a scale has a mark too many, but never one too few
        self._count = count
        return completed - 1

    def at(self, scale: int) -> list[LowWaterMark]:
        """The last marks of blocks of ``BLOCK * 2**scale`` steps, oldest first."""
        return list(self._scales[scale])

    def before(self, mark: LowWaterMark) -> LowWaterMark | None:
        """The mark before another one, as finely as it is remembered; ``None`` for the first."""
        known = ([each for each in marks if each.step < mark.step] for marks in self._scales)
        return next((marks[-1] for marks in known if marks), None)

    def level_at(self, step: int) -> float | None:
        """The mark at a step in the past, as finely as it is remembered, in bytes; before the first one, that."""
        for marks in self._scales:
            if marks and marks[0].step <= step:
                return next(mark for mark in reversed(marks) if mark.step <= step).level
        return None if self._first is None else self._first.level


def _merge(first: LowWaterMark, second: LowWaterMark) -> LowWaterMark:
    """The mark of two consecutive blocks."""
    blocks = None if first.blocks is None or second.blocks is None else min(first.blocks, second.blocks)
    work = None if first.work is None or second.work is None else min(first.work, second.work)
    until = second.until if second.level <= first.level + _SAME else first.until
    return LowWaterMark(min(first.level, second.level), first.step, second.tick, blocks, work, first.left_out, until)


def levels(marks: Sequence[LowWaterMark]) -> list[float]:
    """The levels of marks."""
    return [mark.level for mark in marks]


def since_last_fall(marks: Sequence[LowWaterMark]) -> Sequence[LowWaterMark]:
    """The marks from the last one on that was lower than the one before."""
    falls = (at for at in range(len(marks) - 1, 0, -1) if marks[at].level < marks[at - 1].level)
    return marks[next(falls, 0) :]


class StepBlock:
    """Gathers readings into the finest blocks.

    A block is complete when its steps have passed and at least one of them was read: counters are rationed where
    reading is expensive, and under gradient accumulation only the optimizer's steps are read.
    """

    def __init__(self, steps: int = BLOCK, splice: Splice | None = None) -> None:
        self.steps = steps
        self.ticks = 0  # evaluated steps so far
        self.splice = splice or Splice()
        """What unevaluated steps have added to levels and step numbers; taken out of the marks."""
        self.lifts: deque[float] = deque(maxlen=_LIFTS)
        """How far each of the last blocks reached above its mark, in bytes."""
        self._last = math.nan  # the level of the block before
        self._passed = self._first = self._until = self._read = 0
        self._unread = self._unread_before = 0  # steps since the last reading, and before the open block's first
        self._low: float | None = None
        self._bottom = self._top = 0.0
        self._blocks: int | None = None

    @property
    def room(self) -> int:
        """Steps until the open block is complete, at least one."""
        return max(self.steps - self._passed, 1)

    def add(
        self, steps: Sequence[int], levels: Sequence[float], tops: Sequence[float], blocks: Sequence[int] | None
    ) -> LowWaterMark | None:
        """Add steps that were all read, no more than there is ``room`` for; returns the block's mark once complete.

        Levels are corrected, ``tops`` are how high each step reached, in bytes.
        """
        low, top = min(levels), max(tops)
        bottom = low if tops is levels else min(tops)
        if self._low is None:
            self._first, self._low, self._bottom, self._top = steps[0], low, bottom, top
            self._unread_before = self._unread
        else:
            self._low = low if low < self._low else self._low
            self._bottom = bottom if bottom < self._bottom else self._bottom
            self._top = top if top > self._top else self._top
        lowest = [step for step, level in zip(steps, levels, strict=True) if level <= self._low + _SAME]
        self._until = lowest[-1] if lowest else self._until
        if blocks is not None:
            count = min(blocks)
            self._blocks = count if self._blocks is None else min(self._blocks, count)
        self._unread = 0
        self.ticks += len(levels)
        self._passed += len(levels)
        self._read += len(levels)
        return self._close(self._low) if self._passed >= self.steps else None

    def skip(self) -> LowWaterMark | None:
        """Note a step that was not read."""
        self.ticks += 1
        self._unread += 1
        if self._low is None:
            return None
        self._passed += 1
        return self._close(self._low) if self._passed >= self.steps else None

    def interrupt(self) -> None:
        """Steps that are not judged follow: what they leave behind is no growth."""
        self.splice.interrupt()
        self._clear()

    def _close(self, low: float) -> LowWaterMark:
        level, work = self.splice.join(self._first, low, self._unread_before).level, round(self._bottom - low)
        mark = LowWaterMark(level, self._first, self.ticks, self._blocks, work, self.splice.steps, self._until)
        # one reading has no spread of its own: where counters are rationed, two blocks show what levels differ by
        is_single = self._read == 1 and self.steps > 1 and not math.isnan(self._last)
        self.lifts.append(max(self._top - low, abs(level - self._last) if is_single else 0.0))
        self._last = level
        self._clear()
        return mark

    def _clear(self) -> None:
        self._passed = self._read = 0
        self._low = self._blocks = None


class MarkedSeries:
    """The low-water marks of a series that is not judged by itself."""

    def __init__(self) -> None:
        self._marks = LowWaterMarks()
        self._block = StepBlock(BLOCK)
        self.last_step = 0
        """Step of the last mark: the series may be read now and then only."""

    def extend(self, steps: Sequence[int], values: Sequence[int]) -> None:
        """Add steps that were all read, in bytes."""
        start, stop = 0, self._block.room
        while start < len(values):
            part = values[start:stop]
            mark = self._block.add(steps[start:stop], part, part, None)
            if mark is not None:
                self._marks.add(mark)
                self.last_step = mark.step
            start, stop = stop, stop + BLOCK

    def growth(self, first_step: int, last_step: int) -> float:
        """By how much the marks rose between two steps, in bytes; 0 where they are not remembered."""
        before, after = self.level_at(first_step), self.level_at(last_step)
        return 0.0 if before is None or after is None else after - before

    def level_at(self, step: int) -> float | None:
        """The mark at a step in the past, as finely as it is remembered, in bytes; ``None`` without any."""
        return self._marks.level_at(step)
