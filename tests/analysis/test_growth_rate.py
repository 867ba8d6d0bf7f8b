"""The growth rate, the steps that it counts, and how long a step takes."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pytest
from scipy.stats import theilslopes

from tbmem.analysis.growth_rate import (
    Point,
    Splice,
    StepTime,
    growth_per_repetition,
    growth_rate,
    steady_growth_rate,
    thinned,
)
from tests.conftest import MIB


def test_it_is_nearly_the_one_of_theil_and_sen() -> None:
    generator = np.random.default_rng(0)
    levels = [float(level) for level in 1000 * np.arange(50) + generator.normal(0, 5000, 50)]
    points = [Point(step, level) for step, level in enumerate(levels)]
    assert growth_rate(points) == pytest.approx(theilslopes(levels, range(50)).slope, rel=0.05)


@pytest.mark.parametrize("every", [2, 7, 20])
def test_stairs_have_the_rate_of_the_ramp_below_them(every: int) -> None:
    points = [Point(step, step // every * every * MIB) for step in range(0, 400, 4)]
    assert growth_rate(points) == pytest.approx(MIB, rel=0.01)


@pytest.mark.parametrize("at", [25, 50, 75])
def test_one_change_of_level_is_no_growth(at: int) -> None:
    points = [Point(step, 64 * MIB if step < at else 128 * MIB) for step in range(100)]
    assert steady_growth_rate(points) == 0


@pytest.mark.parametrize("slope", [MIB, -MIB, 0])
def test_what_rises_in_both_halves_is_growth(slope: int) -> None:
    points = [Point(step, slope * step) for step in range(100)]
    assert steady_growth_rate(points) == growth_rate(points) == slope


def test_three_points_tell_nothing() -> None:
    assert growth_rate([Point(step, step) for step in range(3)]) is None


def test_points_of_one_step_tell_nothing() -> None:
    assert growth_rate([Point(1, level) for level in range(5)]) is None


def test_many_points_are_thinned_out_evenly() -> None:
    steps = [point.step for point in thinned([Point(16 * at, at) for at in range(1, 1001)])]
    assert len(steps) == 64
    assert (steps[0], steps[-1]) == (16, 16_000)
    assert np.ptp(np.diff(steps)) <= 16


def test_what_was_left_out_is_left_out_of_levels_and_of_steps() -> None:
    # given: a MiB a step; the profiler is on in steps 21 to 50, and leaves 100 MiB behind
    splice = Splice()
    points = [splice.join(step, step * MIB) for step in range(1, 21)]
    splice.interrupt()
    points += [splice.join(step, (step + 100) * MIB) for step in range(51, 71)]

    assert growth_rate(points) == pytest.approx(MIB)
    assert (splice.steps, splice.bytes) == (31, 131 * MIB)


def test_steps_that_were_not_read_keep_their_share_of_what_was_left_out() -> None:
    # given: a MiB a step; of steps 21 to 120 ten are profiled, and of the others none is read
    splice = Splice()
    before = [splice.join(step, step * MIB) for step in range(1, 21)][-1]
    splice.interrupt()
    after = splice.join(121, 121 * MIB, unread=90)

    assert after.level - before.level == pytest.approx(101 * MIB * 90 / 101)
    assert splice.steps == 11


@pytest.mark.parametrize("trusts_falls", [True, False])
def test_what_the_program_has_freed_in_what_was_left_out_has_fallen(trusts_falls: bool) -> None:
    # given a list that grows by a MiB a step, and is emptied while a profiler is on in steps 96 to 104
    splice = Splice(trusts_falls=trusts_falls)
    points = [splice.join(step, step * MIB) for step in range(1, 96)]
    splice.interrupt()
    # when
    points += [splice.join(step, (step - 100) * MIB) for step in range(105, 201)]
    # then, where the level is that of what is alive, it has not risen to 190 MiB
    assert max(point.level for point in points) == (100 if trusts_falls else 190) * MIB
    assert splice.fallen == (90 * MIB if trusts_falls else 0)


def test_of_a_resident_level_so_much_has_fallen_as_is_known() -> None:
    # given a level that is 90 MiB lower afterwards, of which the program has freed 60
    splice = Splice(trusts_falls=False)
    before = [splice.join(step, step * MIB) for step in range(1, 96)][-1]
    splice.interrupt()
    splice.known_fall += 60 * MIB
    # when / then
    assert before.level - splice.join(105, 5 * MIB).level == 60 * MIB


def test_a_level_that_wavers_has_not_fallen() -> None:
    # given what rises by a MiB in twenty steps, and wavers by half of that
    splice = Splice()
    for step in range(1, 96):
        splice.join(step, step * MIB // 20 + step % 2 * MIB // 2)
    splice.interrupt()
    # when / then
    splice.join(105, 105 * MIB // 20 - MIB // 2)
    assert splice.fallen == 0


def test_an_interruption_before_the_first_point_leaves_nothing_out() -> None:
    splice = Splice()
    splice.interrupt()
    assert splice.join(7, 5.0) == Point(7, 5.0)


def test_a_step_lasts_as_long_as_those_without_a_profiler() -> None:
    # given: half a second a step; steps 4 and 5 are profiled, and the writing after them takes 10 s
    clock = StepTime()
    for step, time in ((1, 0.5), (2, 1.0), (3, 1.5), (4, 6.0), (5, 11.0), (6, 21.5), (7, 22.0), (9, 23.0)):
        clock.add(step, time, profiled=step in (4, 5))

    assert clock.seconds == pytest.approx(0.5)


def test_the_duration_of_a_step_is_that_of_the_later_ones() -> None:
    # given: the first 10 steps take a second each, those after them a tenth
    times = [float(step) if step <= 10 else 10 + (step - 10) / 10 for step in range(1, 201)]
    clock = StepTime()
    for step, time in enumerate(times, 1):
        clock.add(step, time, profiled=False)

    assert clock.seconds == pytest.approx(0.1)


@pytest.mark.parametrize("size", [2, 7, 50, 200])
def test_the_duration_of_a_step_is_the_same_for_batches(size: int) -> None:
    # given
    dice = random.Random(size)
    steps = sorted(dice.sample(range(1, 500), 200))
    times = list(accumulate(dice.random() for _ in steps))
    singly, together = StepTime(), StepTime()
    # when
    for step, time in zip(steps, times, strict=True):
        singly.add(step, time, profiled=False)
    for start in range(0, 200, size):
        batch = steps[start : start + size], times[start : start + size]
        for index in (0, min(size, 200 - start) - 1):
            together.add_up_to(index, *batch, profiled=False)
    # then
    assert together.seconds == pytest.approx(singly.seconds)


def test_one_step_has_no_duration() -> None:
    clock = StepTime()
    clock.add(1, 5.0, profiled=False)
    assert clock.seconds is None


@pytest.mark.parametrize(
    ("levels", "kept"),
    [
        ([5000 + 1000 * step for step in range(20)], 1000),
        ([5000] * 20, 0),
        ([5000 - 100 * step for step in range(20)], 0),
        ([min(5000 + 1000 * step, 9000) for step in range(20)], 0),  # a cache that fills
        ([5000 if step < 12 else 9000 for step in range(20)], 0),  # a new level
        ([5000 + 1000 * (step // 2) for step in range(20)], 500),  # every other time
        ([5000 + (4000 if step % 3 == 0 else 0) for step in range(21)], 0),
    ],
)
def test_what_is_kept(levels: list[int], kept: float) -> None:
    assert growth_per_repetition(levels) == pytest.approx(kept, rel=0.1)


def test_few_repetitions_tell_nothing() -> None:
    assert growth_per_repetition([1, 2, 3]) is None
