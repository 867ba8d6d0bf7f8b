"""Readings in blocks of a few steps."""

from __future__ import annotations

from tbmem.analysis.detector.floors import LowWaterMark
from tbmem.analysis.detector.low_water_marks import StepBlock


def test_a_block_is_complete_after_its_steps() -> None:
    # given
    blocks = StepBlock(4)
    # when / then
    assert blocks.room == 4
    assert blocks.add(10, [5, 3, 4], [9, 8, 7], [2, 1, 3]) is None
    assert blocks.room == 1
    assert blocks.add(13, [6], [6], [4]) == LowWaterMark(3, 10, 4, 1, 3)
    assert list(blocks.lifts) == [6]
    assert blocks.ticks == 4


def test_one_reading_is_enough_for_a_block() -> None:
    # given: the counter was not read in four of five steps
    blocks = StepBlock(4)
    marks = [blocks.skip(), blocks.add(2, [7], [7], None), blocks.skip(), blocks.skip(), blocks.skip()]
    # then
    assert marks == [None, None, None, None, LowWaterMark(7, 2, 5, None, 0)]


def test_a_block_waits_for_its_reading() -> None:
    blocks = StepBlock(4)
    assert [blocks.skip() for _ in range(20)] == [None] * 20
    assert blocks.add(21, [7], [7], None) is None
    assert blocks.ticks == 21


def test_what_unjudged_steps_leave_behind_is_taken_out() -> None:
    # given
    blocks = StepBlock(2)
    blocks.add(1, [100, 101], [100, 101], None)
    # when
    blocks.add(3, [500], [500], None)
    blocks.interrupt()
    mark = blocks.add(9, [130, 131], [130, 131], None)
    # then: the block that was open is lost, the new level is the old one
    assert mark is not None
    assert mark.level == 100
    assert blocks.splice.bytes == 30
    # and what comes on top counts
    later = blocks.add(11, [150, 150], [150, 150], None)
    assert later is not None
    assert later.level == 120


def test_before_the_first_block_there_is_nothing_to_take_out() -> None:
    blocks = StepBlock(2)
    blocks.interrupt()
    mark = blocks.add(1, [130, 131], [130, 131], None)
    assert mark is not None
    assert (mark.level, blocks.splice.bytes) == (130, 0)
