"""What was read after each step goes in; the floor of every few judged steps comes out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.detector.bounded_list import BoundedList
from tbmem.analysis.detector.control_variate import ControlVariate
from tbmem.analysis.detector.floors import BLOCK, LowWaterMark
from tbmem.analysis.growth_rate import Splice

LIFTS = 64
"""Blocks whose height above their floor is remembered."""


class StepBlock:
    """Gathers readings into the finest blocks.

    A block is complete when its steps have passed and at least one of them was read: counters are rationed where
    reading is dear, and under gradient accumulation only the optimizer's steps are read.
    """

    def __init__(self, steps: int = BLOCK) -> None:
        self.steps = steps
        self.ticks = 0
        """Judged steps so far."""
        self.splice = Splice()
        """What unjudged stretches have added to levels and step numbers; taken out of the floors."""
        self.lifts: BoundedList[float] = BoundedList(LIFTS)
        """How far each of the last blocks reached above its floor, in bytes."""
        self._variate = ControlVariate()
        self._passed = 0
        self._first = 0
        self._low: float | None = None
        self._bottom = self._top = 0.0
        self._blocks: int | None = None

    @property
    def room(self) -> int:
        """Steps that the open block still takes."""
        return max(self.steps - self._passed, 1)

    def correct(self, values: Sequence[int], peaks: Sequence[int] | None) -> Sequence[float]:
        """The levels of steps without what the size of their batch explains.

        Args:
            values: Bytes held at their ends.
            peaks: Highest within each, where that is known exactly.
        """
        return values if peaks is None else self._variate.correct(values, peaks)

    def add(
        self, step: int, levels: Sequence[float], tops: Sequence[float], blocks: Sequence[int] | None
    ) -> LowWaterMark | None:
        """Take in steps that were all read, no more than there is ``room`` for.

        Args:
            step: Number of the first of them.
            levels: Corrected levels in bytes.
            tops: How high each reached, in bytes.
            blocks: Live allocations, where they are counted.

        Returns:
            The floor of the block, once it is complete.
        """
        low, top = min(levels), max(tops)
        bottom = low if tops is levels else min(tops)
        if self._low is None:
            self._first, self._low, self._bottom, self._top = step, low, bottom, top
        else:
            self._low = low if low < self._low else self._low
            self._bottom = bottom if bottom < self._bottom else self._bottom
            self._top = top if top > self._top else self._top
        if blocks is not None:
            count = min(blocks)
            self._blocks = count if self._blocks is None else min(self._blocks, count)
        self.ticks += len(levels)
        self._passed += len(levels)
        return self._close() if self._passed >= self.steps else None

    def skip(self) -> LowWaterMark | None:
        """Note a step that was not read."""
        self.ticks += 1
        if self._low is None:
            return None
        self._passed += 1
        return self._close() if self._passed >= self.steps else None

    def interrupt(self) -> None:
        """Steps follow that are not judged: what they leave behind is no growth."""
        self.splice.interrupt()
        self._clear()

    def _close(self) -> LowWaterMark:
        low = self._low
        assert low is not None
        level = self.splice.join(self._first, low).level
        work = round(self._bottom - low)
        mark = LowWaterMark(level, self._first, self.ticks, self._blocks, work, self.splice.steps)
        self.lifts.append(self._top - low)
        self._clear()
        return mark

    def _clear(self) -> None:
        self._passed = 0
        self._low = self._blocks = None
