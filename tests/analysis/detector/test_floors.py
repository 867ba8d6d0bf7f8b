"""The low-water marks of a series."""

from __future__ import annotations

import random

import pytest

from tbmem.analysis.detector.floors import MARKS_PER_SCALE, SCALES, LowWaterMark, LowWaterMarks


def filled(levels: list[int]) -> LowWaterMarks:
    marks = LowWaterMarks()
    for number, level in enumerate(levels):
        marks.add(LowWaterMark(level, 4 * number + 1, 4 * number + 4, level + 1, level + 2))
    return marks


@pytest.mark.parametrize("scale", range(5))
def test_a_floor_is_what_was_lowest_in_its_block(scale: int) -> None:
    # given
    dice, block = random.Random(scale), 1 << scale
    levels = [dice.randrange(10**9) for _ in range(300)]
    # when
    marks = filled(levels).at(scale)
    # then: the last complete blocks, each with its first step and the steps until its end
    starts = range(0, len(levels) - block + 1, block)
    lows = [(min(levels[start : start + block]), start) for start in starts][-MARKS_PER_SCALE:]
    expected = [LowWaterMark(low, 4 * start + 1, 4 * (start + block), low + 1, low + 2) for low, start in lows]
    assert list(marks) == expected


@pytest.mark.parametrize(("count", "scale"), [(1, 0), (2, 1), (3, 0), (4, 2), (6, 1), (8, 3), (96, 5)])
def test_the_coarsest_block_that_is_complete_is_told(count: int, scale: int) -> None:
    marks = filled([0] * (count - 1))
    assert marks.add(LowWaterMark(0, count, count)) == scale


@pytest.mark.parametrize("period", [2, 4, 8])
def test_a_sawtooth_leaves_no_mark_at_its_own_scale(period: int) -> None:
    # given
    marks = filled([100 + step % period for step in range(200)])
    # when
    scale = period.bit_length() - 1
    # then
    assert {mark.level for mark in marks.at(scale)} == {100}


def test_a_spike_leaves_no_mark_but_kept_memory_lifts_every_later_floor() -> None:
    # given
    marks = filled([10] * 8 + [99] + [10] * 7 + [11] * 16)
    # when / then
    assert [mark.level for mark in marks.at(2)] == [10, 10, 10, 10, 11, 11, 11, 11]


def test_what_is_not_counted_everywhere_is_not_counted() -> None:
    marks = LowWaterMarks()
    marks.add(LowWaterMark(1, 1, 4, 7, 7))
    marks.add(LowWaterMark(2, 5, 8, None, 5))
    assert marks.at(1)[0] == LowWaterMark(1, 1, 8, None, 5)


def test_floors_kept_are_bounded() -> None:
    marks = filled([0] * 20_000)
    assert all(len(marks.at(scale)) <= MARKS_PER_SCALE for scale in range(SCALES))
