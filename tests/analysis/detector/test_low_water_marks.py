"""Low-water marks of a series, and the blocks that they are taken from."""

from __future__ import annotations

import random

import pytest

from tbmem.analysis.detector.low_water_marks import (
    MARKS_PER_SCALE,
    SCALES,
    LowWaterMark,
    LowWaterMarks,
    StepBlock,
    since_last_fall,
)
from tbmem.units import KIB


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


def test_a_block_is_complete_after_its_steps() -> None:
    # given
    block = StepBlock(4)
    # when / then
    assert block.room == 4
    assert block.add([10, 11, 12], [5, 3, 4], [9, 8, 7], [2, 1, 3]) is None
    assert block.room == 1
    assert block.add([13], [6], [6], [4]) == LowWaterMark(3, 10, 4, 1, 3, 0, 13)
    assert list(block.lifts) == [6]
    assert block.ticks == 4


def test_one_reading_is_enough_for_a_block() -> None:
    # given: the counter was not read in four of five steps
    block = StepBlock(4)
    marks = [block.skip(), block.add([2], [7], [7], None), block.skip(), block.skip(), block.skip()]
    # then
    assert marks == [None, None, None, None, LowWaterMark(7, 2, 5, None, 0, 0, 2)]


def test_where_readings_are_rare_two_blocks_show_what_levels_differ_by() -> None:
    # given a level that swings, of which each block has one reading
    block, levels = StepBlock(4), (125, 127, 125, 131)
    # when
    for number, level in enumerate(levels):
        block.add([4 * number], [level], [level], None)
        for _ in range(3):
            block.skip()
    # then
    assert list(block.lifts) == [0, 2, 2, 6]


def test_a_block_waits_for_its_reading() -> None:
    block = StepBlock(4)
    assert [block.skip() for _ in range(20)] == [None] * 20
    assert block.add([21], [7], [7], None) is None
    assert block.ticks == 21


def test_what_unjudged_steps_leave_behind_is_taken_out() -> None:
    # given
    block = StepBlock(2)
    block.add([1, 2], [100, 101], [100, 101], None)
    # when
    block.add([3], [500], [500], None)
    block.interrupt()
    mark = block.add([9, 10], [130, 131], [130, 131], None)
    # then: the block that was open is lost, the new level is the old one
    assert mark is not None
    assert mark.level == 100
    assert block.splice.bytes == 30
    # and what comes on top counts
    later = block.add([11, 12], [150, 150], [150, 150], None)
    assert later is not None
    assert later.level == 120


def test_before_the_first_block_there_is_nothing_to_take_out() -> None:
    block = StepBlock(2)
    block.interrupt()
    mark = block.add([1, 2], [130, 131], [130, 131], None)
    assert mark is not None
    assert (mark.level, block.splice.bytes) == (130, 0)


def test_a_mark_knows_the_last_step_at_its_level() -> None:
    # given a level that stays, but for some objects of Python, and rises in the block's last step
    block = StepBlock(4)
    # when
    mark = block.add([5, 6, 7, 8], [100 * KIB, 100 * KIB + 80, 100 * KIB, 164 * KIB], [0] * 4, None)
    # then
    assert mark is not None
    assert (mark.step, mark.until) == (5, 7)


def test_a_coarser_mark_knows_the_last_step_at_its_level_too() -> None:
    marks = LowWaterMarks()
    for first, level in ((1, 100), (5, 100), (9, 64 * KIB), (13, 128 * KIB)):
        marks.add(LowWaterMark(level, first, first + 3, until=first + 2))
    assert [(mark.step, mark.until) for mark in marks.at(1)] == [(1, 7), (9, 11)]


def test_the_mark_before_another_is_found_in_a_coarser_scale_where_finer_ones_are_forgotten() -> None:
    # given so many that of the finest scale only the last ones are remembered
    marks = filled(list(range(100)))
    oldest = marks.at(0)[0]
    # when / then
    assert marks.before(marks.at(0)[1]) == oldest
    before = marks.before(oldest)
    assert before is not None
    assert before.step < oldest.step
    assert marks.before(marks.at(4)[0]) is None


def test_what_counts_after_a_fall() -> None:
    marks = [LowWaterMark(level, step, step) for step, level in enumerate([3, 4, 1, 2, 3])]
    assert [mark.level for mark in since_last_fall(marks)] == [1, 2, 3]
    assert since_last_fall(marks[3:]) == marks[3:]
