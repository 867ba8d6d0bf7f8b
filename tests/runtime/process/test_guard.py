"""Errors of tbmem's own parts."""

from __future__ import annotations

import logging

import pytest

from tbmem.runtime.process.guard import Guard


def _fails() -> None:
    raise RuntimeError("disk on fire")


def test_an_error_is_logged_once_and_switches_the_part_off(caplog: pytest.LogCaptureFixture) -> None:
    # given a part that fails
    guard = Guard()
    calls: list[int] = []

    # when it is run three times
    with caplog.at_level(logging.WARNING, "tbmem"):
        for _ in range(3):
            assert guard.run("part", lambda: (calls.append(1), _fails())) is None

    # then it ran once, and the log has one line with the cause
    assert calls == [1]
    assert [record.getMessage() for record in caplog.records] == [
        "part is off: RuntimeError: disk on fire; training goes on"
    ]
    assert guard.problems == ["part is off: RuntimeError: disk on fire"]


def test_a_problem_that_is_no_error_is_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    guard.note("two files were not written", " in time")
    assert guard.problems == ["two files were not written"]
    assert caplog.messages == ["two files were not written in time"]


def test_other_parts_go_on() -> None:
    guard = Guard()
    guard.run("one", _fails)

    assert guard.run("two", lambda: 2) == 2
    assert "one" in guard.failed
    assert "two" not in guard.failed


def test_an_interrupt_is_not_an_error_of_ours() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard().run("part", interrupted)
