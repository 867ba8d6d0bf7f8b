"""Trend of low-water marks: tests for one (Mann and Kendall, regular rises), and the record that follows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from tbmem.analysis.detector.low_water_marks import LowWaterMark, LowWaterMarks

_FLAT = 0.02  # share of the growth by which a mark may lie above the first one and still be before the trend
_SLOW = 0.15  # share of its pace up to which what came before has not been the growth yet: caches that fill, noise
_AFTER = 4  # marks that it must have had since
_OUTGROWN = 2.0  # factor by which explained growth must have gone on, in bytes and in steps, to be suspected again
_PACE = 0.5
"""Share of its pace at which unexplained growth must have gone on to be suspected again, or have gone on before it."""
_LATE = 1.35  # the same in steps for growth whose end is estimated: a buffer that episodes of different lengths fill
_JUMP = 0.45  # largest single rise, as a share of the growth: above it memory has changed its level once, not grown
_HALF = 0.2  # smallest growth in either half, as a share of the growth: below it a ramp has ended, or just begun
_LAST_QUARTER = 0.14  # the same for the last quarter
_RISES = 0.6  # smallest share of the marks that lie above the one before
_LEAST_PART = 0.1  # part of the largest rise that a rise must be to count
_EVENTS_JUMP = 0.4  # largest single rise among regular ones, as a share of the growth
_EVEN = 0.5  # rises that differ by no more than this factor are alike
LASTS = 128
"""Judged steps from which on it is known that a trend goes on."""
_COUNTS_CLIMB = 0.6  # Kendall's tau of the live allocations from which on they count as climbing
_WORK_GROWS = 0.05  # share by which the steps' own need must have grown to explain growth without new allocations


class TrendState(Enum):
    """What the evidence says about a trend."""

    SUSPECTED = "suspected"
    OPEN = "open"  # the evidence did not decide
    EXPLAINED = "explained"  # the workload itself needs more
    LEAK = "leak"


class Troughs:
    """The lowest marks between the falls of a level that climbs again: of a graph that is summed over each epoch."""

    def __init__(self) -> None:
        self._crest: LowWaterMark | None = None
        self._low: LowWaterMark | None = None
        self._before: LowWaterMark | None = None

    def add(self, mark: LowWaterMark, depth: float) -> None:
        """Add a mark; ``depth``: bytes by which the level must fall, and climb again."""
        if self._low is None:
            if self._crest is None or mark.level > self._crest.level:
                self._crest = mark
            elif self._crest.level - mark.level >= depth:
                self._low = mark
        elif mark.level < self._low.level:
            self._low = mark
        elif mark.level - self._low.level >= depth:
            self._before, self._low, self._crest = self._low, None, mark

    def cycle(self, ticks: float, rise: float) -> tuple[LowWaterMark, LowWaterMark] | None:
        """Trough and crest of the last cycle, if it took so many evaluated steps and left at most so many bytes."""
        before, crest, low = self._before, self._crest, self._low
        if low is None or before is None or crest is None or low.tick - before.tick < ticks:
            return None
        return (before, crest) if low.level - before.level <= rise else None


@dataclass(slots=True)
class Trend:
    """A range of steps in which the low-water mark rose again and again, and may go on rising."""

    first: LowWaterMark  # the last one before it began
    risen: LowWaterMark  # the next one
    last: LowWaterMark  # the one at which it last went on
    scale: int  # of the marks that climbed, and on which it is followed
    blocks: int  # number of these marks
    state: TrendState = TrendState.SUSPECTED
    reported: float = 0.0  # growth in bytes when it was last reported
    lasting: bool = False  # it stays a leak even when it does not go on
    outgrown_at: tuple[float, float] = (0.0, 0.0)  # level in bytes and step from which on it is no longer explained
    left_at: tuple[float, int] = (0.0, 0)  # level in bytes and judged step when the evidence did not decide
    held: float = 0.0  # bytes per step that its holder gains, where it gains some in each
    climbed_before: bool = False  # whether the marks before it climb as well, or none is known
    troughs: Troughs = field(default_factory=Troughs)

    @classmethod
    def over(cls, marks: Sequence[LowWaterMark], scale: int, known: LowWaterMarks) -> Trend:
        """The trend that climbing marks of a scale show; ``known``: all that are remembered."""
        first, risen = _start_of(marks)
        trend = cls(first, risen, marks[-1], scale, len(marks))
        before = known.before(first)
        trend.climbed_before = before is None or trend.climbs_as_well(before)
        return trend

    def climbs_as_well(self, before: LowWaterMark) -> bool:
        """Whether the level rose from an earlier mark to its first one at half its pace at least."""
        lasted = self.first.point.step - before.point.step
        return self.first.level - before.level >= _PACE * self.pace * lasted

    @property
    def stood_until(self) -> int:
        """The last step at the level from which it rose, where that stood before."""
        return max(self.first.until, self.first.step)

    @property
    def growth(self) -> float:
        """Bytes."""
        return self.last.level - self.first.level

    @property
    def pace(self) -> float:
        """Bytes per judged step, from its first mark to its last one."""
        return _pace(self.first, self.last)

    def judged_after(self, step: int) -> int:
        """Judged steps from one in the block of its first mark, or soon after that, to its last mark."""
        return self.last.point.step - self.first.point.step - (step - self.first.step)

    def is_cycle(self, ticks: float, rise: float) -> bool:
        """Whether it is a cycle that brings nothing, see ``Troughs.cycle``; it is the last one of them then."""
        cycle = self.troughs.cycle(ticks, rise)
        if cycle is not None:
            self.first, self.risen, self.last = cycle[0], cycle[1], cycle[1]
            self.climbed_before = False
        return cycle is not None

    @property
    def is_short(self) -> bool:
        """Whether it is not known yet that it goes on: heaps warm up, and give back what a window needed."""
        return self.last.point.step - self.first.point.step < LASTS

    def up_to(self, mark: LowWaterMark) -> Trend:
        """The trend as far as a later mark, which is finer than its own, if it has gone on until there."""
        return replace(self, last=mark) if mark.level > self.last.level else self

    def go_on(self, mark: LowWaterMark, marks: Sequence[LowWaterMark]) -> None:
        """Extend it to a mark, the last of ``marks``; where these reach back, they may show that it began later."""
        self.last = mark
        if self.state is TrendState.LEAK or marks[0].step > self.first.step:
            return
        start, risen = _start_of([self.first, *(each for each in marks if each.step > self.first.step)])
        if start is not self.first:
            self.first, self.risen, self.climbed_before = start, risen, False

    def join(self, other: Trend) -> None:
        """Extend it by the same growth seen over more steps."""
        if other.first.level < self.first.level and other.first.step < self.first.step:
            self.first, self.risen, self.climbed_before = other.first, other.risen, other.climbed_before
        if other.last.level > self.last.level:
            self.last = other.last
        self.scale, self.blocks = other.scale, other.blocks

    def explain(self, ends_at: int | None, room: int = 0) -> None:
        """Attribute it to the workload, until it goes on far beyond.

        Args:
            ends_at: Step at which it ends, if that is known.
            room: Bytes that it gains until then: what fills may take longer, as episodes become longer.
        """
        self.state, self.reported = TrendState.EXPLAINED, 0.0
        start, lasted = self.first.step, self.last.step - self.first.step
        if ends_at is None:
            self.outgrown_at = (self.first.level + _OUTGROWN * self.growth, start + _OUTGROWN * lasted)
        else:
            self.outgrown_at = (self.last.level + _LATE * room, start + _LATE * max(ends_at - start, lasted))

    def leave_open(self) -> None:
        """Note that it is not decided what it is, from its last mark on."""
        self.state, self.left_at = TrendState.OPEN, (self.last.level, self.last.tick)

    @property
    def keeps_its_pace(self) -> bool:
        """Whether it has gone on since it was left open as it did before; a ramp that ended wavers at its height."""
        level, tick = self.left_at
        before = (level - self.first.level) / max(tick - self.first.tick, 1)
        return self.last.level - level >= _PACE * before * (self.last.tick - tick)

    @property
    def is_outgrown(self) -> bool:
        """Whether it has gone on beyond what explained it."""
        level, step = self.outgrown_at
        return self.last.level > level and self.last.step > step


def _start_of(marks: Sequence[LowWaterMark]) -> tuple[LowWaterMark, LowWaterMark]:
    """The last mark before growth began, and the next one.

    It is at the level of the first one, or where the pace changed from next to none.
    """
    growth, begin = marks[-1].level - marks[0].level, 0
    while begin + 1 < len(marks) and marks[begin + 1].level - marks[0].level <= _FLAT * growth:
        begin += 1
    part = marks[begin:]
    pace = _pace(part[0], part[-1])
    # the farthest below a straight line from the first to the last
    below = [part[0].level + pace * (mark.point.step - part[0].point.step) - mark.level for mark in part]
    bend = below.index(max(below))
    is_late = 0 < bend <= len(part) - _AFTER and _pace(part[0], part[bend]) <= _SLOW * _pace(part[bend], part[-1])
    first = bend if is_late else 0
    return part[first], part[min(first + 1, len(part) - 1)]


def _pace(first: LowWaterMark, last: LowWaterMark) -> float:
    """Bytes per judged step from one mark to a later one."""
    return (last.level - first.level) / max(last.point.step - first.point.step, 1)


def since(step: int, *, may_be_earlier: bool) -> str:
    """``'since step 101'``, ``'since step 13 or earlier'``: from which step on memory is kept, as far as is known."""
    return f"since step {step}{' or earlier' * may_be_earlier}"


def climbs(levels: Sequence[float], least: float, sigmas: float) -> bool:
    """Whether levels climb throughout, in an order so many ``sigmas`` from chance (Mann and Kendall's z)."""
    growth = levels[-1] - levels[0]
    if growth < least or growth <= 0:
        return False
    count = len(levels)
    middle = count // 2
    if (
        levels[-1] - levels[middle - 1] < _HALF * growth
        or levels[middle] - levels[0] < _HALF * growth
        or levels[-1] - levels[-1 - count // 4] < _LAST_QUARTER * growth
    ):
        return False
    changes = [after - before for before, after in pairwise(levels)]
    if max(changes) > _JUMP * growth or sum(change > 0 for change in changes) < _RISES * len(changes):
        return False
    return kendall(levels) >= tau_for(count, sigmas)


def kendall(values: Sequence[float]) -> float:
    """Kendall's tau of values against their order: 1 if each is above all before it; ties count as nothing."""
    ups = 0
    for later in range(1, len(values)):
        value = values[later]
        for earlier in values[:later]:
            if value > earlier:
                ups += 1
            elif value < earlier:
                ups -= 1
    return 2 * ups / (len(values) * (len(values) - 1))


def tau_for(count: int, sigmas: float) -> float:
    """The tau of ``count`` values that is ``sigmas`` standard deviations from chance, 1 where none is so far."""
    return min(sigmas * math.sqrt(2 * (2 * count + 5) / (9 * count * (count - 1))), 1.0)


def is_line(levels: Sequence[float]) -> bool:
    """Whether each rise is much like the others."""
    changes = sorted(after - before for before, after in pairwise(levels))
    usual = changes[len(changes) // 2]
    return changes[0] >= _EVEN * usual and usual >= _EVEN * changes[-1]


def rises_regularly(levels: Sequence[float], least: float, events: int) -> bool:
    """Whether levels without a fall rise by ``least`` bytes in so many ``events``, each after much the same time."""
    growth = levels[-1] - levels[0]
    if growth < least or growth <= 0:
        return False
    changes = [0.0, *(after - before for before, after in pairwise(levels))]
    highest = max(changes)
    rises = [at for at, change in enumerate(changes) if change > _LEAST_PART * highest]
    if len(rises) < events or highest > _EVENTS_JUMP * growth:
        return False
    gaps = [after - before for before, after in pairwise(rises)]
    usual = sorted(gaps)[len(gaps) // 2]
    return len(levels) - 1 - rises[-1] <= usual and max(gaps) <= 2 * usual + 1


def is_explained(marks: Sequence[LowWaterMark], longer: Sequence[LowWaterMark]) -> bool:
    """Whether growth without new allocations comes from steps that need more, or there are too few marks to be sure."""
    counts = [mark.blocks for mark in marks if mark.blocks is not None]
    if len(counts) < len(marks):
        return False
    if counts[-1] > counts[0] and kendall(counts) >= _COUNTS_CLIMB:
        return False
    needs = [mark.work for mark in longer if mark.work is not None]
    if len(longer) < 2 * len(marks) and len(longer) < 20:
        return True
    return needs[-1] - needs[0] > _WORK_GROWS * max(needs[0], 1) and kendall(needs) > 0.3
