"""Test for excursions of a level: spikes, lasting shifts, and excursions that recur periodically.

What is usual are median and deviation of the last steps; what recurs with a period (validation, checkpoints) is
reported once, as periodic.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median_low
from typing import NamedTuple

from tbmem.analysis.detector.periodicity import HIGHER, Periodicity, even_period
from tbmem.analysis.diagnosis.spike_source import SpikeSources
from tbmem.model.evidence import Channel

WINDOW = 64
"""Steps that define what is usual."""
RETURN_WITHIN = 5
"""Steps after which an excursion that has not come down again is the new level."""
_SIGMAS = 8.0
_MAD_TO_SIGMA = 1.4826  # median absolute deviation to standard deviation of a normal distribution
_SPREADS = 2.0
"""An excursion is so many times as far from the median as the highest level that is none: where most levels are the
same, their deviation says nothing of the others (some steps need a few more large blocks of malloc)."""
_RECORD = 0.03
"""Share by which a spike must pass the highest level so far, unless a smaller one makes a spike: what recurs is
reported once."""
_HIGHER = 1.2  # and a later spike must be higher above the usual than those before by this factor
EACH = 3
"""Spikes of a run that are reported each when it ends; of more, which recur, only those that are higher."""
_LIKE = 0.5  # part of the highest one's height from which on they are about as high
LEAST_PART = 0.125  # part of it that they must have, where no more than ``EACH`` are about as high
_ALMOST = 0.8
"""Part of a spike's height from which on a step counts for a period: of those that are about as high as the least
spike, chance would pick one to be reported."""
AT_ONCE = 0.5  # part of its height that an excursion must rise from one step to the next: what climbs slowly is none
FEW = 8
"""With fewer steps than this to compare with, an excursion must be ``_FEW_PERCENT`` high."""
_FEW_PERCENT = 15.0
_ENOUGH = 32  # with fewer steps before it an excursion is reported only when there are so many after all
_FEW_SPREADS = 6.0  # and so many times as high as all of them are apart
_NEARLY = 0.5  # share of the smallest spike from which on median and deviation are computed at once
_ORDER_EVERY = 64  # steps after which they are computed anyway
_ORDER_SOONEST = 8  # steps after which they are computed for a level that may be high
_COMES_BACK = 0.5  # part of a change of level below which it has come back
_RARE, _GAPS = 16, 2.0
"""Readings for which a level must stay where all are many steps apart (an episode's data comes and goes meanwhile), and
times their usual distance that the two around the change may be apart."""


class ExcursionKind(Enum):
    """What became of an excursion."""

    SPIKE = "spike"
    SHIFT = "shift"  # memory stayed there: a change of level
    PERIODIC = "periodic"


class Confirmation(NamedTuple):
    """That a step in a profiler window needed more than others."""

    file: str = ""
    """Name of the recording that shows it; in a warm-up nothing is recorded."""
    sources: SpikeSources = SpikeSources()


@dataclass(frozen=True, slots=True)
class Excursion:
    """A step, or a few, whose level left the usual range; in bytes."""

    kind: ExcursionKind
    first_step: int
    last_step: int
    peak: int
    usual: int  # median of the steps before
    period: int = 0  # steps between two periodic ones
    members: Sequence[int] = ()  # first steps of the periodic ones that are known
    kept: int | None = None
    """Where peak and usual are resident memory: bytes of the height that lay in what malloc had kept free, so that the
    peak does not show them."""
    may_be_more: int = 0
    """Bytes that malloc had kept of earlier excursions, of which these steps may have needed any part as well."""
    left_out: int | None = None
    """Of a step in a profiler window: bytes that tbmem had added to its resident peak, which are not in ``peak``."""
    confirmation: Confirmation = Confirmation()
    """Of a step in a profiler window: what its recording shows."""

    @property
    def height(self) -> int:
        """How far it reached above the usual."""
        return self.peak - self.usual + (self.kept or 0)


class ExcursionEvent(NamedTuple):
    """A level left the usual range."""

    step: int  # when it became clear what it was
    channel: Channel
    excursion: Excursion
    updated: bool | None  # whether an optimizer stepped in its first step; ``None`` where that is not known
    resident: Excursion | None = None
    """The same steps in resident peaks, where a level at the end of steps was high and these were higher above the
    usual: what a step has freed again does not show in it."""

    @property
    def shown(self) -> tuple[Channel, Excursion]:
        """The level that the finding names, and the excursion in it."""
        return (self.channel, self.excursion) if self.resident is None else (Channel.HOST, self.resident)


class SpikeTest:
    """Tells excursions apart whose height has so many per cent of the usual level, and so many bytes, step by step."""

    def __init__(self, spike_percent: float, min_spike: int) -> None:
        self._share = spike_percent / 100
        self._min_spike = min_spike
        self._recent: deque[int] = deque(maxlen=WINDOW)
        self._ordinary: deque[int] = deque(maxlen=WINDOW)  # the last ones that were no excursion
        self._least = 0.0
        self._record = self._last = self._last_step = 0
        self._gap = 1.0  # steps from one reading to the next, of late
        self._before: deque[tuple[Excursion, bool]] = deque(maxlen=WINDOW)
        self._pending: list[tuple[int, int]] = []
        self._rare: list[tuple[int, int]] = []  # readings since a change after which it is not known when it came
        self._rare_usual = 0
        self._early: list[Excursion] = []
        self._early_levels = 0
        self._unsure: int | None = None  # the first level, of a later step than the run's first
        self._periodic_height = 0
        self._told: deque[int] = deque(maxlen=WINDOW)
        self._unshifted = -math.inf
        self.periodicity = Periodicity()
        self.rebase()

    def extend(self, steps: Sequence[int], values: Sequence[int]) -> list[tuple[int, Excursion]]:
        """Add the levels of steps; returns each excursion with the step at which it became clear what became of it."""
        excursions: list[tuple[int, Excursion]] = []
        start, count = 0, len(values)
        while start < count:
            # levels that may be added before median and deviation are computed
            room = max(_ORDER_EVERY - self._since_ordered, 1) if len(self._recent) >= _ENOUGH else 1
            stop = min(start + room, count)
            chunk = values[start:stop]
            highest = max(chunk)
            if self._pending or self._rare or highest > self._worth_a_look:
                for step, value in zip(steps[start:stop], chunk, strict=True):
                    excursions += [(step, excursion) for excursion in self._update(step, value)]
                    if self._rare:
                        excursions += [(step, excursion) for excursion in self._note_rare(step, value)]
            else:
                self._learn(steps[start:stop], chunk, highest)
            if self._early and len(self._recent) >= _ENOUGH:
                excursions += [(steps[stop - 1], excursion) for excursion in self._judge_early()]
            start = stop
        return excursions

    def _update(self, step: int, value: int) -> Sequence[Excursion]:
        if value > self._worth_a_look and self._since_ordered >= (1 if value > self._threshold else _ORDER_SOONEST):
            self._order()
        if value > self._threshold and (self._pending or (self._is_near(step) and self._rises_at_once(value))):
            self._pending.append((step, value))
            return self._end_shift() if len(self._pending) > RETURN_WITHIN else ()
        if value > self._threshold and not self._is_near(step):
            # a spike or slow growth: the next level tells, and this one is no measure for others
            is_as_usual = step - self._last_step <= _GAPS * self._gap
            if is_as_usual and not self._rare and self._rises_at_once(value):
                self._rare, self._rare_usual = [(step, value)], self._usual
            self._last, self._last_step = value, step
            return ()
        excursions = self._end_spike(after=value) if self._pending else ()
        self._learn((step,), (value,), value)
        return excursions

    def _note_rare(self, step: int, value: int) -> Sequence[Excursion]:
        """Add a reading after a rare one that was high: the change of level, once it has lasted, if it does."""
        first, height = self._rare[0], self._rare[0][1] - self._rare_usual
        if step > first[0]:
            self._rare.append((step, value))
        if abs(value - first[1]) > _COMES_BACK * height:
            self._rare = []
        if len(self._rare) < _RARE:
            return ()
        stays, usual = median_low([level for _, level in self._rare]), self._rare_usual
        self._rare, self._unshifted = [], usual + _COMES_BACK * (stays - usual)
        return (Excursion(ExcursionKind.SHIFT, first[0], step, stays, usual),)

    def _rises_at_once(self, value: int) -> bool:
        """Whether most of a high level was not there at the reading before."""
        return value - self._last >= AT_ONCE * (value - self._usual)

    def _is_near(self, step: int) -> bool:
        """Whether the reading before is that of a few steps ago: after more, a level may have grown."""
        return step - self._last_step <= RETURN_WITHIN

    def close(self) -> Sequence[Excursion]:
        """The excursion that is still open where steps are left out, which counts as a spike, and early ones."""
        return [*(self._end_spike() if self._pending else ()), *self._judge_early()]

    def end(self) -> Sequence[Excursion]:
        """The excursion that was open when the run ended, and those held back; three even ones are a period."""
        last = self.close()
        records = [excursion for excursion, is_record in self._before if is_record]
        highest = max((record.height for record in records), default=0)
        alike = [each for each in records if each.height >= _LIKE * highest]
        if len(alike) > EACH:
            return last
        steps = tuple(each.first_step for each in alike)
        if period := even_period(steps, [each.height for each in alike]):
            return [*last, replace(alike[-1], kind=ExcursionKind.PERIODIC, period=period, members=steps)]
        high = sorted(records, key=lambda record: -record.height)[:EACH]
        high = [each for each in high if each.height >= LEAST_PART * highest and each.first_step not in self._told]
        return [*last, *sorted(high, key=lambda record: record.first_step)]

    @property
    def has_shifted(self) -> bool:
        """Whether the last change of level stands: longer episodes get shorter again."""
        return self._unshifted > 0

    def rebase(self) -> None:
        """Forget what was usual: something outside the program has changed the level."""
        self._recent.clear()
        self._ordinary.clear()
        self._usual = self._since_ordered = 0
        self._threshold = self._worth_a_look = math.inf
        self._pending.clear()
        self._rare = []
        self._early.clear()
        self._early_levels, self._unsure = 0, None

    def _learn(self, steps: Sequence[int], values: Sequence[int], highest: int) -> None:
        if self._unsure is not None:
            self._judge_first(self._unsure, values[0])
        elif not self._recent and steps[0] > 1:
            self._unsure, highest = highest, 0
        self._recent.extend(values)
        if self._unsure is None:
            self._ordinary.extend(values)
        self._gap = (steps[-1] - self._last_step) / len(steps) if self._last_step else 1.0
        self._last, self._last_step = values[-1], steps[-1]
        if highest > self._record:
            self._record = highest
        self._since_ordered += len(values)
        if self._since_ordered >= _ORDER_EVERY or len(self._recent) < _ENOUGH:
            self._order()

    def _judge_first(self, first: int, second: int) -> None:
        """Judge the first level, in whose step a spike may have come: it was not the run's first step."""
        self._unsure = None
        if first > second + max(_FEW_PERCENT / 100 * second, self._min_spike):
            self._early_levels += 1
        else:
            self._record = max(self._record, first)
            self._ordinary.append(first)

    def _learn_each(self, steps: Sequence[int], levels: Sequence[int]) -> None:
        for step, level in zip(steps, levels, strict=True):
            self._learn((step,), (level,), level)

    def _order(self) -> None:
        """Compute what is usual and what is high from the last steps."""
        self._since_ordered = 0
        ordered = sorted(self._recent)
        usual, height = self._usual_of(ordered)
        # the excursions of the first steps are the highest: a second one is no lower for the first
        spread = ordered[-1 - self._early_levels] - ordered[0]
        if len(ordered) < FEW:
            height = max(_FEW_PERCENT / 100 * usual, _FEW_SPREADS * spread)
        elif len(ordered) < _ENOUGH:
            height = max(height, _SPREADS * spread)
        lowest = usual + max(self._share * usual, self._min_spike)
        self._usual, self._least = usual, max(height, lowest - usual)
        self._threshold = usual + _ALMOST * self._least
        if usual <= self._unshifted:
            self._unshifted = -math.inf
        self._worth_a_look = usual + _NEARLY * (lowest - usual)

    def _usual_of(self, ordered: Sequence[int]) -> tuple[int, float]:
        """Median of the last levels, given ascending, in bytes, and how far above it chance does not reach."""
        middle = (len(ordered) - 1) // 2
        usual = ordered[middle]
        if ordered[0] == ordered[-1]:
            return usual, 0.0
        tail = _SPREADS * (max(self._ordinary, default=usual) - usual)
        if len(ordered) == WINDOW:
            return usual, tail
        deviations = sorted([abs(value - usual) for value in ordered])
        return usual, max(_SIGMAS * _MAD_TO_SIGMA * deviations[middle], tail)

    def _end_spike(self, after: int = 0) -> Sequence[Excursion]:
        """The open excursion has come down to the level ``after``; what stays of it, if small, is no spike's height."""
        steps, levels = self._take_pending()
        excursion = Excursion(ExcursionKind.SPIKE, steps[0], steps[-1], max(levels), self._usual)
        if len(self._recent) < _ENOUGH:
            self._add_early(excursion, levels)
            return ()
        self._recent.extend(levels)
        is_low = excursion.height <= self._least
        if is_low:
            self._ordinary.extend(levels)
        is_lasting = excursion.peak - after < max(self._share * self._usual, self._min_spike)
        return self._news_of(excursion, counts=not (is_low or is_lasting))

    def _end_shift(self) -> Sequence[Excursion]:
        """The open excursion has lasted: it is the new level, or little enough to be learned."""
        steps, levels = self._take_pending()
        before, usual, stays = len(self._recent), self._usual, median_low(levels)
        if stays - usual <= self._least:
            self._learn_each(steps, levels)
            return ()
        self.rebase()
        self._settle(steps, levels)
        is_known = before >= 2 * FEW
        if is_known:
            self._unshifted = usual + _COMES_BACK * (stays - usual)
        return (Excursion(ExcursionKind.SHIFT, steps[0], steps[-1], stays, usual),) if is_known else ()

    def _take_pending(self) -> tuple[list[int], list[int]]:
        """Steps and levels of the open excursion, which is one no more."""
        steps, levels = [step for step, _ in self._pending], [level for _, level in self._pending]
        self._pending.clear()
        return steps, levels

    def _settle(self, steps: Sequence[int], levels: Sequence[int]) -> None:
        """Learn the new level. What stood above it and came down again may be a spike that came with the change."""
        stays = median_low(levels)
        high = stays + max(self._share * stays, self._min_spike)
        above = [(step, level) for step, level in zip(steps, levels, strict=True) if level > high]
        if above and levels[-1] <= high:
            peaks = [level for _, level in above]
            self._add_early(Excursion(ExcursionKind.SPIKE, above[0][0], above[-1][0], max(peaks), stays), peaks)
            kept = [(step, level) for step, level in zip(steps, levels, strict=True) if level <= high]
            steps, levels = [step for step, _ in kept], [level for _, level in kept]
        self._learn_each(steps, levels)

    def _add_early(self, excursion: Excursion, levels: Sequence[int]) -> None:
        """Keep an excursion, of these levels, until it is known what is usual."""
        self._early.append(excursion)
        self._early_levels += len(levels)
        self._recent.extend(levels)

    def _judge_early(self) -> Sequence[Excursion]:
        """Judge the excursions of the first steps, now that it is known what is usual.

        Several may be the first ones of a period: they are held back until it shows, or the run ends.
        """
        early, self._early, self._early_levels = self._early, [], 0
        if not early:
            return ()
        usual, height = self._usual_of(sorted(self._recent))
        few = _FEW_PERCENT / 100 * usual if len(self._recent) < FEW else 0.0  # as a window begins
        least = max(height, few, self._share * usual, self._min_spike)
        for each in sorted(early, key=lambda excursion: excursion.peak):
            if each.peak <= usual + least:
                self._ordinary.append(each.peak)
                least = max(least, _SPREADS * (each.peak - usual))
        high = [replace(each, usual=usual) for each in early if each.peak > usual + _ALMOST * least]
        excursions: list[Excursion] = []
        for each in high:
            excursions += self._news_of(each, counts=each.height > least, is_held=len(high) > 1)
        return excursions

    def _news_of(self, excursion: Excursion, *, counts: bool, is_held: bool = False) -> Sequence[Excursion]:
        """The spike itself if it ``counts`` as one, the period that it reveals, or nothing if its like was there."""
        # high steps with a gap between them are one event
        apart = not self._before or excursion.first_step - self._before[-1][0].last_step > RETURN_WITHIN
        is_expected = self.periodicity.expects(excursion.first_step)
        is_revealed = apart and self.periodicity.add(excursion.first_step, excursion.height)
        is_record = counts and excursion.peak > self._record * (1 + min(_RECORD, self._share))
        if is_expected and excursion.height <= HIGHER * self._periodic_height:
            return ()
        highest = max((before.height for before, _ in self._before), default=0)
        self._before.append((excursion, is_record))
        if is_revealed:
            return self._revealed(excursion)
        is_news = is_record and not is_held and excursion.height > _HIGHER * highest
        return self._tell(excursion) if is_news else ()

    def _tell(self, excursion: Excursion) -> Sequence[Excursion]:
        self._told.append(excursion.first_step)
        return (excursion,)

    def _revealed(self, excursion: Excursion) -> Sequence[Excursion]:
        """The period, and the highest excursion outside it, which may have been held back by the periodic ones."""
        expects = self.periodicity.expects
        members = [before for before, _ in self._before if expects(before.first_step)]
        others = [(before, is_record) for before, is_record in self._before if not expects(before.first_step)]
        self._periodic_height = max(member.height for member in members)
        self._before = deque(others, WINDOW)
        steps = tuple(member.first_step for member in members)
        periodic = replace(excursion, kind=ExcursionKind.PERIODIC, period=self.periodicity.period, members=steps)
        records = [other for other, is_record in others if is_record]
        return (periodic, *self._tell(max(records, key=lambda record: record.height))) if records else (periodic,)
