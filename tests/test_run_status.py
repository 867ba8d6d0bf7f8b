"""Real processes that end in every way: each screen says the same of where their runs stand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import tbmem
from tbmem.cli.main import app
from tbmem.model.files import MONITOR_LOG
from tests.plugin.test_plugin import Tab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells of other processes"),
]

STEPS = """
import os, sys, time
import torch
from tbmem import MemoryCallback
sections = {"run": {"logdir": sys.argv[1], "name": sys.argv[2]}, "profiling": {"enabled": False}}
memory = MemoryCallback(monitor={"log_every_n_steps": 1}, **sections)
def train(end=lambda: None):
    for _ in range(12):
        torch.ones(1000).sum()
        time.sleep(0.1)  # shorter steps are logged later, several together
        memory.step()
    end()
def fails():
    raise RuntimeError("shapes do not fit")
def wait():
    print("ready", flush=True)
    time.sleep(600)
"""
WITH = "with memory:\n    train({})\n"


class Way(NamedTuple):
    """How a program ends, and what is to be said of it."""

    program: str
    status: str
    text: str
    signal: int | None = None
    detail: str = ""


DETAIL = ": shapes do not fit"
WAYS = {
    "in_order": Way(WITH.format(""), "ended", "ended in order"),
    "exit": Way(WITH.format("lambda: sys.exit(3)"), "ended", "ended in order"),
    "raises": Way(WITH.format("fails"), "failed", "ended by RuntimeError", detail=DETAIL),
    "raises_at_exit": Way("memory.start()\ntrain(fails)\n", "failed", "ended by RuntimeError", detail=DETAIL),
    "finally": Way(
        "memory.start()\ntry:\n    train(fails)\nfinally:\n    memory.stop()\n",
        "failed",
        "ended by RuntimeError",
        detail=DETAIL,
    ),
    "allocator": Way(WITH.format("lambda: torch.empty(1 << 52)"), "out_of_memory", "ran out of memory (RuntimeError)"),
    "allocator_at_exit": Way(
        "memory.start()\ntrain(lambda: torch.empty(1 << 52))\n", "out_of_memory", "ran out of memory (RuntimeError)"
    ),
    "limited": Way(
        "import resource\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (1 << 30)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size))\n" + WITH.format("lambda: torch.empty(1 << 31)"),
        "out_of_memory",
        "ran out of memory (RuntimeError)",
    ),
    "memory_error": Way(WITH.format("lambda: bytearray(1 << 60)"), "out_of_memory", "ran out of memory (MemoryError)"),
    "killed": Way(WITH.format("wait"), "died", "killed or crashed: no end in its log", signal.SIGKILL),
    "terminated": Way(WITH.format("wait"), "terminated", "ended by SIGTERM", signal.SIGTERM),
    "running": Way(WITH.format("wait"), "running", "running"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log folder with a run of each way; that which runs does so until the tests are over."""
    logdir = tmp_path_factory.mktemp("ways") / "runs"
    children = {}
    try:
        for name, way in WAYS.items():
            command = [sys.executable, "-c", STEPS + way.program, str(logdir), name]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            children[name] = child
            if "wait" not in way.program:
                child.communicate(timeout=120)
                continue
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            _wait_for_step(logdir / name / MONITOR_LOG, 12)
            if way.signal is not None:
                child.send_signal(way.signal)
                child.communicate(timeout=60)
        yield logdir
    finally:
        for child in children.values():
            with suppress(ProcessLookupError):
                child.kill()
            child.communicate()


def _wait_for_step(log: Path, step: int) -> None:
    for _ in range(400):
        if log.exists() and f'"step":{step},' in log.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"step {step} was not logged")


def _asked(*arguments: object) -> Any:
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    return done.stdout


@pytest.mark.parametrize("name", WAYS)
def test_every_screen_says_the_same(name: str, runs: Path, tmp_path: Path) -> None:
    run, way = runs / name, WAYS[name]
    tab = Tab(str(runs))
    # when
    (item,) = [one for one in tab.data("index").json["runs"] if one["run"] == name]
    (overview,) = tab.data(f"overview?run={name}").json["runs"]
    (watched,) = json.loads(_asked("watch", run, "--json"))
    checked = json.loads(_asked("check", run, "--max-peak", "1TiB", "--json"))
    reported = json.loads(_asked("report", run, "--json"))
    # then
    answers = (item, overview, watched, checked, reported)
    assert [each["status"] for each in answers] == [way.status] * len(answers)
    assert [each["status_text"] for each in answers] == [way.text + way.detail] * len(answers)
    assert _asked("watch", run, "--once").startswith(f"{name} · {way.text}{way.detail} · step 12")
    assert f", {way.text}{way.detail}\n" in _asked("report", run, "--out", tmp_path).partition("\n")[0] + "\n"
    assert f"{way.text}{way.detail}" in (tmp_path / "latest" / "README.md").read_text()
    # and who reads figures is told of every end but one in order
    last = "12, the last in its log: a second of steps may be missing" if way.status == "died" else "12"
    note = f"rank 0: {way.text}; it is judged up to step {last}"
    assert checked["notes"] == ([] if way.status == "ended" else [note])
    compared = tab.data(f"compare?before=in_order&after={name}").json["notes"]
    by_hand = tbmem.compare(runs / "in_order", run).notes
    for notes in (compared, by_hand):
        told = f"{name}: rank 0: {way.text}; it is compared up to step {last}."
        assert (told in notes) is (way.status != "ended")


def test_a_tab_that_has_seen_a_run_sees_that_it_was_killed(runs: Path) -> None:
    # given a tab that has looked at a run while it ran
    command = [sys.executable, "-c", STEPS + WITH.format("wait"), str(runs), "watched"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        _wait_for_step(runs / "watched" / MONITOR_LOG, 12)
        tab = Tab(str(runs))

        def status() -> str:
            found: str = tab.data("overview?run=watched").json["runs"][0]["status"]
            return found

        assert status() == "running"
        # when it is killed, which changes no file
        child.kill()
        child.wait(timeout=60)
        # then
        assert status() == "died"
