"""A sign of life: a spinner on terminals, elsewhere a line for what takes long."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from contextlib import redirect_stderr
from io import StringIO

import pytest

from tbmem.cli.waiting import waiting
from tbmem.model.progress import progress, show_first
from tests.conftest import wait_until

PROGRAM = (
    "import time\nfrom tbmem.cli.waiting import waiting\nwith waiting('estimating [gpt2]'): time.sleep(0.5)\nprint(1)"
)


def test_short_work_writes_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("estimating gpt2"):
        pass

    assert capsys.readouterr() == ("", "")


def test_long_work_writes_its_stage_and_once_what_would_be_shorter() -> None:
    # given
    written = StringIO()
    with redirect_stderr(written), waiting("estimating [gpt2]", hint="; --no-alternatives is shorter", interval=0.01):
        # when
        assert wait_until(lambda: "\n" in written.getvalue())
        show_first("the estimate")
        assert wait_until(lambda: "shorter" in written.getvalue())
        progress("the largest batch")
        assert wait_until(lambda: "largest" in written.getvalue())
    # then
    first, *others, last = written.getvalue().splitlines()
    assert first == "estimating [gpt2], 0 s so far"
    assert others.count("estimating [gpt2], 0 s so far; --no-alternatives is shorter") == 1
    assert last == "estimating [gpt2]: the largest batch, 0 s so far"


def test_nothing_is_written_once_the_work_has_failed() -> None:
    written = StringIO()
    with redirect_stderr(written), pytest.raises(KeyboardInterrupt), waiting("estimating gpt2", interval=0.01):
        raise KeyboardInterrupt

    before = written.getvalue()
    time.sleep(0.05)
    assert written.getvalue() == before


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
