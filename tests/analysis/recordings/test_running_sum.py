"""Sums between two keys, against the sum of what lies between them."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.analysis.recordings.running_sum import RunningSum


@pytest.mark.parametrize(("begin", "end", "expected"), [(0, 9, 31), (2, 5, 12), (5, 5, 0), (5, 6, 16), (9, 20, 0)])
def test_the_end_is_not_included(begin: int, end: int, expected: int) -> None:
    # given keys in no order, one of them twice, one before all steps
    running = RunningSum(np.array([5, 2, -1, 2, 0]), np.array([16, 8, 64, 4, 3]))
    # then
    assert running.within(begin, end) == expected


def test_without_any_it_is_nothing() -> None:
    assert RunningSum(np.array([], np.int64), np.array([], np.int64)).within(0, 9) == 0
