"""Single steps far above the usual, and changes of level."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable

import numpy as np
import pytest
from scipy.stats import median_abs_deviation

from tbmem.analysis.spikes import RETURN_WITHIN, WINDOW, Jump, SpikeTest
from tests.conftest import GIB, MIB

USUAL = 46 * GIB


def make_test(spike_percent: float = 5.0, min_spike: int = 32 * MIB) -> SpikeTest:
    return SpikeTest(spike_percent=spike_percent, min_spike=min_spike)


def run(peaks: Iterable[int], test: SpikeTest | None = None) -> list[Jump]:
    """All jumps of a series, the one that is open at its end included."""
    test = test or make_test()
    jumps = [test.update(step, peak) for step, peak in enumerate(peaks, start=1)]
    return [jump for jump in (*jumps, test.close()) if jump is not None]


# what is usual


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [9, 21, WINDOW - 1])
def test_usual_and_threshold_are_those_of_scipy(count: int, seed: int) -> None:
    # given: an odd number of noisy peaks, so that the median is one of them
    dice = random.Random(seed)
    peaks = [USUAL + dice.randrange(GIB) for _ in range(count)]
    usual = int(np.median(peaks))
    height = max(8 * float(median_abs_deviation(peaks, scale="normal")), 1.03 * max(peaks) - usual)
    # when
    below = run([*peaks, round(usual + height * 0.999)], make_test(0, 0))
    above = run([*peaks, round(usual + height * 1.001)], make_test(0, 0))
    # then
    assert below == []
    assert [(jump.first_step, jump.usual, jump.lasting) for jump in above] == [(count + 1, usual, False)]


def test_only_the_last_steps_define_what_is_usual() -> None:
    # given: a lower level long ago, left in steps too small for a jump
    peaks = [20 * GIB] * WINDOW + [20 * GIB + 600 * MIB * step for step in range(40)] + [44 * GIB] * WINDOW
    # when
    jumps = run([*peaks, 78 * GIB])
    # then
    assert jumps[-1].usual == 44 * GIB


@pytest.mark.parametrize("width", [GIB, 3 * GIB])
def test_what_counts_as_high_grows_with_the_noise(width: int) -> None:
    # given: the median absolute deviation of even noise is a quarter of its width
    dice = random.Random(0)
    peaks = [USUAL + dice.randrange(width) for _ in range(63)]
    deviation = float(median_abs_deviation(np.array(peaks), scale="normal"))
    usual = float(np.median(peaks))
    # when / then
    assert run([*peaks, round(usual + 7.9 * deviation)], make_test(0, 0)) == []
    assert len(run([*peaks, round(usual + 8.1 * deviation)], make_test(0, 0))) == 1


@pytest.mark.parametrize(
    ("percent", "size", "height", "found"),
    [
        (5.0, 0, 0.049, False),
        (5.0, 0, 0.051, True),
        (0.0, 2 * GIB, 0.043, False),
        (0.0, 2 * GIB, 0.044, True),
        (50.0, 0, 0.4, False),
    ],
)
def test_a_spike_must_be_as_high_as_both_limits(percent: float, size: int, height: float, found: bool) -> None:
    # given: perfectly flat, so that the noise asks for nothing
    peaks = [USUAL] * 20 + [round(USUAL * (1 + height))] + [USUAL] * 5
    # when / then
    assert bool(run(peaks, make_test(percent, size))) is found


@pytest.mark.parametrize(("height", "found"), [(0.2, False), (0.3, True)])
@pytest.mark.parametrize("before", [1, 2, 7])
def test_with_little_to_compare_with_only_a_high_jump_counts(before: int, height: float, found: bool) -> None:
    peaks = [USUAL] * before + [round(USUAL * (1 + height)), USUAL]
    assert bool(run(peaks)) is found


def test_the_first_step_is_never_a_spike() -> None:
    assert run([78 * GIB]) == []
    assert run([78 * GIB, USUAL, USUAL]) == []


# spikes


@pytest.mark.parametrize("width", range(1, RETURN_WITHIN + 1))
def test_a_few_high_steps_are_one_spike(width: int) -> None:
    # given
    high = [60 * GIB + GIB * step for step in range(width)]
    # when
    jumps = run([USUAL] * 20 + high + [USUAL] * 20)
    # then
    assert jumps == [Jump(21, 20 + width, high[-1], USUAL, lasting=False)]


def test_a_spike_is_told_as_soon_as_it_is_over() -> None:
    # given
    test = make_test()
    run_before = [test.update(step, USUAL) for step in range(1, 21)]
    # when
    during, after = test.update(21, 78 * GIB), test.update(22, USUAL)
    # then
    assert [*run_before, during] == [None] * 21
    assert after == Jump(21, 21, 78 * GIB, USUAL, lasting=False)


def test_a_spike_that_is_still_open_at_the_end_is_told_then() -> None:
    # given
    test = make_test()
    for step, peak in enumerate([USUAL, USUAL, 78 * GIB], start=1):
        assert test.update(step, peak) is None
    # when / then
    assert test.pending == Jump(3, 3, 78 * GIB, USUAL, lasting=False)
    assert test.close() == Jump(3, 3, 78 * GIB, USUAL, lasting=False)
    assert test.close() is None
    assert test.pending is None


def test_a_later_spike_is_news_only_if_it_is_higher() -> None:
    # given
    peaks = [USUAL] * 20 + [60 * GIB] + [USUAL] * 20 + [60 * GIB] + [USUAL] * 20 + [70 * GIB] + [USUAL] * 5
    # when / then
    assert [jump.first_step for jump in run(peaks)] == [21, 63]


@pytest.mark.parametrize("every", [7, 10, 50, 100])
@pytest.mark.parametrize("wide", [1, 3])
def test_validation_that_comes_again_is_told_once(every: int, wide: int) -> None:
    # given: 1 % of difference from one pass to the next
    dice = random.Random(every)
    peaks = [
        60 * GIB + dice.randrange(600 * MIB) if step % every >= every - wide else USUAL + dice.randrange(100 * MIB)
        for step in range(600)
    ]
    # when
    jumps = run(peaks)
    # then
    assert [jump.lasting for jump in jumps] == [False]


# changes of level


@pytest.mark.parametrize("level", [50 * GIB, 60 * GIB, 78 * GIB])
def test_a_jump_that_stays_is_a_change_of_level(level: int) -> None:
    # when
    jumps = run([USUAL] * 30 + [level] * 60)
    # then
    assert jumps == [Jump(31, 31 + RETURN_WITHIN, level, USUAL, lasting=True)]


def test_after_a_change_of_level_the_new_one_is_usual() -> None:
    jumps = run([USUAL] * 30 + [60 * GIB] * 30 + [75 * GIB] + [60 * GIB] * 5)
    assert [(jump.first_step, jump.usual, jump.lasting) for jump in jumps] == [(31, USUAL, True), (61, 60 * GIB, False)]


def test_a_fall_is_no_jump() -> None:
    assert run([USUAL] * 30 + [20 * GIB] * 60) == []


def test_slow_growth_is_no_jump() -> None:
    assert run([USUAL + 10 * MIB * step for step in range(2000)]) == []


def test_after_a_rebase_nothing_is_usual() -> None:
    # given
    test = make_test()
    run([USUAL] * 30, test)
    # when
    test.rebase()
    # then
    assert run([20 * GIB] * 3, test) == []
    assert test.pending is None


@pytest.mark.parametrize("percent", [0.1, 1.0, 4.0, 20.0])
def test_flat_noise_has_no_spikes(percent: float) -> None:
    # given
    found = 0
    for seed in range(100):
        dice = random.Random(seed)
        # when
        found += bool(run(round(USUAL * (1 + percent / 100 * dice.random())) for _ in range(300)))
    # then
    assert found < 2


def test_what_it_keeps_does_not_grow_with_the_run() -> None:
    # given
    def size(steps: int) -> int:
        test = make_test()
        run((USUAL + (step * 7919) % GIB for step in range(steps)), test)
        return len(pickle.dumps(test))

    # when / then
    assert size(20_000) <= 1.1 * size(1_000)
