"""The lines of the scheduled profiler."""

from __future__ import annotations

import logging

import pytest

from tbmem.runtime.profiling.console import ProfilerConsole


def test_a_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    console = ProfilerConsole(shows=True)
    with caplog.at_level(logging.WARNING, "tbmem"):
        for _ in range(3):
            console.warn_once("no window here")
    assert [record.getMessage() for record in caplog.records] == ["no window here"]


def test_steps_continue_those_of_a_checkpoint() -> None:
    console = ProfilerConsole(shows=True)
    console.resumed_after = 100
    assert (console.steps(4, 3), console.steps(4, 1)) == ("steps 104-106", "step 104")


@pytest.mark.parametrize(("shows", "level"), [(True, logging.INFO), (False, logging.DEBUG)])
def test_states_are_shown_or_kept_for_debugging(shows: bool, level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "tbmem"):
        ProfilerConsole(shows=shows).log("profiler · %s wait", "step 1")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, "profiler · step 1 wait")]
