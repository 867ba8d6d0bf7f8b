"""Single steps far above the usual, and changes of level."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from scipy.stats import median_abs_deviation

from tbmem.analysis.detector.spike_test import (
    RETURN_WITHIN,
    WINDOW,
    Excursion,
    ExcursionKind,
    SpikeTest,
)
from tests.conftest import GIB, MIB

USUAL = 46 * GIB


def make_test(spike_percent: float = 5.0, min_spike: int = 32 * MIB) -> SpikeTest:
    return SpikeTest(spike_percent, min_spike)


def run(peaks: Iterable[int], test: SpikeTest | None = None) -> list[Excursion]:
    """All jumps of a series, the one that is open at its end included."""
    test, peaks = test or make_test(), list(peaks)
    excursions = [excursion for _, excursion in test.extend(range(1, len(peaks) + 1), peaks)]
    return [*excursions, *test.close()]


def spike_at(step: int, peak: int, usual: int = USUAL, last: int | None = None) -> Excursion:
    return Excursion(ExcursionKind.SPIKE, step, last or step, peak, usual)


# what is usual


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [33, 47, WINDOW - 1])
def test_usual_and_threshold_are_those_of_scipy(count: int, seed: int) -> None:
    # given: an odd number of noisy peaks; the threshold may be some steps old
    dice = random.Random(seed)
    peaks = [USUAL + dice.randrange(GIB) for _ in range(count)]
    usual = int(np.median(peaks))
    height = max(8 * float(median_abs_deviation(peaks, scale="normal")), 1.03 * max(peaks) - usual)
    # when
    below = run([*peaks, round(usual + height * 0.8)], make_test(0, 0))
    above = run([*peaks, round(usual + height * 1.25)], make_test(0, 0))
    # then
    assert below == []
    assert [(excursion.first_step, excursion.kind) for excursion in above] == [(count + 1, ExcursionKind.SPIKE)]
    assert above[0].usual == pytest.approx(usual, rel=0.002)


def test_only_the_last_steps_define_what_is_usual() -> None:
    # given: a lower level long ago, left in steps too small for a jump
    peaks = [20 * GIB] * WINDOW + [20 * GIB + 600 * MIB * step for step in range(40)] + [44 * GIB] * WINDOW
    # when
    excursions = run([*peaks, 78 * GIB])
    # then
    assert excursions[-1].usual == 44 * GIB


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
    peaks = [USUAL] * 40 + [round(USUAL * (1 + height))] + [USUAL] * 5
    # when / then
    assert bool(run(peaks, make_test(percent, size))) is found


@pytest.mark.parametrize(("percent", "found"), [(2.0, True), (5.0, False)])
def test_a_spike_passes_the_highest_level_by_no_more_than_makes_it_one(percent: float, *, found: bool) -> None:
    # given: steps at 144 MiB, one 0.3 % above them, and one 2.8 % above
    usual, spike = 144 * MIB, 148 * MIB
    levels = [usual] * 8 + [usual + MIB // 2] + [usual] * 20 + [spike] + [usual] * 40
    # when, then
    assert run(levels, make_test(percent, MIB)) == ([spike_at(30, spike, usual)] if found else [])


@pytest.mark.parametrize(("height", "found"), [(0.1, False), (0.2, True)])
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
    excursions = run([USUAL] * 20 + high + [USUAL] * 20)
    # then
    assert excursions == [spike_at(21, high[-1], last=20 + width)]


def test_a_spike_is_told_as_soon_as_it_is_over() -> None:
    # given
    test = make_test()
    before = test.extend(range(1, 41), [USUAL] * 40)
    # when
    during, after = test.extend([41], [78 * GIB]), test.extend([42], [USUAL])
    # then
    assert (before, during) == ([], [])
    assert after == [(42, spike_at(41, 78 * GIB))]


def test_a_spike_among_the_first_steps_is_told_when_it_is_known_what_is_usual() -> None:
    # given: one step to compare with
    test = make_test()
    # when
    told = [test.extend([step], [78 * GIB if step == 2 else USUAL]) for step in range(1, 40)]
    # then
    assert [excursions for excursions in told if excursions] == [[(32, spike_at(2, 78 * GIB))]]


@pytest.mark.parametrize("steps", [(7, 17), (3, 12), (5, 17, 23)])
def test_several_spikes_among_the_first_steps_are_told_when_the_run_ends(steps: Sequence[int]) -> None:
    # given: the run is too short to tell what is usual
    levels = [1400 * MIB if step in steps else (326 + step % 3) * MIB for step in range(27)]
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when
    told = [*test.extend(range(27), levels), *((27, each) for each in test.end())]
    # then
    assert [excursion.first_step for _, excursion in told] == list(steps)
    assert {excursion.kind for _, excursion in told} == {ExcursionKind.SPIKE}


@pytest.mark.parametrize("high", [1400, 330])
def test_a_spike_right_after_an_interruption_hides_none(high: int) -> None:
    # given: the first step after a window is high, or not
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    test.extend(range(1, 8), [326 * MIB] * 7)
    test.rebase()
    levels = [(high if step == 14 else 1400 if step in (25, 31) else 326) * MIB for step in range(14, 41)]
    # when
    told = [*test.extend(range(14, 41), levels), *((41, each) for each in test.end())]
    # then: it cannot be judged itself
    assert [excursion.first_step for _, excursion in told] == [25, 31]


@pytest.mark.parametrize("left_out", [0, 4, 8, 13])
def test_a_level_that_often_is_some_blocks_higher_has_no_spike(left_out: int) -> None:
    # given: a training whose steps need up to three more blocks of 15 MiB, as malloc's heap lies in pieces
    blocks = "2001110100000000000000011000000202000202230000222"
    levels = [(703 + 15 * int(each)) * MIB for each in blocks[left_out:]]
    test = SpikeTest(spike_percent=5.0, min_spike=MIB)
    # when
    told = [*test.extend(range(13, 13 + len(levels)), levels), *test.end()]
    # then
    assert not told


def test_a_high_level_after_steps_that_were_not_read_hides_no_spike() -> None:
    # given: steps 20 to 27 are unknown, and 28 may be a spike or not
    steps = [*range(14, 20), *range(28, 61)]
    levels = [(1400 if step in (17, 28, 44) else 326) * MIB for step in steps]
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when
    told = [*test.extend(steps, levels), *((61, each) for each in test.end())]
    # then
    assert [excursion.first_step for _, excursion in told] == [17, 44]


def test_a_high_level_after_steps_that_were_not_read_may_have_grown() -> None:
    # given: it stays
    steps = [*range(14, 40), *range(60, 90)]
    levels = [(326 if step < 40 else 1400) * MIB for step in steps]
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when / then
    assert not [*test.extend(steps, levels), *test.end()]


@pytest.mark.parametrize(
    ("level_at", "shifts"),
    [
        (lambda step: 326 if step < 1500 else 1400, [1500]),
        (lambda step: 1400 if 1500 <= step < 1800 else 326, []),  # ten readings
        (lambda step: 326 + max(step - 1400, 0) // 2, []),  # it grows
    ],
)
def test_a_level_that_stays_is_a_change_where_all_readings_are_rare(
    level_at: Callable[[int], int], shifts: list[int]
) -> None:
    # given
    steps = range(0, 3000, 30)
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when
    told = test.extend(steps, [level_at(step) * MIB for step in steps])
    # then
    assert [each.first_step for _, each in told if each.kind is ExcursionKind.SHIFT] == shifts


def test_three_even_spikes_of_a_short_run_are_a_period() -> None:
    # given
    levels = [(1400 if step in (28, 41, 54) else 326 + step % 2) * MIB for step in range(14, 60)]
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when
    told = [*test.extend(range(14, 60), levels), *((60, each) for each in test.end())]
    # then
    [(_, periodic)] = told
    assert (periodic.kind, periodic.period, periodic.members) == (ExcursionKind.PERIODIC, 13, (28, 41, 54))


@pytest.mark.parametrize(
    ("heights", "found"),
    [
        ({60: 142, 130: 60, 185: 97}, [60, 130, 185]),  # a third one that is less than half as high
        ({60: 142, 130: 18, 185: 97}, [60, 130, 185]),  # or an eighth
        ({60: 142, 130: 17, 185: 97}, [60, 185]),  # so little may be chance
        ({60: 142, 90: 100, 130: 60, 185: 97}, [60, 90, 185]),  # the three highest
        ({60: 142, 90: 100, 130: 95, 165: 61, 185: 97}, [60]),  # what recurs is told once
    ],
)
def test_the_highest_three_spikes_are_reported_each(heights: dict[int, int], found: list[int]) -> None:
    # given
    steps = range(13, 221)
    levels = [(300 + heights.get(step, step % 2)) * MIB for step in steps]
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when
    told = [*(each for _, each in test.extend(steps, levels)), *test.end()]
    # then
    assert sorted(excursion.first_step for excursion in told) == found


def test_high_steps_that_come_again_from_the_beginning_are_no_spikes() -> None:
    # given: every fifth step is high
    levels = [(1400 if step % 5 == 0 else 326 + step % 3) * MIB for step in range(1, 41)]
    test = SpikeTest(spike_percent=5.0, min_spike=16 * MIB)
    # when
    told = [*test.extend(range(1, 41), levels), *((41, each) for each in test.end())]
    # then
    assert not [excursion for _, excursion in told if excursion.kind is ExcursionKind.SPIKE]


def test_a_spike_that_is_still_open_at_the_end_is_told_then() -> None:
    # given
    test = make_test()
    assert test.extend([1, 2, 3], [USUAL, USUAL, 78 * GIB]) == []
    # when / then
    assert test.close() == [spike_at(3, 78 * GIB)]
    assert test.close() == []


@pytest.mark.parametrize(("height", "found"), [(0.13, 0), (0.2, 1)])
def test_as_a_window_begins_only_a_high_jump_counts(height: float, found: int) -> None:
    # given: the last of the few steps between two windows is high
    test = SpikeTest(5.0, 16 * MIB)
    test.extend(range(1, 5), [GIB, GIB, GIB, round((1 + height) * GIB)])
    # when / then
    assert len(test.close()) == found


@pytest.mark.parametrize("size", [1, 2, 7, 10, 64, 1000])
def test_how_many_steps_are_handed_in_at_once_makes_no_difference(size: int) -> None:
    # given: noise, spikes early and late, a change of level, a beat
    dice = random.Random(3)
    peaks = [USUAL + dice.randrange(GIB) + 10 * GIB * (step > 300) for step in range(700)]
    for step in (5, 150, 400, 450, 500, 550, 620):
        peaks[step] += (20 + step % 7) * GIB
    one, many = make_test(), make_test()
    # when
    singly = [found for step, peak in enumerate(peaks) for found in one.extend([step], [peak])]
    steps = list(range(len(peaks)))
    together = [
        found
        for start in range(0, len(peaks), size)
        for found in many.extend(steps[start : start + size], peaks[start : start + size])
    ]
    # then
    assert {excursion.kind for _, excursion in singly} == set(ExcursionKind)
    assert together == singly


def test_a_later_spike_is_news_only_if_it_is_higher() -> None:
    # given
    peaks = [USUAL] * 40 + [60 * GIB] + [USUAL] * 20 + [60 * GIB] + [USUAL] * 40 + [70 * GIB] + [USUAL] * 5
    # when / then
    assert [excursion.first_step for excursion in run(peaks)] == [41, 103]


@pytest.mark.parametrize("every", [12, 25, 50, 100])
@pytest.mark.parametrize("wide", [1, 3])
def test_validation_that_comes_again_is_told_once(every: int, wide: int) -> None:
    # given: 1 % of difference from one pass to the next
    dice = random.Random(every)
    peaks = [
        60 * GIB + dice.randrange(600 * MIB) if step % every >= every - wide else USUAL + dice.randrange(100 * MIB)
        for step in range(600)
    ]
    # when
    excursions = run(peaks)
    # then: a spike, and from the third on a beat
    kinds = [excursion.kind for excursion in excursions]
    assert kinds[-1] is ExcursionKind.PERIODIC
    assert kinds.count(ExcursionKind.PERIODIC) == 1
    assert kinds.count(ExcursionKind.SPIKE) <= 1
    assert excursions[-1].period == every
    assert set(excursions[-1].members) >= {excursion.first_step for excursion in excursions[:-1]}


def test_an_outlier_between_validations_is_told_though_it_is_lower() -> None:
    # given: validation at 60 GiB every 50 steps, one odd step at 55 GiB
    peaks = [60 * GIB if step % 50 == 49 else USUAL for step in range(400)]
    peaks[222] = 55 * GIB
    # when
    excursions = run(peaks)
    # then
    assert [excursion.first_step for excursion in excursions if excursion.kind is ExcursionKind.SPIKE][-1] == 223


def test_an_outlier_before_the_beat_is_known_is_told_when_it_is() -> None:
    # given
    peaks = [60 * GIB if step % 50 == 40 else USUAL for step in range(400)]
    peaks[122] = 55 * GIB
    # when
    excursions = run(peaks)
    # then
    assert [(excursion.kind, excursion.first_step) for excursion in excursions] == [
        (ExcursionKind.SPIKE, 41),
        (ExcursionKind.PERIODIC, 191),
        (ExcursionKind.SPIKE, 123),
    ]


def test_slow_growth_beyond_the_threshold_is_no_jump() -> None:
    # given: readings are rare, so that the level of the window lags behind
    peaks = [GIB + 3 * MIB * step for step in range(400)]
    # when / then
    assert run(peaks, make_test(2.0, MIB)) == []


def test_whether_a_level_rose_at_once_is_unknown_where_it_was_read_long_before() -> None:
    # given every 24th step of a level that climbs for 200 steps and falls
    steps = range(1, 24 * 200, 24)
    peaks = [GIB + 3 * MIB * (step % 200) for step in steps]
    test = make_test(2.0, MIB)
    # when
    excursions = [*test.extend(steps, peaks), *test.close()]
    # then
    assert excursions == []


# changes of level


@pytest.mark.parametrize("level", [50 * GIB, 60 * GIB, 78 * GIB])
def test_a_jump_that_stays_is_a_change_of_level(level: int) -> None:
    # when
    excursions = run([USUAL] * 40 + [level] * 60)
    # then
    assert excursions == [Excursion(ExcursionKind.SHIFT, 41, 41 + RETURN_WITHIN, level, USUAL)]


def test_after_a_change_of_level_the_new_one_is_usual() -> None:
    excursions = run([USUAL] * 40 + [60 * GIB] * 40 + [75 * GIB] + [60 * GIB] * 5)
    assert [(excursion.first_step, excursion.usual, excursion.kind) for excursion in excursions] == [
        (41, USUAL, ExcursionKind.SHIFT),
        (81, 60 * GIB, ExcursionKind.SPIKE),
    ]


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


# a spike that comes together with a change of level


def test_a_spike_on_top_of_a_new_level_is_a_spike_as_well() -> None:
    # given: the first evaluation takes twelve for a step, and leaves five behind for good
    peaks = [100 * MIB] * 12 + [117 * MIB] + [105 * MIB] * 60
    # when
    excursions = run(peaks, make_test(2.0, 1 * MIB))
    # then
    assert excursions == [spike_at(13, 117 * MIB, usual=105 * MIB)]


def test_one_that_comes_again_is_told_once() -> None:
    peaks = [100 * MIB] * 12 + [117 * MIB] + [105 * MIB] * 60 + [117 * MIB] + [105 * MIB] * 20
    assert len(run(peaks, make_test(2.0, 1 * MIB))) == 1


def test_a_level_that_goes_on_rising_has_no_spike() -> None:
    peaks = [100 * MIB] * 12 + [110 * MIB, 110 * MIB, 110 * MIB, 111 * MIB, 116 * MIB, 117 * MIB] + [117 * MIB] * 60
    assert ExcursionKind.SPIKE not in {excursion.kind for excursion in run(peaks, make_test(2.0, 1 * MIB))}
