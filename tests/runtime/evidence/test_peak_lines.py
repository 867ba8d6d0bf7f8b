"""Lines at peaks, from memory that is told by hand and the stack of a thread that is really there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import read_monitor_log
from tbmem.runtime.evidence.peak_lines import PART, PeakLines, PeakSource
from tbmem.runtime.process.guard import Guard
from tbmem.units import GIB, MIB
from tests.conftest import PROJECT


class Told:
    """What a look reads, set by the test."""

    def __init__(self) -> None:
        self.resident, self.level, self.step, self.is_paused = 100 * MIB, 100 * MIB, 1, False
        self.on_gpu = (GIB, GIB)

    def lines(self, guard: Guard | None = None) -> PeakLines:
        source = PeakSource(
            memory=lambda: {"cpu": (self.resident, self.level), "cuda:0": self.on_gpu},
            step=lambda: self.step,
            is_paused=lambda: self.is_paused,
        )
        return PeakLines(source, guard or Guard())


@contextmanager
def working(lines: PeakLines) -> Iterator[None]:
    """A thread that is in ``evaluate``, as the one that trains."""
    entered, leave = threading.Event(), threading.Event()

    def evaluate() -> None:
        entered.set()
        leave.wait(20)

    thread = threading.Thread(target=evaluate)
    thread.start()
    entered.wait(20)
    assert thread.ident is not None
    lines.watched = thread.ident
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_the_line_at_the_highest_look_is_known() -> None:
    # given
    told = Told()
    lines = told.lines()
    with working(lines):
        # when
        told.resident = 150 * MIB
        lines.look()
    # then
    running = lines.of_steps("cpu", [1])
    assert [line.text for line in running.lines] == ["leave.wait(20)"]
    # and the call in Python's own code that does not return yet
    assert running.operator == ("acquire" if sys.version_info >= (3, 11) else "")
    assert running.lines[0].function.endswith("evaluate")


def test_a_level_as_at_the_last_steps_end_is_not_looked_at() -> None:
    told = Told()
    lines = told.lines()
    with working(lines):
        told.resident = told.level + MIB
        lines.look()
    assert lines.of_steps("cpu", [1]).lines == ()


def test_a_lower_look_does_not_replace_a_higher_one() -> None:
    # given
    told = Told()
    lines = told.lines()
    with working(lines):
        told.resident = 150 * MIB
        lines.look()
    # when the thread is somewhere else, and memory lower
    lines.watched = threading.get_ident()
    told.resident = 120 * MIB
    lines.look()
    # then
    assert lines.of_steps("cpu", [1]).lines[0].text == "leave.wait(20)"


def test_some_pages_more_do_not_move_the_peak() -> None:
    # given
    told = Told()
    lines = told.lines()
    with working(lines):
        told.resident = 150 * MIB
        lines.look()
    # when what the peak has needed is free and still resident, and a little more is needed
    lines.watched = threading.get_ident()
    told.resident += MIB
    lines.look()
    # then
    assert lines.of_steps("cpu", [1]).lines[0].text == "leave.wait(20)"


def test_of_several_steps_the_highest_counts() -> None:
    told = Told()
    lines = told.lines()
    with working(lines):
        told.resident = 150 * MIB
        lines.look()
    told.step, told.resident = 2, 180 * MIB
    lines.watched = threading.get_ident()
    lines.look()
    assert lines.of_steps("cpu", range(1, 3)).lines[0].text == "lines.look()"
    assert lines.of_steps("cpu", range(1, 2)).lines[0].text == "leave.wait(20)"


def test_each_device_has_its_own_peak() -> None:
    # given
    told = Told()
    lines = told.lines()
    with working(lines):
        told.on_gpu = (2 * GIB, GIB)
        lines.look()
    # when the resident memory is high somewhere else
    lines.watched = threading.get_ident()
    told.resident = 150 * MIB
    lines.look()
    # then
    assert lines.of_steps("cuda:0", [1]).lines[0].text == "leave.wait(20)"
    assert lines.of_steps("cpu", [1]).lines[0].text == "lines.look()"


def test_old_steps_are_forgotten() -> None:
    told = Told()
    lines = told.lines()
    told.resident = 150 * MIB
    for told.step in range(1, 400):
        lines.look()
    assert lines.of_steps("cpu", [1]).lines == ()
    assert lines.of_steps("cpu", [399]).lines


def test_an_error_switches_the_part_off(caplog: pytest.LogCaptureFixture) -> None:
    # given
    told, guard = Told(), Guard()
    lines = told.lines(guard)
    told.resident = None  # type: ignore[assignment]
    # when
    lines.start()
    lines._thread.join(5)
    lines.stop()
    # then
    assert PART in guard.failed


SPIKE = """
import torch
from tbmem import MemoryCallback

def train():
    return float(torch.ones(1 << 20).sum())

def evaluate():
    scores = torch.ones(16 << 20)
    return float(sum((scores + number).sum() for number in range(12)))

with MemoryCallback(profiling={"enabled": False}) as memory:
    for step in range(60):
        for _ in range(20):
            train()
        if step == 45:
            evaluate()
        memory.step()
"""


@pytest.mark.slow
def test_a_spike_names_its_line_without_a_window(tmp_path: Path) -> None:
    # given a loop without windows, in a process whose heap is its own
    (tmp_path / "train.py").write_text(SPIKE)
    # when
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, check=True, timeout=120)
    # then
    (log,) = tmp_path.glob("runs/*/plugins/tbmem/monitor.jsonl")
    (spike,) = [finding for finding in read_monitor_log(log).findings if finding.kind is FindingKind.SPIKE]
    assert "scores" in spike.evidence["line"]["text"]
    assert "evaluate" in spike.message
