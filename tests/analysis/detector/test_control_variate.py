"""The noise of batches of varying size."""

from __future__ import annotations

import random
import statistics

import pytest

from tbmem.analysis.detector.control_variate import ControlVariate
from tbmem.units import GIB, MIB


def corrected(levels: list[int], peaks: list[int], size: int = 10) -> list[float]:
    variate = ControlVariate()
    found: list[float] = []
    for start in range(0, len(levels), size):
        found += variate.correct(levels[start : start + size], peaks[start : start + size])
    return found


def lengths(steps: int, kept: float, leak: int = 0, seed: int = 0) -> tuple[list[int], list[int]]:
    """Batches of varying length, of whose need a part is kept until the next."""
    dice = random.Random(seed)
    needs = [round(GIB * min(dice.lognormvariate(-1, 0.5), 1)) for _ in range(steps)]
    levels = [10 * GIB + round(kept * need) + leak * step for step, need in enumerate(needs)]
    return levels, [level + need for level, need in zip(levels, needs, strict=True)]


@pytest.mark.parametrize("kept", [0.01, 0.05, 0.2])
def test_the_noise_of_batches_is_taken_out(kept: float) -> None:
    # given
    levels, peaks = lengths(400, kept)
    # when
    left = statistics.pstdev(corrected(levels, peaks)[200:])
    # then
    assert left < 0.05 * statistics.pstdev(levels[200:])


def test_a_leak_is_left_in() -> None:
    # given: a hundredth of the noise at each step
    levels, peaks = lengths(600, 0.05, leak=100_000)
    found = corrected(levels, peaks)
    # then
    rates = [(found[at + 100] - found[at]) / 100 for at in range(200, 500, 20)]
    assert statistics.median(rates) == pytest.approx(100_000, rel=0.05)


def test_levels_that_have_nothing_to_do_with_the_batch_are_left_alone() -> None:
    # given
    dice = random.Random(1)
    levels = [10 * GIB + dice.randrange(MIB) for _ in range(400)]
    peaks = [level + dice.randrange(GIB) for level in levels]
    # when / then
    assert corrected(levels, peaks) == levels


def test_an_outlier_is_no_relation() -> None:
    # given: a leak, and one step that keeps half of what it needs
    levels = [GIB + 300_000 * step for step in range(400)]
    peaks = [level + GIB for level in levels]
    levels[300] += GIB
    peaks[300] += 3 * GIB
    # when
    found = corrected(levels, peaks)
    # then
    assert found[:300] + found[301:] == levels[:300] + levels[301:]


def test_an_outlier_does_not_pull_the_level_down() -> None:
    # given: a relation that is known, and one step that needs far more but keeps nothing of it
    levels, peaks = lengths(400, 0.05)
    peaks[300] += 40 * GIB
    # when
    found = corrected(levels, peaks)
    # then
    assert abs(found[300] - found[299]) < 200 * MIB


@pytest.mark.parametrize("size", [1, 7, 64])
def test_how_many_steps_are_handed_in_at_once_makes_no_difference(size: int) -> None:
    levels, peaks = lengths(300, 0.05)
    levels[100:150] = [levels[100]] * 50
    peaks = [max(each) for each in zip(levels, peaks, strict=True)]
    assert corrected(levels, peaks, size) == corrected(levels, peaks)


def test_a_cache_that_is_copied_to_grow_explains_nothing() -> None:
    # given: the copy needs more at each step, as the level does
    levels = [GIB + 12_288 * step for step in range(2_000)]
    peaks = [level + 7_168 + 2_048 * step for step, level in enumerate(levels)]
    # when / then
    assert corrected(levels, peaks) == levels
