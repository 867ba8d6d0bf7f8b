from __future__ import annotations

from collections import deque

import pytest

from tbmem.analysis.detector.bounded_list import BoundedList


@pytest.mark.parametrize("maxlen", [1, 2, 7])
def test_it_keeps_what_a_deque_of_that_length_keeps(maxlen: int) -> None:
    # given
    kept: BoundedList[int] = BoundedList(maxlen)
    expected: deque[int] = deque(maxlen=maxlen)

    for values in ([], [1], [2, 3], list(range(20)), [4]):
        # when
        kept.extend(values)
        kept.append(5)
        expected.extend(values)
        expected.append(5)
        # then
        assert kept == list(expected)
