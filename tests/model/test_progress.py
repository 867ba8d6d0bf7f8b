"""Work tells how far it has come, and stops when it is cancelled."""

from __future__ import annotations

import pytest

from tbmem.model.progress import CancelledError, Work, progress, show_first, working


def test_work_that_nobody_follows_goes_on() -> None:
    progress("reading", 0.5)


def test_work_tells_its_share_and_can_be_cancelled() -> None:
    work = Work("a.json")
    with working(work):
        progress("reading", 0.25)
        assert (work.stage, work.share) == ("reading", 0.25)

        work.is_cancelled = True
        with pytest.raises(CancelledError, match=r"reading a\.json was cancelled"):
            progress("analysing")
    # and what follows is another's
    progress("reading")
    assert work.stage == "reading"


def test_a_first_result_is_given_to_whoever_follows_the_work() -> None:
    # given
    shown: list[str] = []
    show_first("nobody")
    # when
    with working(Work("gpt2", show=shown.append)):
        show_first("the estimate itself")
    # then
    assert shown == ["the estimate itself"]
