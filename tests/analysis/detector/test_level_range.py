"""The range of a level of which some steps were not read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tbmem.analysis.detector.level_range import LevelRange
from tbmem.analysis.growth_rate import ENOUGH_STEPS


def range_of(levels: Sequence[int | None]) -> LevelRange:
    """Levels that were read one by one."""
    known = LevelRange()
    for level in levels:
        known.add([level])
    return known


def test_it_spans_all_levels_that_were_read() -> None:
    # given
    levels = LevelRange()
    # when
    levels.add([7, None, 5])
    levels.add([None, None])
    levels.add([6])
    # then
    assert (levels.lowest, levels.highest, levels.readings) == (5, 7, 3)


def test_one_level_is_a_range_from_it_to_it() -> None:
    levels = range_of([9])
    assert (levels.lowest, levels.highest) == (9, 9)


@pytest.mark.parametrize(
    ("levels", "tells"),
    [
        ([1] * ENOUGH_STEPS, True),
        ([1] * (ENOUGH_STEPS - 1), False),
        ([1] * ENOUGH_STEPS + [None] * ENOUGH_STEPS, True),
        ([1] * ENOUGH_STEPS + [None] * (ENOUGH_STEPS + 1), False),
        ([None] * ENOUGH_STEPS + [1] * ENOUGH_STEPS, True),
    ],
)
def test_it_tells_of_steps_of_whose_later_half_some_were_read(levels: list[int | None], tells: bool) -> None:
    assert range_of(levels).tells_of(len(levels)) is tells


def test_levels_added_together_count_as_one_by_one() -> None:
    # given
    levels = [3, None, 4, None, None]
    together = LevelRange()
    # when
    together.add(levels)
    # then
    assert vars(together) == vars(range_of(levels))
