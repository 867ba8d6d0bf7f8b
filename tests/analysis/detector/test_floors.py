"""The low-water marks of a series."""

from __future__ import annotations

import random

import pytest

from tbmem.analysis.detector.floors import KEPT, SCALES, Floor, Floors


def filled(levels: list[int]) -> Floors:
    floors = Floors()
    for number, level in enumerate(levels):
        floors.add(Floor(level, 4 * number + 1, 4 * number + 4, level + 1, level + 2))
    return floors


@pytest.mark.parametrize("scale", range(5))
def test_a_floor_is_what_was_lowest_in_its_block(scale: int) -> None:
    # given
    dice, block = random.Random(scale), 1 << scale
    levels = [dice.randrange(10**9) for _ in range(300)]
    # when
    floors = filled(levels).at(scale)
    # then: the last complete blocks, each with its first step and the steps until its end
    starts = range(0, len(levels) - block + 1, block)
    lows = [(min(levels[start : start + block]), start) for start in starts][-KEPT:]
    expected = [Floor(low, 4 * start + 1, 4 * (start + block), low + 1, low + 2) for low, start in lows]
    assert list(floors) == expected


@pytest.mark.parametrize(("count", "scale"), [(1, 0), (2, 1), (3, 0), (4, 2), (6, 1), (8, 3), (96, 5)])
def test_the_coarsest_block_that_is_complete_is_told(count: int, scale: int) -> None:
    floors = filled([0] * (count - 1))
    assert floors.add(Floor(0, count, count)) == scale


@pytest.mark.parametrize("period", [2, 4, 8])
def test_a_sawtooth_leaves_no_mark_at_its_own_scale(period: int) -> None:
    # given
    floors = filled([100 + step % period for step in range(200)])
    # when
    scale = period.bit_length() - 1
    # then
    assert {floor.level for floor in floors.at(scale)} == {100}


def test_a_spike_leaves_no_mark_but_kept_memory_lifts_every_later_floor() -> None:
    # given
    floors = filled([10] * 8 + [99] + [10] * 7 + [11] * 16)
    # when / then
    assert [floor.level for floor in floors.at(2)] == [10, 10, 10, 10, 11, 11, 11, 11]


def test_what_is_not_counted_everywhere_is_not_counted() -> None:
    floors = Floors()
    floors.add(Floor(1, 1, 4, 7, 7))
    floors.add(Floor(2, 5, 8, None, 5))
    assert floors.at(1)[0] == Floor(1, 1, 8, None, 5)


def test_floors_kept_are_bounded() -> None:
    floors = filled([0] * 20_000)
    assert all(len(floors.at(scale)) <= KEPT for scale in range(SCALES))
