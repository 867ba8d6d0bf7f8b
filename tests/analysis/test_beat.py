"""Happenings in a regular beat."""

from __future__ import annotations

import random

import pytest

from tbmem.analysis.beat import Beat


def fed(steps: list[int]) -> tuple[Beat, list[int]]:
    beat = Beat()
    return beat, [step for step in steps if beat.add(step)]


@pytest.mark.parametrize("period", [8, 25, 250])
def test_three_at_equal_distances_are_a_beat(period: int) -> None:
    beat, known = fed([period, 2 * period, 3 * period, 4 * period])
    assert known == [3 * period]
    assert beat.period == period
    assert beat.members[-1] == 4 * period


def test_a_step_early_or_late_is_the_same_beat() -> None:
    beat, known = fed([100, 201, 299])
    assert known == [299]
    assert beat.expects(399)
    assert not beat.expects(350)


def test_what_comes_in_between_does_not_hide_a_beat() -> None:
    beat, known = fed([100, 137, 200, 222, 300])
    assert known == [300]
    assert beat.period == 100


def test_a_beat_of_which_some_are_left_out_is_known_from_four() -> None:
    beat, known = fed([50, 150, 200, 400, 450])
    assert known[0] <= 450
    assert beat.period in (50, 100)


def test_what_is_left_out_is_still_expected_later() -> None:
    beat, _ = fed([100, 200, 300])
    assert beat.expects(700)
    assert not beat.expects(730)


def test_chance_is_hardly_ever_a_beat() -> None:
    found = 0
    for seed in range(200):
        dice = random.Random(seed)
        beat, _ = fed(sorted(dice.sample(range(5000), 4)))
        found += beat.period > 0
    assert found <= 20


def test_one_or_two_are_none() -> None:
    assert fed([])[0].period == 0
    assert fed([5])[0].period == 0
    assert fed([5, 50])[0].period == 0
