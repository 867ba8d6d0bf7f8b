"""Growth of one series of bytes: its readings, the test on its low-water marks, its rate and its forecast."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

from tbmem.analysis.detector.control_variate import ControlVariate
from tbmem.analysis.detector.forecast import Forecast, forecast
from tbmem.analysis.detector.growth_test import MARKS_TO_JUDGE, Change, GrowthTest
from tbmem.analysis.detector.low_water_marks import BLOCK, SCALES, LowWaterMark, StepBlock, levels
from tbmem.analysis.detector.trend import LASTS, Trend, rises_regularly
from tbmem.analysis.growth_rate import Point, Splice, growth_rate
from tbmem.model.evidence import Channel, Suspicion
from tbmem.model.sample import MemorySample

_LONG_UNSTEPPED = 64
"""Samples without an optimizer step from which on every sample is judged: it is another kind of loop."""
_STEEP_PERCENT = 2.5  # rise from one block of four steps to the next, in per cent, that may be the end
_STEEP = ((4, 64), (3, 16))  # so many such blocks are enough if memory will have run out in so many steps
_LEAST_PART = 0.1  # a rise of the level counts as one if it is at least this part of the largest
_ENOUGH, _RISES = 28, 5  # readings, and regular rises among them, that are suspicious where none ever falls
_ENOUGH_MARKS = 6  # marks that tell a rate better than finer ones that do not reach back to where the growth began
_HALVED = 4  # marks from which on each half of a trend has a rate
_FEW_BLOCKS = 4
"""Blocks up to which growth is probably as old as the run: what a window has left is freed in the steps after it, and
hides the beginning."""
_FEW_RISES, _NEARLY_ALL = 3, 0.9
"""Rises that make no rate, and part of the growth that they must have brought: buffers that a larger batch enlarges."""
_MARKS_EACH = 3  # for each of them, at least
_LEAP = 2.0  # times the second largest rise
_LEVELLED = 0.1  # part of a trend's growth below which the later half of the steps since it began has added nothing
_STANDS, _STANDS_STEPS = 0.5, 50  # of its length, and steps, for which a trend that stands still is said to do so
_RECENT = 48  # readings in which the distance of rises is looked for
_EACH_READING = 1.25
"""Readings from one rise to the next below which nearly each rises: of the steps in between each may."""


class GrowthEvent(NamedTuple):
    """Something has changed about the growth of a channel; the trend, its rate and forecast are those of that step."""

    step: int
    channel: Channel
    change: Change
    trend: Trend
    rate: float  # bytes per step
    gap: int = 1  # steps between two rises of what is never given back
    forecast: Forecast | None = None


class GrowthChannel:
    """Watches one series for growth, by a test on its low-water marks of blocks of so many steps."""

    def __init__(self, channel: Channel, test: GrowthTest, block_steps: int = BLOCK) -> None:
        self.channel = channel
        self.growth = test
        self.block_steps = block_steps
        self.total: int | None = None  # capacity in bytes; ``None`` where that is not known
        self.available: int | None = None  # bytes that are left instead, for memory that is shared with others
        self._block = StepBlock(block_steps, Splice(trusts_falls=channel is not Channel.HOST))
        self._spliced = 0.0  # bytes that steps which are not judged have left behind so far
        self._variate = ControlVariate()
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._recent_steps: deque[int] = deque(maxlen=_RECENT)
        self._unstepped = 0

    def extend(
        self,
        steps: Sequence[int],
        values: Sequence[int],
        peaks: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
    ) -> list[GrowthEvent]:
        """Add steps that were all read: bytes held at their ends, peaks and live allocations where both are exact."""
        events: list[GrowthEvent] = []
        corrected = values if peaks is None else self._variate.correct(values, peaks)
        tops = corrected if peaks is None else peaks
        start, stop, count = 0, self._block.room, len(values)
        while start < count:
            if start or stop < count:
                part, number = corrected[start:stop], blocks and blocks[start:stop]
                high = part if peaks is None else peaks[start:stop]
            else:
                part, number, high = corrected, blocks, tops
            self._recent.extend(part)
            self._recent_steps.extend(steps[start:stop])
            mark = self._block.add(steps[start:stop], part, high, number)
            if mark is not None:
                events += self._judge(mark, steps[min(stop, count) - 1])
            start, stop = stop, stop + self.block_steps
        return events

    def extend_updated(
        self,
        updated: Sequence[bool | None],
        steps: Sequence[int],
        values: Sequence[int | None],
        peaks: Sequence[int] | None,
        blocks: Sequence[int] | None,
    ) -> list[GrowthEvent]:
        """The same where some were not read; of the others those of the optimizer count, if there are any."""
        if False not in updated and None not in values:
            self._unstepped = 0
            return self.extend(steps, values, peaks, blocks)  # type: ignore[arg-type] # none is None
        events: list[GrowthEvent] = []
        for at, (step, value) in enumerate(zip(steps, values, strict=True)):
            self._unstepped = self._unstepped + 1 if updated[at] is False else 0
            if value is None or 0 < self._unstepped < _LONG_UNSTEPPED:
                mark = self._block.skip()
                events += () if mark is None else self._judge(mark, step)
            else:
                row = slice(at, at + 1)
                events += self.extend((step,), (value,), peaks and peaks[row], blocks and blocks[row])
        return events

    @property
    def fallen(self) -> float:
        """Bytes by which the program has lowered the level in steps that were not judged."""
        return self._block.splice.fallen

    def note_fall(self, count: float) -> None:
        """Note by how many bytes the program has lowered the level in the last steps that were not judged."""
        self._block.splice.known_fall += count

    def interrupt(self) -> None:
        """Steps that are not judged follow: what they leave behind is no growth."""
        self._block.interrupt()
        self._recent.clear()
        self._recent_steps.clear()

    def _judge(self, mark: LowWaterMark, step: int) -> Sequence[GrowthEvent]:
        growth = self.growth
        left_behind = self._block.splice.bytes
        if left_behind != self._spliced:
            if self.channel is Channel.HOST:
                growth.slack = max(growth.slack + left_behind - self._spliced, 0.0)
            self._spliced = left_behind
        change = growth.add(mark)
        if change is None and growth.trend is None and self._rises():
            change = growth.suspect_last(_ENOUGH // self.block_steps)
        if change is None and self._is_steep(mark):
            change = growth.confirm_early()
        if change is None:
            return ()
        trend = growth.dropped if change in (Change.FELL, Change.ENDED) else growth.trend
        assert trend is not None  # nosec B101  # for the type checker
        gap = self._gap() if change is Change.SUSPECTED else 1
        ahead = self.forecast(trend, step) if change is Change.CERTAIN else None
        return (GrowthEvent(step, self.channel, change, replace(trend), self.rate(trend), gap, ahead),)

    def _rises(self) -> bool:
        """Whether the readings themselves, which are exact, rise regularly without ever falling."""
        recent, least = self._recent, self.growth.suspicious
        if len(recent) < _ENOUGH or recent[-1] - recent[0] < least:
            return False
        last = list(recent)[-_ENOUGH:]
        never_falls = all(before <= after for before, after in pairwise(last))
        return never_falls and rises_regularly(last, least, _RISES)

    def _is_steep(self, mark: LowWaterMark) -> bool:
        """Whether memory will have run out before the patience ends."""
        marks = self.growth.marks.at(0)
        if len(marks) < _STEEP[-1][0] or mark.level - marks[-2].level < _STEEP_PERCENT / 100 * marks[-2].level:
            return False
        left: float | None = self.available
        if self.total is not None:
            left = self.total - mark.level - self._block.splice.bytes - (mark.work or 0)
        if left is None:
            return False
        for count, steps in _STEEP:
            last = levels(marks[-count:])
            rises = [after - before for before, after in pairwise(last)]
            if len(last) == count and min(rises) >= 0.5 * max(rises) and left < steps * min(rises) / BLOCK:
                return True
        return False

    @property
    def rises_early(self) -> bool:
        """Whether the readings of a short run climb, too few for a suspicion."""
        return self.growth.rises_early(list(self._recent))

    def early_growth(self, sample: MemorySample) -> Suspicion | None:
        """The growth of a short run so far, where its readings climb but are too few for a suspicion."""
        if not self.rises_early:
            return None
        first, last = self._recent_steps[0], self._recent_steps[-1]
        base, level = self._recent[0], self._recent[-1]
        return Suspicion(
            device=sample.device,
            rank=sample.rank,
            channel=self.channel,
            first_step=first,
            began=first,
            may_be_earlier=first > 1,
            last_step=last,
            base=round(base),
            level=round(level),
            bytes_per_step=(level - base) / max(last - first, 1),
            judged_steps=last - first,
        )

    @property
    def spread(self) -> float:
        """How far levels within a block usually differ, in bytes; with exact peaks how far these reach."""
        return median(self._block.lifts) if self._block.lifts else 0.0

    @property
    def wide_spread(self) -> float:
        """How far levels within the widest block but one differ, in bytes; a single one may be a spike's."""
        return nlargest(2, self._block.lifts)[-1] if self._block.lifts else 0.0

    def level_at(self, step: int) -> float | None:
        """The low-water mark at a step in the past, as finely as it is remembered, in bytes."""
        return self.growth.marks.level_at(step)

    def rise_since(self, step: int, value: int) -> float | None:
        """How far a value as read now is above the low-water mark at a step, in bytes; ``None`` without marks."""
        before = self.level_at(step)
        return None if before is None else value - self._block.splice.bytes - before

    def growth_between(self, first_step: int, last_step: int) -> float | None:
        """By how much the low-water mark rose between two steps, in bytes; ``None`` where it is not remembered."""
        before, after = self.level_at(first_step), self.level_at(last_step)
        return None if before is None or after is None else after - before

    def is_read_like(self, other: GrowthChannel, step: int) -> bool:
        """Whether it is read about as often as another since a step, or often enough to be judged by itself."""
        known, others = (sum(mark.step >= step for mark in each.growth.marks.at(0)) for each in (self, other))
        return known >= MARKS_TO_JUDGE or 2 * known >= others

    def suspicion(self, trend: Trend, sample: MemorySample, rate: float, gap: int = 1) -> Suspicion:
        """The trend as a suspicion of a sample's device, with the rate (bytes per step) and gap when it was found."""
        level = round(trend.last.level + self._block.splice.bytes)
        is_from_the_start = trend.first.tick <= _FEW_BLOCKS * self.block_steps
        may_be_earlier = trend.climbed_before or is_from_the_start
        base = trend.first.step if may_be_earlier else self._last_before(trend, rate if gap == 1 else 0.0)
        began = base if may_be_earlier else base + 1
        return Suspicion(
            device=sample.device,
            rank=sample.rank,
            channel=self.channel,
            first_step=base,
            began=began,
            may_be_earlier=may_be_earlier and began > 1,
            last_step=trend.last.step,
            base=level - round(trend.growth),
            level=level,
            bytes_per_step=rate,
            judged_steps=trend.judged_after(base),
            gap=gap,
            from_the_start=is_from_the_start,
            rises=self._few_rises(trend),
        )

    def _last_before(self, trend: Trend, rate: float) -> int:
        """The last step before a trend of so many bytes a step: what its next mark has grown by tells."""
        if rate <= 0:
            return trend.stood_until
        grown_in = max(round((trend.risen.level - trend.first.level) / rate), 1)
        return max(trend.stood_until, trend.risen.step - grown_in)

    def _gap(self) -> int:
        """Steps between two rises of what is never given back."""
        lows = list(accumulate(reversed(self._recent), min))
        rises = [later - earlier for later, earlier in pairwise(lows)]
        least = _LEAST_PART * max(rises, default=0)
        at = [index for index, rise in enumerate(rises) if rise > least]
        count = len(at) - 1
        if count < 1 or at[-1] - at[0] < _EACH_READING * count:
            return 1
        steps = list(reversed(self._recent_steps))
        return round((steps[at[0]] - steps[at[-1]]) / count)

    def forecast(self, trend: Trend, step: int) -> Forecast | None:
        """When the trend will have filled what is left, counted from a step."""
        if self.total is None and self.available is None:
            return None
        splice = self._block.splice
        # within a block a trend reaches above its mark by itself
        lift = max(max(self._block.lifts, default=0.0) - (self.block_steps - 1) * self.rate(trend), 0.0)
        capacity = None if self.total is None else self.total - splice.bytes
        points = self._points(trend)
        return forecast(points, capacity=capacity, room=self.available, lift=lift, step=step - splice.steps)

    def rate(self, trend: Trend) -> float:
        """Growth in bytes per judged step."""
        rate = growth_rate(self._points(trend))
        return rate if rate is not None and rate > 0 else trend.pace

    def steady_rate(self, trend: Trend) -> float | None:
        """The lower of a trend's rates in its halves, in bytes per judged step; ``None`` for too few marks.

        Memory that is taken once, however much, raises only one of them.
        """
        points = self._points(trend)
        if len(points) < _HALVED:
            return None
        parts = pairwise((points[0], points[len(points) // 2], points[-1]))
        return min((after.level - before.level) / max(after.step - before.step, 1) for before, after in parts)

    def mean_rate(self, trend: Trend) -> float:
        """Mean growth of a trend, in bytes per judged step, without a leap: a rise far above all others."""
        points = self._points(trend)
        rises = sorted((after.level - before.level, after.step - before.step) for before, after in pairwise(points))
        is_leap = len(points) >= _HALVED and rises[-1][0] > _LEAP * rises[-2][0]
        rest = rises[:-1] if is_leap else rises
        return sum(growth for growth, _ in rest) / max(sum(steps for _, steps in rest), 1)

    def lasting_rate(self, trend: Trend, gap: int) -> float:
        """Rate of a trend that rises each ``gap`` steps without what was taken once, in bytes per judged step."""
        steady = self.steady_rate(trend) if gap <= self.block_steps else None
        rate = self.rate(trend)
        return rate if steady is None else min(rate, steady)

    def lasting_share(self, trend: Trend) -> float:
        """The part of a trend's growth by which its lowest level in its last quarter is above that in its first.

        Three quarters for what is kept, and less where steps hold more and more but let it go.
        """
        points = self._points(trend)
        quarter = max(len(points) // 4, 1)
        before, after = (min(point.level for point in part) for part in (points[:quarter], points[-quarter:]))
        return (after - before) / max(trend.growth, 1.0)

    def has_levelled_off(self, trend: Trend) -> bool:
        """Whether a trend has added next to nothing in the later half of the steps since it began: caches that fill."""
        now = self.growth.marks.at(0)[-1]
        before = self.level_at((trend.first.step + now.step) // 2)
        if before is None or now.point.step - trend.first.point.step < LASTS:
            return False
        later = trend.last.level - before
        return later < _LEVELLED * trend.growth and later < self.growth.least(before)

    def stands_still(self, trend: Trend) -> bool:
        """Whether a trend has not gone on for long, as far as its marks tell: what was not read may have risen."""
        judged_until = self.growth.marks.at(trend.scale)[-1].step
        lasted = trend.last.step - trend.first.step
        return judged_until - trend.last.step >= max(_STANDS * lasted, _STANDS_STEPS)

    def _few_rises(self, trend: Trend) -> int:
        """By how few rises nearly all of a trend came; 0 where it came by more than a few, or has few marks."""
        levels = [point.level for point in self._points(trend)]
        rises = sorted((after - before for before, after in pairwise(levels)), reverse=True)
        few = enumerate(accumulate(rises[: min(_FEW_RISES, len(rises) // _MARKS_EACH)]), start=1)
        return next((count for count, rise in few if rise >= _NEARLY_ALL * (levels[-1] - levels[0])), 0)

    def _points(self, trend: Trend) -> Sequence[Point]:
        """The marks since the trend began, at the finest scale that remembers all of it."""
        for scale in range(trend.scale, SCALES):
            marks = self.growth.marks.at(scale)
            if marks and (marks[0].step <= trend.first.step or scale == SCALES - 1):
                points = [mark.point for mark in marks if mark.step >= trend.first.step]
                if len(points) >= _ENOUGH_MARKS:
                    return points
        marks = self.growth.marks.at(trend.scale)
        points = [mark.point for mark in marks if mark.step >= trend.first.step]
        return points or [trend.first.point, trend.last.point]
