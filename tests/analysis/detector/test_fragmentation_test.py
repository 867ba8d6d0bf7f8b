"""Free memory that fits no request."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.fragmentation_test import FragmentationTest
from tbmem.units import GIB, MIB


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
