"""The run of a process, found by the log that it holds open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbmem.errors import UsageError
from tbmem.sources.runs.attached import run_of_process

HOLDS = """
import subprocess, sys
if len(sys.argv) > 2:
    raise SystemExit(subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]]).returncode)
log = open(sys.argv[1], "a+b", buffering=0)
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "runs/first/rank1/plugins/tbmem/monitor.jsonl"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture(params=[(), (HOLDS,)], ids=["the process itself", "its child"])
def process(request: pytest.FixtureRequest, log: Path) -> Iterator[int]:
    command = [sys.executable, "-c", HOLDS, str(log), *request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        yield holder.pid
        holder.communicate()


def test_the_run_of_a_process_or_of_its_children(process: int, tmp_path: Path) -> None:
    assert run_of_process(process) == tmp_path / "runs/first"


def test_without_proc_psutil_is_asked(process: int, tmp_path: Path) -> None:
    assert run_of_process(process, proc=tmp_path / "no_proc") == tmp_path / "runs/first"


def test_a_process_without_a_log_and_none_at_all() -> None:
    with pytest.raises(UsageError, match="writes no live log"):
        run_of_process(os.getpid())
    with pytest.raises(UsageError, match="4194304: no such process"):
        run_of_process(1 << 22)
