"""Growth that does not end, and everything that only looks like it."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from scipy.stats import theilslopes

from tbmem.analysis.growth import Growth, GrowthTest
from tests.conftest import GIB, MIB

KIB = 1 << 10
BASE = 40 * GIB


def make_test(patience: int = 24, min_growth: int = 2 * MIB, min_growth_percent: float = 0.02) -> GrowthTest:
    return GrowthTest(patience=patience, min_growth=min_growth, min_growth_percent=min_growth_percent)


def run(levels: list[int], test: GrowthTest | None = None) -> tuple[Growth | None, list[int]]:
    """What stands at the end, and the steps at which something changed."""
    test = test or make_test()
    changes = [step for step, level in enumerate(levels, start=1) if test.update(step, level)]
    return test.current, changes


def climb(steps: int, per_step: int, base: int = BASE) -> list[int]:
    return [base + per_step * step for step in range(steps)]


# growth


@pytest.mark.parametrize("per_step", [MIB, 50 * MIB, 2 * GIB])
@pytest.mark.parametrize("steps", [24, 25, 47, 60, 100, 333, 1000, 5000])
def test_a_clean_leaks_rate_is_that_of_theil_and_sen(per_step: int, steps: int) -> None:
    # given
    levels = climb(steps, per_step)
    sampled = np.linspace(0, steps - 1, min(steps, 200), dtype=int)
    slope = theilslopes(np.array(levels, dtype=float)[sampled], sampled).slope
    # when
    growth, _ = run(levels)
    # then
    assert growth is not None
    assert growth.bytes_per_step == pytest.approx(slope, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_leaks_rate_is_that_of_theil_and_sen(seed: int) -> None:
    # given: noise as high as ten steps of growth
    dice = random.Random(seed)
    levels = [level + dice.randrange(30 * MIB) for level in climb(400, 3 * MIB)]
    slope = theilslopes(np.array(levels, dtype=float)).slope
    # when
    growth, _ = run(levels)
    # then
    assert growth is not None
    assert growth.bytes_per_step == pytest.approx(slope, rel=0.15)


def test_growth_is_told_with_where_it_began_and_how_far_it_came() -> None:
    # given / when
    growth, _ = run([BASE] * 100 + climb(100, 10 * MIB))
    # then
    assert growth is not None
    assert 96 <= growth.first_step <= 110
    assert growth.last_step <= 200
    assert growth.base == pytest.approx(BASE, abs=100 * MIB)
    assert growth.bytes == growth.level - growth.base


def test_steep_growth_is_not_waited_out() -> None:
    # given: 2 GiB a step on 45 GiB would fill an 80 GiB device in 18 steps
    _, changes = run(climb(18, 2 * GIB, 45 * GIB))
    # then
    assert changes[0] == 12


@pytest.mark.parametrize("patience", [24, 48, 96])
def test_gentle_growth_is_waited_out_for_as_many_steps_as_the_patience(patience: int) -> None:
    _, changes = run(climb(400, 10 * MIB), make_test(patience))
    assert changes[0] == patience


def test_a_slow_leak_on_a_high_level_is_found_in_the_end() -> None:
    # given: 300 KiB a step; 0.02 % of 40 GiB are 8.2 MiB
    _, changes = run(climb(400, 300 * KIB))
    # then: not before it has grown by as much
    assert 28 <= changes[0] <= 100


@pytest.mark.parametrize(("per_step", "found"), [(70 * KIB, False), (110 * KIB, True)])
def test_growth_below_the_smallest_that_counts_is_not_told(per_step: int, found: bool) -> None:
    # given: 24 steps only, so that the growth can be no larger
    _, changes = run(climb(24, per_step, base=0), make_test(min_growth=2 * MIB, min_growth_percent=0))
    # then
    assert bool(changes) is found


def test_growth_below_its_share_of_the_level_is_not_told() -> None:
    # given: 11 of 12 floors' distance is 22 MiB, one per cent of 4 GiB is 41 MiB
    assert run(climb(24, MIB, 4 * GIB), make_test(min_growth=0, min_growth_percent=1))[1] == []
    assert run(climb(24, MIB, GIB), make_test(min_growth=0, min_growth_percent=1))[1] != []


def test_a_leak_under_a_sawtooth_is_found() -> None:
    # given: gradient accumulation over 8 steps, and 10 MiB kept at each
    levels = [level + GIB * (step % 8) for step, level in enumerate(climb(400, 10 * MIB))]
    # when
    growth, _ = run(levels)
    # then
    assert growth is not None
    assert growth.bytes_per_step == pytest.approx(10 * MIB, rel=0.1)


def test_a_leak_of_one_block_every_few_steps_is_found() -> None:
    growth, _ = run([BASE + 100 * MIB * (step // 10) for step in range(600)])
    assert growth is not None
    assert growth.bytes_per_step == pytest.approx(10 * MIB, rel=0.15)


# what only looks like growth

FLAT = [BASE] * 400


@pytest.mark.parametrize(
    "levels",
    [
        FLAT,
        [47 * GIB + GIB * (step % 2) for step in range(400)],
        [BASE + 100 * MIB * (step % 4) for step in range(400)],
        [BASE + GIB * (step % 8) for step in range(400)],
        [BASE - 50 * MIB * step for step in range(400)],
        [BASE] * 100 + [BASE + 10 * GIB] * 300,
        [BASE] * 100 + [BASE + 10 * GIB] + [BASE] * 299,
        [BASE + (5 * GIB if step % 50 == 49 else 0) for step in range(400)],
        climb(10, 10 * MIB) + [BASE + 100 * MIB] * 390,
        [round(BASE * (1 + 0.5 * (1 - 0.6**step))) for step in range(400)],
        [0] * 400,
    ],
    ids=[
        "flat",
        "two levels",
        "accumulation over 4",
        "accumulation over 8",
        "falling",
        "one step up",
        "one spike",
        "validation",
        "short ramp",
        "warm-up that slows down",
        "nothing",
    ],
)
def test_what_ends_or_comes_back_is_no_growth(levels: list[int]) -> None:
    assert run(levels) == (None, [])


@pytest.mark.parametrize("ramp", [16, 30, 60, 200])
def test_a_ramp_that_ended_long_ago_is_growth_no_more(ramp: int) -> None:
    # given: a bounded cache that has filled up, then ten times as long at its level
    levels = climb(ramp, 500 * MIB)
    # when
    growth, _ = run(levels + [levels[-1]] * (10 * ramp))
    # then
    assert growth is None


def test_growth_that_falls_back_is_taken_back_at_once() -> None:
    # given
    test = make_test()
    run(climb(100, 10 * MIB), test)
    assert test.current is not None
    # when
    changed = test.update(101, BASE)
    # then
    assert changed
    assert test.current is None


def test_growth_that_falls_back_a_little_stands() -> None:
    # given
    test = make_test()
    run(climb(100, 10 * MIB), test)
    # when: a third of it is free again for a step
    test.update(101, BASE + 660 * MIB)
    # then
    assert test.current is not None


@pytest.mark.parametrize(("period", "per_step"), [(12, GIB), (32, 250 * MIB), (64, 125 * MIB)])
def test_growth_that_always_falls_back_again_is_not_told_each_time(period: int, per_step: int) -> None:
    # given: a sawtooth as long as the test looks; that it falls cannot be known the first time
    levels = [BASE + per_step * (step % period) for step in range(10 * period)]
    test, times = make_test(), 0
    # when
    for step, level in enumerate(levels, start=1):
        before = test.current
        test.update(step, level)
        times += before is None and test.current is not None
    # then
    assert times <= 1


@pytest.mark.parametrize("percent", [0.01, 0.1, 1.0, 10.0])
def test_flat_noise_is_no_growth(percent: float) -> None:
    # given
    found = 0
    for seed in range(100):
        dice = random.Random(seed)
        levels = [round(BASE * (1 + percent / 100 * dice.random())) for _ in range(300)]
        # when
        found += bool(run(levels)[1])
    # then
    assert found < 2


def test_what_it_keeps_does_not_grow_with_the_run() -> None:
    # given
    def size(steps: int) -> int:
        test = make_test()
        run([BASE + (step * 7919) % GIB for step in range(steps)], test)
        return len(pickle.dumps(test))

    # when / then
    assert size(50_000) < 1.5 * size(5_000)
    assert size(50_000) < 10_000


def test_rate_and_size_of_a_stretch() -> None:
    growth = Growth(first_step=10, last_step=20, base=GIB, level=2 * GIB, block=2)
    assert (growth.bytes, growth.bytes_per_step) == (GIB, GIB / 10)
    assert Growth(first_step=5, last_step=5, base=1, level=3, block=1).bytes_per_step == 2
