"""`tbmem watch` on runs of a real monitor, as a shell sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tbmem import MemoryMonitor
from tests.cli.conftest import Run


def test_watch_once(run: Run, finished_run: Path) -> None:
    done = run("watch", finished_run.parent, "--once")

    assert done.code == 0
    assert done.out.startswith("mine · ended in order · step 30")
    assert "STABLE" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80


def test_watch_as_json(run: Run, finished_run: Path) -> None:
    (view,) = json.loads(run("watch", finished_run, "--json").out)

    assert (view["run"], view["status"], view["step"]) == ("mine", "ended", 30)
    assert view["ranks"][0]["devices"][0]["verdict"] == "stable"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_watch_on_a_terminal_ends_with_the_run_and_never_loads_torch(finished_run: Path) -> None:
    # given a terminal
    ours, theirs = os.openpty()
    program = (
        "import sys; from tbmem.cli.entry import main\ntry: main()\nfinally: assert 'torch' not in sys.modules, 'torch'"
    )
    command = [sys.executable, "-c", program, "watch", str(finished_run)]

    # when a run is watched that has ended
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as child:
        os.close(theirs)
        _, errors = child.communicate(timeout=60)

    # then it is shown, and that is all
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert child.returncode == 0, errors
    assert "mine" in shown
    assert "STABLE" in shown


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells")
def test_a_run_that_was_killed_has_died_at_once(run: Run, tmp_path: Path) -> None:
    # given a run that is killed after some steps
    program = """
import os, pathlib, signal, time
from tbmem import MemoryCallback
memory = MemoryCallback(run={"logdir": "runs"}, profiling={"enabled": False})
memory.start()
for _ in range(10):
    memory.step()
while not any(log.stat().st_size for log in pathlib.Path("runs").rglob("monitor.jsonl")):
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False)
    # when
    done = run("watch", tmp_path / "runs", "--once")
    # then
    assert done.code == 0
    assert "killed or crashed: no end in its log" in done.out


@pytest.mark.parametrize(("place", "message"), [("nowhere", "no such file or folder"), ("empty", "no run of tbmem")])
def test_a_place_without_a_run_is_one_line_and_exit_2(place: str, message: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    done = run("watch", place)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


@pytest.mark.parametrize(
    "command", [["watch"], ["watch", "--once"], ["watch", "--json"], ["report"], ["check", "--no-leak"]]
)
@pytest.mark.parametrize("text", ["", '{"type":"header","rank"'])
def test_a_log_without_a_whole_record_is_one_line_and_exit_2(
    text: str, command: list[str], run: Run, tmp_path: Path
) -> None:
    # given a log that was cut off in its first line
    log = tmp_path / "cut/plugins/tbmem/monitor.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(text)
    os.utime(log, (1e9, 1e9))
    # when
    done = run(*command, "cut")
    # then
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert re.search("cut.*: (its log has no whole record: it was cut off or damaged|not a monitor log)", done.err)


def test_a_process_id_stands_for_the_run_that_it_writes(run: Run, tmp_path: Path) -> None:
    # given this process, which trains
    with MemoryMonitor(folder=tmp_path / "runs/mine", console=False) as monitor:
        monitor.step()
        # when
        done = run("watch", os.getpid(), "--json")
    # then
    (view,) = json.loads(done.out)
    assert view["run"] == "mine"


def test_a_folder_named_as_a_number_comes_before_a_process(run: Run, finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "1").symlink_to(finished_run, target_is_directory=True)

    assert run("watch", "1", "--once").code == 0


def test_a_process_that_is_not_there_is_one_line(run: Run) -> None:
    done = run("watch", 1 << 22)

    assert (done.code, done.err) == (2, "tbmem watch: 4194304: no such process, and no such file or folder\n")
