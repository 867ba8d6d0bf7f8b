"""Thresholds of a device's capacity, and free memory that fits no request."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.thresholds import CapacityTest, FragmentationTest
from tbmem.units import GIB, MIB

THRESHOLDS = (87.5, 93.75, 97.5)


def news(*percents: float, thresholds: tuple[float, ...] = THRESHOLDS) -> list[int]:
    test = CapacityTest(thresholds)
    return [test.update(percent) for percent in percents]


@pytest.mark.parametrize(
    ("percents", "levels"),
    [
        ([10, 50, 87.4], [0, 0, 0]),
        ([87.5], [1]),
        ([93.75], [2]),
        ([97.5], [3]),
        ([120], [3]),
        ([88, 94, 98], [1, 2, 3]),
        ([88, 88, 89, 88], [1, 0, 0, 0]),
        ([98, 94, 88], [3, 0, 0]),
        ([88, 10, 88], [1, 0, 1]),
        ([88, 86, 88, 85.6, 88], [1, 0, 0, 0, 0]),
        ([88, 85.4, 88], [1, 0, 1]),
        ([98, 94, 98], [3, 0, 3]),
        ([98, 96, 98], [3, 0, 0]),
        ([98, 0, 94], [3, 0, 2]),
    ],
)
def test_a_threshold_is_news_once_until_use_has_clearly_fallen_below_it(
    percents: list[float], levels: list[int]
) -> None:
    assert news(*percents) == levels


def test_each_threshold_keeps_its_own_distance() -> None:
    # given: from the third to just below the first, by less than the two per cent that make it news again
    assert news(98, 87.4, 88) == [3, 0, 0]
    assert news(98, 94.9, 95.1, thresholds=(95.0, 96.0, 97.0)) == [3, 0, 0]


def told(reserved: int, split: int, peak: int, times: int = 10) -> list[bool]:
    test = FragmentationTest()
    test.note_peak(peak)
    return [test.update(reserved, split) for _ in range(times)]


def test_it_is_told_once_when_it_has_lasted() -> None:
    assert told(60 * GIB, 15 * GIB, 40 * GIB) == [False] * 3 + [True] + [False] * 6


@pytest.mark.parametrize(
    ("reserved", "split", "peak"),
    [
        (60 * GIB, 15 * GIB, 59 * GIB),
        (60 * GIB, 15 * GIB, 50 * GIB),
        (60 * GIB, GIB, 40 * GIB),
        (300 * MIB, 200 * MIB, 100 * MIB),
    ],
    ids=["was needed at once", "a sixth", "whole segments are free", "too little to mind"],
)
def test_what_is_no_fragmentation(reserved: int, split: int, peak: int) -> None:
    assert not any(told(reserved, split, peak))


def test_it_is_told_again_after_it_was_better() -> None:
    # given
    test = FragmentationTest()
    test.note_peak(40 * GIB)
    assert any(test.update(60 * GIB, 15 * GIB) for _ in range(5))
    # when
    test.update(42 * GIB, 15 * GIB)
    # then
    assert not test.stands
    assert any(test.update(60 * GIB, 15 * GIB) for _ in range(5))
    assert test.stands
