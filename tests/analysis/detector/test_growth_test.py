"""Growth that is suspected, and rises that fall back."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.growth_test import Change, GrowthTest, Sawtooth
from tbmem.analysis.detector.low_water_marks import LowWaterMark
from tbmem.units import MIB


def fed(levels: list[float], least: float = 10) -> tuple[Sawtooth, list[int]]:
    sawtooth = Sawtooth(least)
    return sawtooth, [tick for tick, level in enumerate(levels) if sawtooth.add(tick, level)]


def test_a_sawtooth_is_a_cycle_of_its_length_and_height() -> None:
    sawtooth, ends = fed([100 + 5 * (tick % 20) for tick in range(100)])
    assert ends == [20, 40, 60, 80]
    assert sawtooth.length == 20
    assert sawtooth.ceiling == pytest.approx(195 + 95 / 4)


def test_a_jump_that_falls_is_no_cycle() -> None:
    # given: validation, which takes all at once
    sawtooth, ends = fed([100 + 50 * (tick % 25 == 24) for tick in range(100)])
    assert ends == []
    assert sawtooth.length == 0


def test_noise_below_the_least_height_is_no_cycle() -> None:
    assert fed([100 + tick % 5 for tick in range(100)])[1] == []


def test_a_fall_of_less_than_half_ends_no_cycle() -> None:
    levels = [float(tick) for tick in range(100)] + [60.0 + tick for tick in range(100)]
    assert fed(levels)[1] == []


def test_of_cycles_of_different_lengths_the_longest_counts() -> None:
    levels = [float(tick) for length in (20, 90, 40, 150) for tick in range(length)] + [0.0]
    sawtooth, ends = fed(levels)
    assert len(ends) == 4
    assert sawtooth.length == 150


def test_nothing_seen_is_no_cycle() -> None:
    assert (Sawtooth(1).length, Sawtooth(1).ceiling) == (0, float("-inf"))


def test_growth_without_new_allocations_is_looked_into_and_never_certain_by_itself() -> None:
    # given a cache that is copied to grow, or longer sequences: as many allocations, and steps that need more
    growth = GrowthTest(patience=300, min_growth=MIB, min_growth_percent=0)
    marks = [LowWaterMark(64_000 * at, 4 * at, 4 * at + 4, blocks=7, work=8_000 * at) for at in range(200)]
    # when
    changes = [change for mark in marks if (change := growth.add(mark)) is not None]
    # then
    assert changes == [Change.SUSPECTED]
