"""The answer on steps laid over each other."""

from __future__ import annotations

from tbmem.present.views.steps import COLUMNS, steps_view
from tests.analysis.plots.test_folded_steps import MIB, training
from tests.analysis.timelines import recording
from tests.present.views.recordings import view_of


def test_the_line_of_a_leak_and_the_curves() -> None:
    view = steps_view(view_of(recording(*(row for n in range(5) for row in training(n, 10 * n, kept=4)))))

    assert [step["step"] for step in view["steps"]] == [0, 1, 2, 3, 4]
    assert {len(step["bytes"]) for step in view["steps"]} == {COLUMNS}
    (line,) = view["lines"]
    assert line["line"] == "me/train.py:10 f"
    assert (line["kept_each"], line["typical"], line["most"]) == (4 * MIB, 104 * MIB, 104 * MIB)
    assert view["empty"] is None


def test_of_many_steps_some_are_shown_and_the_last_is_one_of_them() -> None:
    view = steps_view(view_of(recording(*(row for n in range(150) for row in training(n, 10 * n)))))

    assert view["count"] == 150
    assert len(view["steps"]) <= 60
    assert view["steps"][-1]["step"] == 149


def test_one_step_cannot_be_compared() -> None:
    view = steps_view(view_of(recording(*training(1, 0))))

    assert view["empty"]["title"] == "There are no two whole steps in this recording"
    assert view["steps"] == []


def test_the_end_of_an_unfinished_step_is_null() -> None:
    rows = [*training(-1, 0), *training(-1, 10), *training(-1, 20, ends=False)]

    view = steps_view(view_of(recording(*rows)))

    assert view["steps"][2]["bytes"][-1] is None
    assert None not in view["typical"]


def test_each_step_is_listed_also_a_single_one() -> None:
    (single,) = steps_view(view_of(recording(*training(1, 0))))["each"]
    several = steps_view(view_of(recording(*(row for n in range(70) for row in training(n, 10 * n)))))["each"]

    assert (single["step"], single["allocated_bytes"], single["freed_bytes"]) == (1, 150 * MIB, 150 * MIB)
    assert [step["step"] for step in several] == list(range(70))
