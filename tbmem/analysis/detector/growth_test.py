"""Test for growth that does not end, on low-water marks: suspected early, certain late."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from enum import Enum

from tbmem.analysis.detector.low_water_marks import LowWaterMark, LowWaterMarks, levels, since_last_fall
from tbmem.analysis.detector.trend import Trend, TrendState, climbs, is_explained, is_line, rises_regularly
from tbmem.analysis.growth_rate import ENOUGH_STEPS, FALLEN_BACK

_SUSPICIOUS = 24 << 10  # bytes from which on growth may be suspected
_SUSPICIOUS_SHARE = 1e-6  # the same as a share of the level
_LINE, _LINE_SIGMAS = 7, 3.0  # marks of the finest blocks, one like the other, that are suspicious: 28 steps
_SHORT, _SHORT_SIGMAS = 9, 3.4  # marks of the finest blocks that are suspicious where they climb less evenly: 36 steps
_FEWEST = 6  # marks below which nothing is suspected
MARKS_TO_JUDGE, _LONG_SIGMAS = 12, 4.0  # marks at any scale; fewer say too little about order and chance
_CERTAIN_SIGMAS = 4.9
_SUSPICIOUS_RISES, _CERTAIN_RISES = 4, 7
"""Regular rises without a fall that are suspicious where readings are exact, and that are certain."""
_GOES_ON = 0.02  # share of the growth by which it must have gone on to be alive
_NEARLY = 0.97  # share of the patience that is enough, since blocks do not end on it
_SHORTEST = 32  # evaluated steps after which growth that does not go on has ended, however short it was
_FIRST_WAIT = (
    64  # evaluated steps in which nothing is suspected after a suspicion that came to nothing; doubled each time
)
_STEEP = 4  # finest blocks that are enough where memory is about to run out
WORSE = 4.0
"""Factor by which certain growth must have gone on to be reported again: four lines in 6,000 steps."""
_CYCLE = 1 / 3
"""Share of the time that growth lasted which a cycle must take that shows its end: rare growth pauses for less."""
_CYCLE_DEPTH = 0.1  # share of the growth by which memory must fall, and climb again, in a cycle
_LEAP = 0.6
"""Largest single rise of a cycle, as a share of the whole: above it memory went up at once, as in validation."""
_MARGIN = 0.25  # share of its height by which the next cycle may be higher
_CYCLES = 8  # cycles that are remembered


class Change(Enum):
    """What has changed about the growth."""

    SUSPECTED = "suspected"  # it may be a leak
    CERTAIN = "certain"  # it has lasted longer than the patience, or is four times as large since that was reported
    FELL = "fell"  # most of it is free again: it was a cycle, or a cache that was emptied
    ENDED = "ended"
    """It stays where it is, and has not gone on for as long as it lasted: a ramp, or a cache that is full."""


class GrowthTest:
    """Finds growth that does not end, one low-water mark at a time.

    Args:
        patience: Steps over which marks must have risen to be certain.
        min_growth: Smallest growth in bytes that can be certain.
        min_growth_percent: The same in per cent of the level.
        suspicious: Smallest growth in bytes that can be suspected.
        rises: Regular rises without a fall that are suspicious.
    """

    def __init__(
        self,
        *,
        patience: int,
        min_growth: int,
        min_growth_percent: float,
        suspicious: int = _SUSPICIOUS,
        rises: int = _SUSPICIOUS_RISES,
    ) -> None:
        self.marks = LowWaterMarks()
        self.trend: Trend | None = None  # the growth that stands; ``None`` while memory is not growing
        self.dropped: Trend | None = None  # the one that stood before
        self.suspicious = suspicious
        self.slack = 0.0
        """Free bytes that steps which are not judged have left in the heap: so much growth does not show."""
        self._sawtooth = Sawtooth(suspicious)
        self._patience = patience
        self._min_growth = min_growth
        self._min_share = min_growth_percent / 100
        self._rises = rises
        self._wait = _FIRST_WAIT
        self._not_before = 0

    def add(self, mark: LowWaterMark) -> Change | None:
        """Add the mark of the next finest block; returns what has changed about ``trend``, usually nothing."""
        coarsest = self.marks.add(mark)
        self._sawtooth.add(mark.tick, mark.level)
        trend = self.trend
        if trend is not None and trend.scale <= coarsest:
            change = self._follow(trend, self.marks.at(trend.scale)[-1])
            if change is not None:
                return change
        for scale in range(coarsest, -1, -1):
            marks = self.marks.at(scale)
            # nearly always it ends here
            if marks[-1].level - marks[0].level >= self.suspicious:
                change = self._look(scale, list(marks))
                if change is not None:
                    return change
        return None

    def suspect_last(self, count: int) -> Change | None:
        """Suspect the growth of the last ``count`` marks, whose readings are suspicious by themselves."""
        known = list(self.marks.at(0))
        part = known[-count:]
        if part[-1].tick < self._not_before or self._is_cycle(part) or is_explained(part, known):
            return None
        self.trend = Trend.over(part, 0, self.marks)
        return Change.SUSPECTED

    def confirm_early(self) -> Change | None:
        """Memory is about to run out: what the last blocks show is certain enough."""
        part = self.marks.at(0)[-_STEEP:]
        return (
            Change.CERTAIN if not self._is_cycle(part) and self._make_certain(Trend.over(part, 0, self.marks)) else None
        )

    def leave_open(self) -> None:
        """Note that the evidence did not decide about the growth that stands: it may be suspected again later."""
        trend = self.trend
        if trend is None:
            return
        if trend.state is TrendState.SUSPECTED:
            trend.leave_open()
        self._postpone(trend.last.tick)

    def doubt(self) -> None:
        """Note that the growth is too small to be called a leak by itself; once it is larger it is certain again."""
        if self.trend is not None:
            self.trend.leave_open()
            self.trend.reported = 0.0

    def await_evidence(self) -> None:
        """Make the growth that stands a suspicion, however certain it is."""
        if self.trend is not None:
            self.trend.state, self.trend.reported = TrendState.SUSPECTED, 0.0

    def rises_early(self, readings: Sequence[float]) -> bool:
        """Whether the readings climb as a leak does, where the marks are too few for a suspicion."""
        is_early = self.trend is None and len(self.marks.at(0)) < MARKS_TO_JUDGE and len(readings) >= ENOUGH_STEPS
        return is_early and climbs(readings, self.least(readings[0]), _SHORT_SIGMAS)

    def is_material(self, trend: Trend) -> bool:
        """Whether growth is large enough to be reported without evidence."""
        return trend.growth >= self.least(trend.first.level)

    def confirm(self) -> None:
        """Make the growth that stands a leak, however short it is."""
        if self.trend is not None:
            self.trend.state, self.trend.reported = TrendState.LEAK, max(self.trend.growth, self.trend.reported)

    def least(self, base: float) -> float:
        """Bytes by which memory must grow from a level to be reported without evidence."""
        return max(self._min_growth, self._min_share * base)

    def _postpone(self, tick: int) -> None:
        """Suspect nothing for a while after a judged step, each time for twice as long."""
        self._not_before = tick + self._wait
        self._wait *= 2

    def _follow(self, trend: Trend, mark: LowWaterMark) -> Change | None:
        trend.troughs.add(mark, _CYCLE_DEPTH * trend.growth)
        if mark.level > trend.last.level + _GOES_ON * trend.growth:
            trend.go_on(mark, self.marks.at(trend.scale))
            self.slack = 0.0
            is_open = trend.state is TrendState.OPEN and mark.tick >= self._not_before
            is_outgrown = trend.state is TrendState.EXPLAINED and trend.is_outgrown
            if is_outgrown or (is_open and trend.keeps_its_pace):
                trend.state = TrendState.SUSPECTED
                return Change.SUSPECTED
        elif trend.last.level - mark.level > FALLEN_BACK * trend.growth:
            return self._drop(trend, mark.tick, Change.FELL)
        elif not trend.lasting and self._comes_and_goes(trend):
            self._sawtooth.note(mark.tick - trend.first.tick, trend.last.level, trend.growth)
            return self._drop(trend, mark.tick, Change.FELL)
        elif not trend.lasting and self._has_ended(trend, mark.tick):
            return self._drop(trend, mark.tick, Change.ENDED)
        return None

    @staticmethod
    def _comes_and_goes(trend: Trend) -> bool:
        """Whether what is left has not grown from one cycle to the next: only the first brought something to stay."""
        lasted = trend.last.tick - trend.first.tick
        return trend.is_cycle(max(_CYCLE * lasted, _SHORTEST), _GOES_ON * trend.growth)

    def _has_ended(self, trend: Trend, tick: int) -> bool:
        """Whether it has not gone on for as long as it lasted, and longer than slack hides it at its pace."""
        idle, lasted = tick - trend.last.tick, trend.last.tick - trend.first.tick
        return idle > max(lasted, _SHORTEST) and idle * trend.growth > self.slack * lasted

    def _drop(self, trend: Trend, tick: int, change: Change) -> Change:
        self.trend, self.dropped = None, trend
        self._postpone(tick)
        return change

    def _look(self, scale: int, known: Sequence[LowWaterMark]) -> Change | None:
        last, trend = known[-1], self.trend
        growth = last.level - known[0].level
        is_decided = trend is not None and (
            last.level - trend.first.level < WORSE * trend.reported
            if trend.state is TrendState.LEAK
            else trend.state is TrendState.EXPLAINED
        )
        if len(known) < _FEWEST or growth < _SUSPICIOUS_SHARE * last.level or is_decided:
            return None
        if growth >= self.least(known[0].level):
            climbing = self._certain(known)
            if climbing is not None and self._make_certain(Trend.over(climbing, scale, self.marks)):
                return Change.CERTAIN
        if trend is not None or last.tick < self._not_before:
            return None
        climbing = self._suspect(known, scale)
        if climbing is None:
            return None
        self.trend = Trend.over(climbing, scale, self.marks)
        return Change.SUSPECTED

    def _make_certain(self, match: Trend) -> bool:
        trend = self.trend
        if trend is None:
            trend = self.trend = match
        elif trend.state is TrendState.EXPLAINED:
            return False
        else:
            trend.join(match)
        if trend.growth < WORSE * trend.reported:
            return False
        trend.state, trend.reported = TrendState.LEAK, trend.growth
        return True

    def _certain(self, known: Sequence[LowWaterMark]) -> Sequence[LowWaterMark] | None:
        """The marks of a climb that has lasted longer than the patience, if there is one."""
        tick = known[-1].tick
        since = tick - _NEARLY * self._patience + (tick - known[-2].tick)
        count = next((size for size in range(MARKS_TO_JUDGE, len(known) + 1) if known[-size].tick <= since), None)
        for size in dict.fromkeys((count, len(known))) if count is not None else ():
            part = known[-size:]
            if self._is_cycle(part) or not climbs(levels(part), self.least(part[0].level), _CERTAIN_SIGMAS):
                continue
            if not is_explained(part, known):
                return part
        part = since_last_fall(known)
        least = self.least(part[0].level)
        return part if part[0].tick <= since and self._is_regular(part, known, least, _CERTAIN_RISES) else None

    def _suspect(self, known: Sequence[LowWaterMark], scale: int) -> Sequence[LowWaterMark] | None:
        """The marks that are suspicious, if there are any."""
        short = ((_LINE, _LINE_SIGMAS), (_SHORT, _SHORT_SIGMAS)) if scale == 0 else ()
        for count, sigmas in (*short, (MARKS_TO_JUDGE, _LONG_SIGMAS)):
            part = known[-count:]
            if len(part) < count or self._is_cycle(part) or not climbs(levels(part), self.suspicious, sigmas):
                continue
            if count > _LINE or is_line(levels(part)):
                return part
        part = since_last_fall(known)
        return part if len(part) >= _LINE and self._is_regular(part, known, self.suspicious, self._rises) else None

    def _is_regular(
        self, part: Sequence[LowWaterMark], known: Sequence[LowWaterMark], least: float, rises: int
    ) -> bool:
        """Whether marks without a fall rise so many times, by ``least`` bytes in all, and nothing explains it."""
        is_match = not self._is_cycle(part) and rises_regularly(levels(part), least, rises)
        return is_match and not is_explained(part, known)

    def _is_cycle(self, part: Sequence[LowWaterMark]) -> bool:
        """Whether memory has risen as long and as high before, and come back."""
        return part[-1].tick - part[0].tick < self._sawtooth.length and part[-1].level <= self._sawtooth.ceiling


class Sawtooth:
    """Remembers rises of at least so many bytes that fell back: epochs, collections, caches that are emptied."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._lowest, self._highest = math.inf, -math.inf
        self._start = 0
        self._leap = 0.0
        self._cycles: deque[tuple[int, float]] = deque(maxlen=_CYCLES)
        self.length = 0  # evaluated steps of the longest cycle remembered, 0 if there was none
        self.ceiling = -math.inf  # how high a cycle like those remembered may rise, in bytes

    def add(self, tick: int, level: float) -> bool:
        """Add a low-water mark (evaluated steps so far, bytes); returns whether a cycle has just ended."""
        height = self._highest - self._lowest
        if height >= self._least and self._highest - level > FALLEN_BACK * height:
            gradual = self._leap <= _LEAP * height
            if gradual:
                self.note(tick - self._start, self._highest, height)
            self._begin(tick, level)
            return gradual
        if level < self._lowest:
            self._begin(tick, level)
        elif level > self._highest:
            self._leap = max(self._leap, level - self._highest)
            self._highest = level
        return False

    def note(self, length: int, highest: float, height: float) -> None:
        """Remember a cycle of so many evaluated steps, which rose to a level by so many bytes."""
        self._cycles.append((length, highest + _MARGIN * height))
        self.length, self.ceiling = (max(column) for column in zip(*self._cycles, strict=True))

    def _begin(self, tick: int, level: float) -> None:
        self._lowest = self._highest = level
        self._start, self._leap = tick, 0.0
