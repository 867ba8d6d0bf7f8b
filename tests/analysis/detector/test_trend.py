"""Floors that climb, and those that only seem to."""

from __future__ import annotations

import random

import pytest
from scipy.stats import kendalltau

from tbmem.analysis.detector.low_water_marks import LowWaterMark, LowWaterMarks
from tbmem.analysis.detector.trend import Trend, climbs, is_explained, is_line, kendall, rises_regularly, tau_for


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_that_of_scipy(seed: int) -> None:
    dice = random.Random(seed)
    values = [dice.random() for _ in range(20)]
    assert kendall(values) == pytest.approx(kendalltau(range(20), values).statistic)


def test_tau_by_chance_is_rare() -> None:
    # given: what is four standard deviations from chance comes three times in a hundred thousand
    dice = random.Random(0)
    limit = tau_for(16, 3.0)
    hits = sum(kendall([dice.random() for _ in range(16)]) >= limit for _ in range(3000))
    assert hits <= 15
    assert tau_for(6, 4.9) == 1.0


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (list(range(12)), True),
        ([0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 11, 10], True),
        ([5] * 12, False),
        (list(range(12, 0, -1)), False),
        ([0] * 6 + [10] * 6, False),
        ([0] * 4 + [5] * 4 + [10] * 4, False),
        ([0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 6], False),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3], False),
        ([0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 5, 10], False),
    ],
    ids=["line", "noise", "flat", "falling", "one jump", "two jumps", "ended", "just begun", "sawtooth"],
)
def test_a_climb_goes_on_throughout(levels: list[float], expected: bool) -> None:
    assert climbs(levels, 1, 3.4) is expected


def test_a_climb_that_is_too_small_does_not_count() -> None:
    assert not climbs(list(range(12)), 12, 3.4)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], True),
        ([0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4], False),
        ([0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4], False),
        ([0, 1, 2, 12, 13, 14], False),
        ([0, 10, 20, 30, 40, 40.01, 40.02, 40.03], False),
    ],
    ids=["every other", "gaps of all lengths", "ended", "one large", "crumbs"],
)
def test_regular_rises(levels: list[float], expected: bool) -> None:
    assert rises_regularly(levels, 1, 4) is expected


def test_a_line_rises_evenly() -> None:
    assert is_line([0, 10, 21, 30, 42])
    assert not is_line([0, 10, 11, 30, 42])


def grown(counts: list[int | None], needs: list[int]) -> list[LowWaterMark]:
    return [
        LowWaterMark(step, step, step, count, need)
        for step, (count, need) in enumerate(zip(counts, needs, strict=True))
    ]


def test_more_allocations_explain_nothing() -> None:
    marks = grown(list(range(24)), list(range(100, 124)))
    assert not is_explained(marks[12:], marks)


def test_longer_sequences_explain_growth_without_more_allocations() -> None:
    marks = grown([7] * 24, list(range(100, 124)))
    assert is_explained(marks[12:], marks)


def test_one_growing_tensor_is_told_from_longer_sequences_when_there_are_enough_floors() -> None:
    marks = grown([7] * 24, [100] * 24)
    assert not is_explained(marks[12:], marks)
    assert is_explained(marks[12:], marks[6:])


def test_where_allocations_are_not_counted_nothing_is_explained() -> None:
    marks = grown([None] * 24, list(range(100, 124)))
    assert not is_explained(marks[12:], marks)


def _marks(levels: list[float], block: int = 4) -> list[LowWaterMark]:
    """Marks of blocks of so many steps, from step 1 on."""
    return [LowWaterMark(level, block * at + 1, block * (at + 1)) for at, level in enumerate(levels)]


@pytest.mark.parametrize(
    ("levels", "first"),
    [
        ([0, 10, 20, 30, 40, 50, 60, 70], 0),
        ([0, 0, 0, 0, 10, 20, 30, 40], 3),
        ([0, 0, 1, 2, 2, 3, 3, 23, 43, 63, 83, 103], 6),
        ([0, 0, 0, 10, 10, 20, 20, 30, 30, 40], 2),
        ([0, 6, 12, 18, 24, 30, 50, 70, 90, 110], 0),
        ([0, 10, 12, 14, 16, 18, 20, 22, 200, 400], 0),
        ([0, 30, 60, 80, 95, 105, 110, 112], 0),
    ],
    ids=["line", "flat before", "caches before", "stairs", "slower before", "too few since", "slows down"],
)
def test_growth_begins_where_its_pace_has_been_next_to_none_before(levels: list[float], first: int) -> None:
    marks = _marks(levels)
    assert Trend.over(marks, 0, LowWaterMarks()).first == marks[first]


def test_what_it_has_grown_by_shows_later_where_it_began() -> None:
    # given growth by a little, as a cache fills, that is suspected when a leak has just begun
    marks = _marks([0, 4, 4, 6, 8, 8, 28, 48, 68, 88, 108, 128])
    trend = Trend.over(marks[:8], 0, LowWaterMarks())
    assert trend.first == marks[0]
    # when it goes on
    trend.go_on(marks[-1], marks)
    # then
    assert trend.first == marks[5]
    assert trend.last == marks[-1]
    # and it is known that nothing like it was before
    assert not trend.climbed_before


def test_marks_of_a_coarser_scale_do_not_move_where_steady_growth_began() -> None:
    # given growth that began between two marks of the scale on which it is followed now
    fine, coarse = _marks([10.0 * at for at in range(24)]), _marks([20.0 * at for at in range(12)], block=8)
    trend = Trend.over(fine[3:12], 0, LowWaterMarks())
    # when it goes on
    trend.go_on(coarse[-1], coarse)
    # then
    assert trend.first == fine[3]


def test_marks_that_do_not_reach_back_to_where_it_began_do_not_move_that() -> None:
    marks = _marks([0, 10, 20, 30, 40, 50, 50, 50, 50, 60, 70, 80])
    trend = Trend.over(marks[:6], 0, LowWaterMarks())
    trend.go_on(marks[-1], marks[4:])
    assert trend.first == marks[0]
