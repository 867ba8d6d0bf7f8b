"""Excursions of the CPU in the resident peaks that every screen shows; they are judged less what malloc had free."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low
from typing import NamedTuple

from tbmem.analysis.detector.spike_test import AT_ONCE, FEW, WINDOW, Excursion, ExcursionKind

_PEAKS = 32 * WINDOW
"""Peaks that are remembered: one of some spikes, or one outside a period, may be reported when the run ends."""
_NOTICEABLE = 0.1  # part of an excursion's height from which on what malloc had kept free is mentioned
_MAY_BE_PAGES = 0.5
"""Part of an excursion's height from which on it may be pages of the heap that come back, if so many were absent."""


class ResidentPeak(NamedTuple):
    """The resident peak of a step, in bytes."""

    step: int
    peak: int  # as every screen shows it
    level: int  # the same less what malloc had free
    absent: int = 0  # bytes of malloc's heap that were not resident when the step began


class ResidentPeaks(deque[ResidentPeak]):
    """The resident peaks of the last steps."""

    def __init__(self, least_free: int | None = None) -> None:
        super().__init__(maxlen=_PEAKS)
        self.least_free = least_free
        """Bytes that malloc had free before the steps that it has kept least for."""
        self._usual_since = 0  # first step of the last change of level: of what comes after it, no earlier one is usual

    def have(self, first: int, last: int) -> bool:
        """Whether a peak of some steps is remembered."""
        return any(first <= each.step <= last for each in self)

    def end_with(self, excursion: Excursion) -> bool:
        """Whether the last peak is one of an excursion's."""
        return bool(self) and excursion.first_step <= self[-1].step <= excursion.last_step

    def of(self, excursion: Excursion) -> Excursion | None:
        """The steps of another level's excursion in resident peaks; ``None`` where they are not known."""
        within, before = self._around(excursion)
        if not within or not before:
            return None
        peak, usual = max(each.level for each in within), median_low([each.level for each in before])
        return self.shown(replace(excursion, peak=peak, usual=usual))

    def climb_to(self, shift: Excursion) -> bool:
        """Whether the peaks come slowly to a new level, which malloc's counters, read after a time, show at once."""
        within = [each for each in self if shift.first_step <= each.step <= shift.last_step]
        before = [each for each in self if self._usual_since <= each.step < shift.first_step][-len(within) :]
        return bool(within and before) and _usual_peak(within) - _usual_peak(before) < AT_ONCE * shift.height

    def with_allocated(self, step: int, allocated: int) -> Excursion | None:
        """A step that allocated so many bytes beyond the usual, in resident peaks; ``None`` where that is not known."""
        within, before = self._around(Excursion(ExcursionKind.SPIKE, step, step, allocated, 0))
        if not within or not before:
            return None
        peak, usual = max(each.peak for each in within), _usual_peak(before)
        return Excursion(ExcursionKind.SPIKE, step, step, peak, usual, kept=max(allocated - (peak - usual), 0))

    def shown(self, excursion: Excursion) -> Excursion:
        """An excursion, judged less malloc's free memory, in resident peaks; as it is where its steps are forgotten."""
        within, before = self._around(excursion)
        if excursion.kind is ExcursionKind.SHIFT:
            self._usual_since = excursion.first_step
        if not within or not before:
            return excursion
        # a change of level is as high as most of its steps: one that came with it may be higher
        is_shift = excursion.kind is ExcursionKind.SHIFT
        peak = _usual_peak(within) if is_shift else max(each.peak for each in within)
        usual = _usual_peak(before)
        kept = excursion.height - (peak - usual)
        least = _NOTICEABLE * excursion.height
        more = 0 if is_shift else self._kept_of_earlier_steps(before) - max(kept, 0)
        excursion = replace(excursion, peak=peak, usual=usual, kept=kept if kept > least else 0)
        return replace(excursion, may_be_more=more if more > least else 0)

    def _kept_of_earlier_steps(self, before: Sequence[ResidentPeak]) -> int:
        """Bytes that malloc had free before an excursion, beyond what it had when it had kept least.

        The steps that are usual need no more of it than they did then: what is more is of an earlier excursion.
        """
        free = median_low([each.peak - each.level for each in before])
        self.least_free = free if self.least_free is None else min(free, self.least_free)
        return free - self.least_free

    def _around(self, excursion: Excursion) -> tuple[list[ResidentPeak], list[ResidentPeak]]:
        """The peaks of an excursion's steps, and those that tell what is usual."""
        first, last = excursion.first_step, excursion.last_step
        since = self._usual_since if first >= self._usual_since else 0
        within = [each for each in self if first <= each.step <= last]
        before = [each for each in self if max(first - WINDOW, since) <= each.step < first]
        if len(before) < FEW and within:  # then others tell what is usual as well
            others = [each for each in self if since <= each.step and not first <= each.step <= last]
            # malloc may keep what the excursion has freed, unless it is pages of the heap that have come back
            may_be_pages = within[0].absent > _MAY_BE_PAGES * excursion.height
            known = [part for part in (others, () if may_be_pages else before) if part]
            before = list(min(known, key=_usual_peak, default=()))
        return within, before


def _usual_peak(peaks: Sequence[ResidentPeak]) -> int:
    return median_low([each.peak for each in peaks])
