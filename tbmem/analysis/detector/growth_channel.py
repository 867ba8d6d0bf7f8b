"""Readings of one series of bytes go in; what has changed about its growth, with the rise at that moment, comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from tbmem.analysis.detector.bounded_list import BoundedList
from tbmem.analysis.detector.floors import BLOCK, SCALES, LowWaterMark
from tbmem.analysis.detector.forecast import Forecast, forecast
from tbmem.analysis.detector.growth_test import Change, GrowthTest
from tbmem.analysis.detector.low_water_marks import StepBlock
from tbmem.analysis.detector.trend import Trend
from tbmem.analysis.detector.trend_tests import rises_regularly
from tbmem.analysis.growth_rate import Point, growth_rate
from tbmem.model.evidence import Channel, Suspicion
from tbmem.model.sample import MemorySample

LONG_UNSTEPPED = 64
"""Samples without an optimizer step from which on every sample is judged: it is another kind of loop."""
_STEEP_PERCENT = 2.5
"""Rise from one block of four steps to the next, in per cent, that may be the end."""
_STEEP = ((4, 64), (3, 16))
"""So many such blocks are enough if memory will have run out in so many steps."""
_LEAST_PART = 0.1
"""A rise of the level counts as one if it is at least this part of the largest."""


_ENOUGH, _RISES = 28, 5
"""Readings, and regular rises among them, that are suspicious where none ever falls."""
_ENOUGH_FLOORS = 6
"""Floors that tell a rate better than finer ones that do not reach back to where the growth began."""
_RECENT = 48
"""Readings in which the distance of rises is looked for."""


class GrowthEvent(NamedTuple):
    """Something has changed about the growth of a channel."""

    step: int
    channel: Channel
    change: Change
    trend: Trend
    """As it was then."""
    rate: float
    """Its growth rate then, in bytes per step."""
    gap: int = 1
    """Steps between two rises of what is never given back."""
    forecast: Forecast | None = None


class GrowthChannel:
    """Watches one series for growth.

    Args:
        channel: Which one it is.
        test: What judges its floors.
        block: Steps of the finest blocks.
    """

    def __init__(self, channel: Channel, test: GrowthTest, block: int = BLOCK) -> None:
        self.channel = channel
        self.growth = test
        self.blocks = StepBlock(block)
        self.total: int | None = None
        """Bytes at which the series ends; ``None`` where that is not known."""
        self.available: int | None = None
        """What is left instead, for memory that is shared with others."""
        self._recent: BoundedList[float] = BoundedList(_RECENT)
        self._unstepped = 0

    def extend(
        self,
        steps: Sequence[int],
        values: Sequence[int],
        peaks: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
    ) -> list[GrowthEvent]:
        """Take in steps that were all read.

        Args:
            steps: Their numbers.
            values: Bytes held at their ends.
            peaks: Highest within each, where that is known exactly.
            blocks: Live allocations, where they are counted.

        Returns:
            What has changed about the growth.
        """
        events: list[GrowthEvent] = []
        levels = self.blocks.correct(values, peaks)
        tops = levels if peaks is None else peaks
        start, stop, count = 0, self.blocks.room, len(values)
        while start < count:
            if start or stop < count:
                part, number = levels[start:stop], blocks and blocks[start:stop]
                high = part if peaks is None else peaks[start:stop]
            else:
                part, number, high = levels, blocks, tops
            self._recent.extend(part)
            mark = self.blocks.add(steps[start], part, high, number)
            if mark is not None:
                events += self._judge(mark, steps[min(stop, count) - 1])
            start, stop = stop, stop + self.blocks.steps
        return events

    def extend_updated(
        self,
        updated: Sequence[bool | None],
        steps: Sequence[int],
        values: Sequence[int | None],
        peaks: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
    ) -> list[GrowthEvent]:
        """The same for steps of which some were not read (``None``).

        Of the others only those of the optimizer count, unless there are none for long.
        """
        if False not in updated and None not in values:
            self._unstepped = 0
            return self.extend(steps, values, peaks, blocks)  # type: ignore[arg-type] # none is None
        events: list[GrowthEvent] = []
        for at, (step, value) in enumerate(zip(steps, values, strict=True)):
            self._unstepped = self._unstepped + 1 if updated[at] is False else 0
            if value is None or 0 < self._unstepped < LONG_UNSTEPPED:
                events += self.skip(step)
            else:
                one = slice(at, at + 1)
                events += self.extend((step,), (value,), peaks and peaks[one], blocks and blocks[one])
        return events

    def skip(self, step: int) -> list[GrowthEvent]:
        """Note a step that was not read."""
        mark = self.blocks.skip()
        return [] if mark is None else list(self._judge(mark, step))

    def _judge(self, mark: LowWaterMark, step: int) -> Sequence[GrowthEvent]:
        growth = self.growth
        change = growth.add(mark)
        if change is None and growth.trend is None and self._rises():
            change = growth.suspect_last(_ENOUGH // self.blocks.steps)
        if change is None and self._is_steep(mark):
            change = growth.confirm_early()
        if change is None:
            return ()
        trend = growth.dropped if change in (Change.FELL, Change.ENDED) else growth.trend
        assert trend is not None
        certain = change is Change.CERTAIN
        return (
            GrowthEvent(
                step,
                self.channel,
                change,
                replace(trend),
                self.rate(trend),
                self._gap() if change is Change.SUSPECTED else 1,
                self.forecast(trend, step) if certain else None,
            ),
        )

    def _rises(self) -> bool:
        """Whether the readings themselves, which are exact, rise regularly without ever falling."""
        recent = self._recent
        if len(recent) < _ENOUGH or recent[-1] - recent[0] < self.growth.suspicious:
            return False
        kept = list(recent)[-_ENOUGH:]
        if any(after < before for before, after in pairwise(kept)):
            return False
        return rises_regularly(kept, self.growth.suspicious, _RISES)

    def interrupt(self) -> None:
        """Steps follow that are not judged: what they leave behind is no growth."""
        self.blocks.interrupt()
        self._recent.clear()

    def _is_steep(self, mark: LowWaterMark) -> bool:
        """Whether memory will have run out before anybody could be patient."""
        marks = self.growth.marks.at(0)
        if len(marks) < _STEEP[-1][0] or mark.level - marks[-2].level < _STEEP_PERCENT / 100 * marks[-2].level:
            return False
        left = (
            self.available
            if self.total is None
            else self.total - mark.level - self.blocks.splice.bytes - (mark.work or 0)
        )
        if left is None:
            return False
        for count, steps in _STEEP:
            known = [each.level for each in list(marks)[-count:]]
            rises = [after - before for before, after in pairwise(known)]
            if len(known) == count and min(rises) >= 0.5 * max(rises) and left < steps * min(rises) / BLOCK:
                return True
        return False

    def level_at(self, step: int) -> float | None:
        """The floor at a step in the past, as finely as it is remembered."""
        for scale in range(SCALES):
            marks = self.growth.marks.at(scale)
            if marks and marks[0].step <= step:
                return max(mark for mark in marks if mark.step <= step).level
        return None

    def suspicion(self, trend: Trend, sample: MemorySample, rate: float, gap: int = 1) -> Suspicion:
        """The rise as a suspicion of a sample's device.

        Args:
            trend: What grows.
            sample: One of the device.
            rate: Growth in bytes per step at that moment.
            gap: Steps between two rises.
        """
        level = round(trend.level + self.blocks.splice.bytes)
        first, last = trend.first.point, trend.last.point
        return Suspicion(
            device=sample.device,
            rank=sample.rank,
            channel=self.channel,
            first_step=trend.first_step,
            last_step=trend.last_step,
            base=level - round(trend.growth),
            level=level,
            bytes_per_step=rate,
            judged_steps=last.step - first.step,
            gap=gap,
            from_the_start=trend.first.tick <= 4 * self.blocks.steps,
        )

    def steps_of(self, trend: Trend) -> int:
        """Judged steps of the blocks in which a rise was found."""
        return self.blocks.steps << trend.scale

    def _gap(self) -> int:
        """Steps between two rises of what is never given back."""
        kept: list[float] = []
        for value in reversed(self._recent):
            kept.append(min(value, kept[-1]) if kept else value)
        rises = [later - earlier for later, earlier in pairwise(kept)]
        least = _LEAST_PART * max(rises, default=0)
        places = [at for at, trend in enumerate(rises) if trend > least]
        return max(round((places[-1] - places[0]) / (len(places) - 1)), 1) if len(places) > 1 else 1

    def forecast(self, trend: Trend, step: int) -> Forecast | None:
        """When the rise will have filled what is left.

        Args:
            trend: The growth that stands.
            step: The one from which to count.
        """
        splice = self.blocks.splice
        # within a block a rise reaches above its floor by itself
        lift = max(max(self.blocks.lifts, default=0.0) - (self.blocks.steps - 1) * self.rate(trend), 0.0)
        now = step - splice.steps
        if self.total is not None:
            return forecast(self._points(trend), capacity=self.total - splice.bytes, lift=lift, step=now)
        if self.available is not None:
            return forecast(self._points(trend), room=self.available, lift=lift, step=now)
        return None

    def rate(self, trend: Trend) -> float:
        """Growth in bytes per judged step."""
        first, last = trend.first.point, trend.last.point
        rate = growth_rate(self._points(trend))
        return rate if rate is not None and rate > 0 else trend.growth / max(last.step - first.step, 1)

    def _points(self, trend: Trend) -> Sequence[Point]:
        """The floors since the rise began, at the finest scale that remembers all of it."""
        for scale in range(trend.scale, SCALES):
            marks = self.growth.marks.at(scale)
            if marks and (marks[0].step <= trend.first_step or scale == SCALES - 1):
                points = [mark.point for mark in marks if mark.step >= trend.first_step]
                if len(points) >= _ENOUGH_FLOORS:
                    return points
        marks = self.growth.marks.at(trend.scale)
        return [mark.point for mark in marks if mark.step >= trend.first_step] or [
            trend.first.point,
            trend.last.point,
        ]
