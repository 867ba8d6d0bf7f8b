"""Resident peaks of the last steps: the figures in which a jump of the resident memory is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median_low

from tbmem.analysis.detector.bounded_list import BoundedList
from tbmem.analysis.detector.spike_test import WINDOW, Excursion, ExcursionKind

_REMEMBERED = 4 * WINDOW
"""Steps: a jump of the first steps, or one outside a beat, is told some time after it was seen."""
_FEW = 8
"""With fewer steps before a jump the later ones count as well."""
_NOTICEABLE = 0.1
"""Part of a jump's height from which on it is told what malloc had kept free."""


class ResidentPeaks:
    """Remembers the peaks as every screen shows them; they are judged less what malloc had free when a step began."""

    def __init__(self) -> None:
        self._peaks: BoundedList[tuple[int, int]] = BoundedList(_REMEMBERED)

    def note(self, peaks: Iterable[tuple[int, int]]) -> None:
        """Take in steps and their peaks in bytes."""
        self._peaks.extend(peaks)

    def shown(self, excursion: Excursion) -> Excursion:
        """A jump as it was judged, in the peaks that the screens show.

        Args:
            excursion: Its peak and what is usual are less malloc's free memory.

        Returns:
            The jump with the resident peak and the usual one, and what of its height they do not show; as it was
            judged where its steps are no longer known.
        """
        within = [peak for step, peak in self._peaks if excursion.first_step <= step <= excursion.last_step]
        before = [peak for step, peak in self._peaks if excursion.first_step - WINDOW <= step < excursion.first_step]
        if len(before) < _FEW:
            before = [peak for step, peak in self._peaks if not excursion.first_step <= step <= excursion.last_step]
        if excursion.kind is ExcursionKind.SHIFT:
            self._forget(excursion.first_step)
        if not within or not before:
            return excursion
        peak, usual = max(within), median_low(before)
        kept = excursion.height - (peak - usual)
        return replace(excursion, peak=peak, usual=usual, kept=kept if kept > _NOTICEABLE * excursion.height else 0)

    def _forget(self, until: int) -> None:
        """Forget the steps before a change of level: they say no longer what is usual."""
        while self._peaks and self._peaks[0][0] < until:
            del self._peaks[0]

    def clear(self) -> None:
        """Forget all: something outside the training has changed the level."""
        self._peaks.clear()
