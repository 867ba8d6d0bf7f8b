"""Happenings in a regular beat."""

from __future__ import annotations

import random

import pytest

from tbmem.analysis.detector.periodicity import Periodicity, even_period


def fed(steps: list[int]) -> tuple[Periodicity, list[int]]:
    periodicity = Periodicity()
    return periodicity, [step for step in steps if periodicity.add(step, 100)]


@pytest.mark.parametrize(("period", "needed"), [(8, 4), (25, 4), (60, 3), (250, 3)])
def test_some_at_equal_distances_are_a_beat_the_fewer_the_longer_it_is(period: int, needed: int) -> None:
    periodicity, known = fed([number * period + 3 for number in range(1, 6)])
    assert known == [needed * period + 3]
    assert periodicity.period == period
    assert periodicity.members[-1] == 5 * period + 3


def test_a_step_early_or_late_is_the_same_beat() -> None:
    periodicity, known = fed([100, 201, 299])
    assert known == [299]
    assert periodicity.expects(399)
    assert not periodicity.expects(350)


def test_what_comes_in_between_does_not_hide_a_beat() -> None:
    periodicity, known = fed([107, 144, 207, 229, 307, 407])
    assert known == [407]
    assert periodicity.period == 100


def test_a_beat_of_which_some_are_left_out_is_known_from_four() -> None:
    periodicity, known = fed([57, 157, 207, 407, 457])
    assert known[0] <= 457
    assert periodicity.period in (50, 100)


def test_what_is_left_out_is_still_expected_later() -> None:
    periodicity, _ = fed([100, 200, 300])
    assert periodicity.expects(700)
    assert not periodicity.expects(730)


def test_chance_is_hardly_ever_a_beat() -> None:
    found = 0
    for seed in range(200):
        dice = random.Random(seed)
        periodicity, _ = fed(sorted(dice.sample(range(5000), 4)))
        found += periodicity.period > 0
    assert found <= 20


def test_events_at_random_in_a_short_run_are_seldom_a_beat() -> None:
    # given episodes of an agent: nine excursions of various heights in five hundred steps (four of five were a beat)
    found = 0
    for seed in range(200):
        dice, periodicity = random.Random(seed), Periodicity()
        for step in sorted(dice.sample(range(30, 500), 9)):
            periodicity.add(step, int(100 * dice.lognormvariate(0, 0.3)))
        found += periodicity.period > 0
    assert found <= 25


@pytest.mark.parametrize(
    ("steps", "period"),
    [((28, 41, 54), 13), ((28, 41, 55), 14), ((28, 41, 56), 0), ((28, 41), 0), ((), 0), ((2, 6, 10), 0)],
)
def test_three_that_lie_evenly(steps: tuple[int, ...], period: int) -> None:
    assert even_period(steps, [100] * len(steps)) == period


@pytest.mark.parametrize(("steps", "period"), [((91, 163, 236), 0), ((90, 163, 236), 73)])
def test_three_of_different_heights_must_lie_evenly_to_the_step(steps: tuple[int, ...], period: int) -> None:
    assert even_period(steps, [51, 90, 70]) == period


def test_one_or_two_are_none() -> None:
    assert fed([])[0].period == 0
    assert fed([5])[0].period == 0
    assert fed([5, 50])[0].period == 0


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize(("period", "needed"), [(10, 3), (30, 3), (100, 2)])
def test_the_start_of_the_run_counts_as_one_of_a_beat(start: int, period: int, needed: int) -> None:
    # given: step % period == 0, counted from 1 or from 0
    _, known = fed([start + period, start + 2 * period, start + 3 * period])
    assert known == [start + needed * period]


def test_two_of_which_the_second_is_much_higher_are_no_beat_with_the_start() -> None:
    periodicity = Periodicity()
    assert not periodicity.add(21, 100)
    assert not periodicity.add(42, 151)
