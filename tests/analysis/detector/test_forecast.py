"""When memory will run out."""

from __future__ import annotations

import random

import pytest
from scipy.stats import theilslopes

from tbmem.analysis.detector.forecast import Forecast, forecast
from tbmem.analysis.growth_rate import Point
from tbmem.units import GIB, MIB


def climb(count: int, per_step: float, every: int = 16, noise: float = 0, seed: int = 0) -> list[Point]:
    dice = random.Random(seed)
    return [Point(every * at, 40 * GIB + per_step * every * at + noise * dice.random()) for at in range(1, count + 1)]


def test_a_straight_climb_has_one_answer() -> None:
    # given: 10 MiB a step from 40 GiB on, until 80
    ahead = forecast(climb(20, 10 * MIB), capacity=80 * GIB, step=320)
    # then: 4096 steps in all, of which 320 have passed
    assert ahead == Forecast(3776, 3776, 3776, rate=10 * MIB)


def test_what_the_steps_need_on_top_is_not_left() -> None:
    ahead = forecast(climb(20, 10 * MIB), capacity=80 * GIB, lift=20 * GIB, step=320)
    assert ahead is not None
    assert ahead.steps == 2048 - 320


def test_steps_are_counted_from_the_step_that_is_given() -> None:
    ahead = forecast(climb(20, 10 * MIB), capacity=80 * GIB, step=1000)
    assert ahead is not None
    assert ahead.steps == 4096 - 1000


@pytest.mark.parametrize("seed", range(10))
def test_noise_is_met_as_theil_and_sen_do_and_the_truth_lies_in_the_band(seed: int) -> None:
    # given: noise of a third of the growth
    points = climb(24, 10 * MIB, noise=GIB, seed=seed)
    slope = theilslopes([level for _, level in points], [step for step, _ in points]).slope
    # when
    ahead = forecast(points, capacity=80 * GIB, step=points[-1].step)
    # then
    assert ahead is not None
    assert ahead.steps_high is not None
    assert ahead.steps_low <= ahead.steps <= ahead.steps_high
    assert ahead.steps == pytest.approx((80 - 40.5) * GIB / slope - 384, rel=0.1)
    assert ahead.steps_low * 0.97 <= 3712 <= ahead.steps_high * 1.03


def test_one_wild_point_changes_little() -> None:
    points = climb(20, 10 * MIB)
    points[10] = Point(points[10].step, 70 * GIB)
    ahead = forecast(points, capacity=80 * GIB, step=points[-1].step)
    assert ahead is not None
    assert ahead.steps == pytest.approx(3776, rel=0.01)


@pytest.mark.parametrize("per_step", [0, -10 * MIB])
def test_what_does_not_climb_has_no_end(per_step: float) -> None:
    assert forecast(climb(20, per_step), capacity=80 * GIB, step=320) is None


@pytest.mark.parametrize("count", [0, 1])
def test_one_point_is_no_climb(count: int) -> None:
    assert forecast(climb(count, MIB), capacity=80 * GIB, step=0) is None


def test_a_device_that_is_full_has_no_step_left() -> None:
    ahead = forecast(climb(20, 10 * MIB), capacity=40 * GIB, step=320)
    assert ahead is not None
    assert ahead[:3] == (0, 0, 0)


def test_the_slow_end_of_the_band_may_be_open() -> None:
    # given: half of the comparisons fall
    points = [Point(at, float(level)) for at, level in enumerate([5, 1, 6, 2, 7, 3, 9, 8, 12, 6])]
    ahead = forecast(points, capacity=100, step=9)
    assert ahead is not None
    assert ahead.steps_high is None


def test_where_only_what_is_left_is_known_it_is_left_now() -> None:
    # given: 10 GiB that the host can still give
    ahead = forecast(climb(20, 10 * MIB), room=10 * GIB, step=320)
    assert ahead is not None
    assert ahead[:3] == (1024, 1024, 1024)


def test_a_far_end_is_told_with_four_figures() -> None:
    # given 1 byte a step, and room for 2,233,152 of them
    points = [Point(step, float(step)) for step in range(40)]
    # when
    ahead = forecast(points, room=2_233_152, step=39)
    # then
    assert ahead is not None
    assert (ahead.steps, ahead.steps_low, ahead.steps_high) == (2_233_000, 2_233_000, 2_233_000)


def test_a_faster_rate_brings_the_whole_band_nearer() -> None:
    assert Forecast(3000, 2000, 4500, rate=2.0).at_rate(3.0) == Forecast(2000, 1333, 3000, rate=3.0)
    assert Forecast(3000, 2000, None, rate=2.0).at_rate(3.0).steps_high is None


def test_seconds_are_those_of_the_steps_where_the_speed_is_known() -> None:
    assert Forecast(3000, 2000, 4500).at_speed(0.5).seconds == 1500
    assert Forecast(3000, 2000, 4500).at_speed(None).seconds is None
