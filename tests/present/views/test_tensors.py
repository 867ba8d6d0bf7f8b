"""Tables of single allocations: filtered, sorted, page by page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbmem.errors import UsageError
from tbmem.present.views.tensors import RowLabels, tensors_view
from tests.analysis.timelines import recording
from tests.present.views.recordings import two_steps, view_of

PEAK = [1000, 400, 64, 50, 32]
"""Bytes of what is alive at the peak of ``two_steps``."""


def test_all_of_the_peak_the_largest_first() -> None:
    tensors = tensors_view(two_steps())

    assert tensors["columns"]["bytes"] == PEAK
    assert (tensors["found"], tensors["count"], tensors["found_bytes"]) == (5, 5, sum(PEAK))
    # what was there before has no beginning
    assert [x is None for x in tensors["columns"]["x0"]] == [False, False, False, True, False]


def test_pages_of_a_table() -> None:
    some = tensors_view(two_steps(), order="asc", limit=2, offset=1)

    assert some["columns"]["bytes"] == [50, 64]
    assert (some["found"], some["offset"]) == (5, 1)


def test_every_word_must_occur_in_some_column_and_case_does_not_matter() -> None:
    recorded = two_steps()

    assert tensors_view(recorded, search="TRAIN.py linear")["columns"]["bytes"] == [1000]
    assert tensors_view(recorded, search="train.py conv")["found"] == 0
    (category,) = tensors_view(recorded, search="addmm")["columns"]["category"]
    assert 1000 in tensors_view(recorded, category=category)["columns"]["bytes"]
    assert tensors_view(recorded, category="no such")["found"] == 0


def test_texts_are_sorted_by_letters_and_none_comes_first() -> None:
    rows: list[dict[str, Any]] = [
        {"bytes": 1, "begin": 0, "name": "b"},
        {"bytes": 2, "begin": 1},
        {"bytes": 3, "begin": 2, "name": "a"},
    ]

    found = tensors_view(view_of(recording(*rows)), sort="name", order="asc")

    assert found["columns"]["name"] == ["", "a", "b"]


def test_what_stays_alive_is_freed_last() -> None:
    rows = [{"bytes": 1, "begin": 0}, {"bytes": 2, "begin": 1, "end": 4}, {"bytes": 3, "begin": 2, "end": 3}]

    found = tensors_view(view_of(recording(*rows)), sort="x1", order="asc")

    assert found["columns"]["bytes"] == [3, 2, 1]


def test_a_table_of_texts_lists_each_once() -> None:
    rows: list[dict[str, Any]] = [{"bytes": 1, "begin": at} for at in range(4)]
    for at, name in ((0, "u"), (2, "v"), (3, "u")):
        rows[at]["name"] = name
    labels = RowLabels(view_of(recording(*rows)))

    words, index = labels.table("name", np.arange(4))

    assert [words[number] if number >= 0 else "" for number in index] == ["u", "", "v", "u"]
    assert sorted(words) == ["u", "v"]


@pytest.mark.parametrize("wrong", [{"sort": "colour"}, {"order": "up"}])
def test_a_wrong_order_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))}="):
        tensors_view(two_steps(), **wrong)  # type: ignore[arg-type]
