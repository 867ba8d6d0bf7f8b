"""Excursions in the resident peaks that the screens show."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.resident_peaks import ResidentPeak, ResidentPeaks
from tbmem.analysis.detector.spike_test import Excursion, ExcursionKind
from tests.conftest import MIB


def _peaks(*levels: int, free: int = 150, absent: int = 0) -> ResidentPeaks:
    peaks = ResidentPeaks()
    rows = ((step, level * MIB, (level - free) * MIB) for step, level in enumerate(levels, 1))
    peaks.extend(ResidentPeak(*row, absent=absent * MIB) for row in rows)
    return peaks


def test_a_jump_is_told_in_the_peaks_that_the_screens_show() -> None:
    # given what was judged: 150 MiB less, which malloc had free at each step's beginning
    judged = Excursion(ExcursionKind.SPIKE, 41, 41, 850 * MIB, 350 * MIB)

    shown = _peaks(*[500] * 40, 1000).shown(judged)

    assert (shown.peak, shown.usual, shown.height, shown.kept) == (1000 * MIB, 500 * MIB, 500 * MIB, 0)


def test_what_malloc_had_kept_free_is_told_apart() -> None:
    # given a second spike: malloc has kept 300 of the 500 MiB of the first
    judged = Excursion(ExcursionKind.SPIKE, 41, 41, 850 * MIB, 350 * MIB)

    shown = _peaks(*[800] * 40, 1000).shown(judged)

    assert (shown.peak, shown.usual, shown.height, shown.kept) == (1000 * MIB, 800 * MIB, 500 * MIB, 300 * MIB)


def test_what_malloc_has_kept_of_a_first_jump_may_hold_part_of_a_second() -> None:
    # given 20 MiB that malloc had free before a first jump, of which it keeps 130 more
    peaks = _peaks(*[500] * 40, 700, free=20)
    first = peaks.shown(Excursion(ExcursionKind.SPIKE, 41, 41, 680 * MIB, 480 * MIB))
    rows = [(step, 630 if step < 82 else 800) for step in range(42, 83)]
    peaks.extend(ResidentPeak(step, level * MIB, (level - 150) * MIB) for step, level in rows)

    second = peaks.shown(Excursion(ExcursionKind.SPIKE, 82, 82, 650 * MIB, 480 * MIB))

    assert (first.height, first.may_be_more) == (200 * MIB, 0)
    assert (second.height, second.may_be_more) == (170 * MIB, 130 * MIB)


@pytest.mark.parametrize(("levels", "climbs"), [([500] * 20 + [700] * 6, False), (range(440, 570, 5), True)])
def test_a_level_that_the_peaks_climb_to_does_not_come_at_once(levels: list[int], climbs: bool) -> None:
    # given: malloc's counters were not read while memory grew, so that the growth shows in one step
    shift = Excursion(ExcursionKind.SHIFT, 21, 26, 450 * MIB, 350 * MIB)
    assert _peaks(*levels).climb_to(shift) is climbs


def test_the_usual_is_that_of_the_steps_before() -> None:
    # given a level that changes at step 20, and a spike some steps later
    peaks = _peaks(*[500] * 20, *[700] * 20, 1200)

    shift = peaks.shown(Excursion(ExcursionKind.SHIFT, 21, 26, 600 * MIB, 400 * MIB))
    spike = peaks.shown(Excursion(ExcursionKind.SPIKE, 41, 41, 1100 * MIB, 600 * MIB))

    assert (shift.peak, shift.usual) == (700 * MIB, 500 * MIB)
    assert (spike.peak, spike.usual) == (1200 * MIB, 700 * MIB)


def test_a_step_before_a_change_of_level_is_told_in_its_peak_afterwards_too() -> None:
    # given a large step that is told when the run ends, and a level that changed after it
    peaks = _peaks(*[500] * 20, 900, *[500] * 9, *[700] * 20)
    peaks.shown(Excursion(ExcursionKind.SHIFT, 31, 36, 600 * MIB, 400 * MIB))

    spike = peaks.shown(Excursion(ExcursionKind.SPIKE, 21, 21, 750 * MIB, 350 * MIB))

    assert (spike.peak, spike.usual, spike.kept) == (900 * MIB, 500 * MIB, 0)


def test_a_change_of_level_is_as_high_as_most_of_its_steps() -> None:
    # given a large step, of whose memory malloc keeps some for good
    peaks = _peaks(*[500] * 20, 1200, *[700] * 20)

    shift = peaks.shown(Excursion(ExcursionKind.SHIFT, 21, 26, 550 * MIB, 350 * MIB))

    assert (shift.peak, shift.usual, shift.height) == (700 * MIB, 500 * MIB, 200 * MIB)


@pytest.mark.parametrize(("absent", "height"), [(0, 90), (40, 90), (50, 20)])
def test_an_early_jump_of_which_malloc_keeps_most_is_as_high_as_it_was(absent: int, height: int) -> None:
    # given three steps before a jump, and a heap that stays large after it; pages of it may have come back
    judged = Excursion(ExcursionKind.SPIKE, 4, 4, 310 * MIB, 220 * MIB)

    shown = _peaks(370, 370, 370, 460, *[440] * 40, absent=absent).shown(judged)

    assert shown.peak - shown.usual == height * MIB


def test_what_was_held_is_told_in_the_peaks_of_its_steps() -> None:
    # given a step that still holds 50 MiB at its end, and has freed 450 by then
    held = Excursion(ExcursionKind.SPIKE, 41, 41, 190 * MIB, 140 * MIB)

    peaks = _peaks(*[500] * 40, 1000).of(held)

    assert peaks is not None
    assert (peaks.peak, peaks.usual, peaks.height, peaks.kept) == (1000 * MIB, 500 * MIB, 500 * MIB, 0)
    assert ResidentPeaks().of(held) is None


def test_a_jump_of_steps_that_are_not_remembered_stays_as_it_was_judged() -> None:
    judged = Excursion(ExcursionKind.SPIKE, 41, 41, 850 * MIB, 350 * MIB)

    assert ResidentPeaks().shown(judged) == judged
