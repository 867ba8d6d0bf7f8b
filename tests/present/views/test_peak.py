"""The peak, broken down, and one allocation."""

from __future__ import annotations

import pytest

from tbmem.analysis.recordings.result import Share
from tbmem.errors import UsageError
from tbmem.present.views.peak import peak_view, shares_of, stack_view
from tests.present.views.recordings import two_steps


def test_every_breakdown_adds_up_to_the_peak() -> None:
    recorded = two_steps()
    peak = peak_view(recorded)

    # of a step 64, 1000 and 400 bytes are alive with the 32 that follow, and 50 from before
    assert peak["peak"]["bytes"] == 64 + 1000 + 400 + 32 + 50
    for key in ("by_category", "by_phase", "merged", "by_line", "by_operator"):
        assert sum(peak[key]["bytes"]) == peak["peak"]["bytes"]
    modules = peak["modules"]
    assert (modules["parent"][0], modules["bytes"][0]) == (-1, peak["peak"]["bytes"])
    assert sum(modules["own_bytes"]) == peak["peak"]["bytes"]
    assert peak["empty"] is None


def test_modules_follow_their_parents() -> None:
    modules = peak_view(two_steps())["modules"]

    assert all(parent < number for number, parent in enumerate(modules["parent"]))
    for number, parent in enumerate(modules["parent"][1:], start=1):
        assert modules["path"][number].startswith(modules["path"][parent])
        assert modules["bytes"][number] <= modules["bytes"][parent]


def test_shares_have_a_colour_where_one_is_known() -> None:
    shares = [Share(name=name, bytes=1, count=1, percent=50.0) for name in ("A", "B")]

    assert shares_of(shares, {"A": "red", "B": ""}.__getitem__)["colour"] == ["red", ""]
    assert shares_of(shares)["colour"] == ["", ""]


def test_one_allocation() -> None:
    # given the activation of the first step, which lives from event 1 to event 6, microseconds apart
    one = stack_view(two_steps(), 1)

    assert (one["row"], one["bytes"], one["step"], one["phase"]) == (1, 1000, 0, "FORWARD")
    assert (one["alloc_event"], one["free_event"]) == (1, 6)
    assert one["end_ms"] - one["begin_ms"] == pytest.approx(0.005)
    assert one["rounded_bytes"] is None
    assert [frame["text"] for frame in one["frames"]] == ["/home/me/train.py:10 loss_of"]


@pytest.mark.parametrize("row", [-1, 11])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(UsageError, match="w.tbmem.npz has rows 0 to 10"):
        stack_view(two_steps(), row)
