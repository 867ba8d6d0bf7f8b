"""Tables of texts by index: searched and sorted."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.errors import UsageError
from tbmem.present.views.text_table import TextTable

TABLE = TextTable(
    {"name": (("b", "Alpha"), np.array([0, -1, 1, 0])), "line": (("x.py:1",), np.array([0, 0, -1, -1]))},
    {"bytes": np.array([1 << 20, 5, 3 << 20, 7])},
)
EVERY = np.arange(4)


def test_each_word_occurs_in_some_column_of_a_row() -> None:
    assert TABLE.matches(EVERY, "B x.py", ("name", "line")).tolist() == [True, False, False, False]
    assert TABLE.matches(EVERY, "alpha", ("line",)).tolist() == [False] * 4
    assert TABLE.matches(EVERY, "", ("name",)).all()


@pytest.mark.parametrize(
    ("search", "found"), [(">1MiB", [2]), ("<1m", [1, 3]), (">6 <0.5k", [3]), (">=5", []), (">1MiB alpha", [2])]
)
def test_a_limit_of_the_size(search: str, found: list[int]) -> None:
    assert np.flatnonzero(TABLE.matches(EVERY, search, ("name",))).tolist() == found


def test_texts_are_sorted_by_letters_none_first_and_equal_rows_stay_in_order() -> None:
    assert TABLE.order(EVERY, "name", "asc").tolist() == [1, 2, 0, 3]
    assert TABLE.order(EVERY[[0, 3]], "name", "desc").tolist() == [0, 1]
    assert TABLE.order(EVERY, "bytes", "desc").tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize(("sort", "order"), [("colour", "asc"), ("name", "up")])
def test_what_is_not_there_is_refused(sort: str, order: str) -> None:
    with pytest.raises(UsageError, match="write"):
        TABLE.order(EVERY, sort, order)
