"""Whether a process that was described is alive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tbmem.sources.runs.process_identity import is_alive, this_process

pytestmark = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells")

_CHILD = """
import json, sys
from tbmem.sources.runs.process_identity import this_process
print(json.dumps(this_process()), flush=True)
sys.stdin.read()
"""


def test_this_process_is_there_also_after_a_journey_through_json() -> None:
    assert is_alive(json.loads(json.dumps(this_process()))) is True


def test_a_child_that_was_killed_is_gone_before_and_after_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        process = json.loads(child.stdout.readline())
        assert is_alive(process) is True
        # when
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # then as a zombie, too
        assert is_alive(process) is False
    assert is_alive(process) is False


def test_a_number_that_another_process_has_now_is_not_the_process() -> None:
    assert is_alive({**this_process(), "started": "1"}) is False


@pytest.mark.parametrize(
    "changed",
    [{"numbers": "another container"}, {"pid": None}, {"pid": 0}, {"pid": -1}, {"pid": 1 << 80}, {"pid": "7"}],
)
def test_what_cannot_be_known_is_neither(changed: dict[str, Any]) -> None:
    assert is_alive({**this_process(), "started": "1", **changed}) is None
    assert is_alive({}) is None


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert this_process(tmp_path) == {}
    assert is_alive(this_process(), tmp_path) is None
