"""The low-water marks of a series."""

from __future__ import annotations

import random

import pytest

from tbmem.analysis.floors import KEPT, SCALES, Floors


def filled(levels: list[int]) -> Floors:
    floors = Floors()
    for step, level in enumerate(levels, start=1):
        floors.add(step, level)
    return floors


@pytest.mark.parametrize("scale", range(5))
def test_a_floor_is_the_lowest_level_of_its_block(scale: int) -> None:
    # given
    dice, block = random.Random(scale), 1 << scale
    levels = [dice.randrange(10**9) for _ in range(300)]
    # when
    floors = filled(levels).at(scale)
    # then: the last complete blocks, each with its last step
    ends = range(block, len(levels) + 1, block)
    expected = [(min(levels[end - block : end]), end) for end in ends][-KEPT:]
    assert list(floors) == expected


@pytest.mark.parametrize(("count", "scale"), [(1, 0), (2, 1), (3, 0), (4, 2), (6, 1), (8, 3), (96, 5)])
def test_the_coarsest_block_that_is_complete_is_told(count: int, scale: int) -> None:
    floors = filled([0] * (count - 1))
    assert floors.add(count, 0) == scale


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


def test_steps_need_not_be_consecutive() -> None:
    # given
    floors = Floors()
    for step in (1, 10, 20, 30):
        floors.add(step, step)
    # when / then
    assert [(floor.level, floor.step) for floor in floors.at(1)] == [(1, 10), (20, 30)]


def test_memory_stays_constant_however_long_the_run() -> None:
    # given: enough for a block of every scale and one more
    floors = filled([1] * ((1 << SCALES) + 5))
    # when / then
    assert [len(floors.at(scale)) <= KEPT for scale in range(SCALES)] == [True] * SCALES
    assert len(floors.at(SCALES - 1)) == 2
