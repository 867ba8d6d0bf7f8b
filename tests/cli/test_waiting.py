"""The sign of life is for terminals only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tbmem.cli.waiting import waiting

PROGRAM = (
    "import time\nfrom tbmem.cli.waiting import waiting\nwith waiting('estimating [gpt2]'): time.sleep(0.5)\nprint(1)"
)


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("estimating gpt2"):
        pass

    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_what_is_done_and_takes_it_away() -> None:
    # given
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    # when
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, stderr=follower, capture_output=False, stdout=subprocess.PIPE, env=environment)
    os.close(follower)
    shown = os.read(leader, 10_000).decode()
    os.close(leader)
    # then: brackets are no markup, and the line is erased
    assert done.stdout == b"1\n"
    assert "estimating [gpt2]" in shown
    assert shown.rstrip().endswith("\x1b[2K")
