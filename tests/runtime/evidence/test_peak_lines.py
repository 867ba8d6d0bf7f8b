"""Lines at peaks, from memory that is told by hand and the stack of a thread that is really there."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tbmem.model.finding import FindingKind, Severity
from tbmem.model.monitor_log import read_monitor_log
from tbmem.runtime.evidence.peak_lines import PART, PeakLines, PeakSource
from tbmem.runtime.process.guard import Guard
from tbmem.units import GIB, MIB
from tests.conftest import PROJECT


class Told:
    """What a look reads, set by the test."""

    def __init__(self) -> None:
        self.resident, self.level, self.step, self.is_paused = 100 * MIB, 100 * MIB, 1, False
        self.allocated: int | None = None  # by malloc beyond the last step's end
        self.on_gpu = (GIB, GIB)

    def lines(self, guard: Guard | None = None, clock: Callable[[], float] = time.monotonic) -> PeakLines:
        source = PeakSource(
            heights=lambda quickly: {
                "cpu": self._on_cpu(quickly),
                "cuda:0": (self.on_gpu[0] - self.on_gpu[1], None),
            },
            step=lambda: self.step,
            is_paused=lambda: self.is_paused,
        )
        return PeakLines(source, guard or Guard(), clock)

    def _on_cpu(self, quickly: bool) -> tuple[int, int | None]:
        if quickly and self.allocated is not None:
            return self.allocated, self.allocated
        return max(self.resident - self.level, self.allocated or 0), self.allocated


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


def test_what_malloc_hands_out_shows_where_it_is_free_memory_of_the_process() -> None:
    # given a resident memory that stays as it is
    told = Told()
    lines = told.lines()
    with working(lines):
        # when a step allocates and frees again, at five looks
        for allocated in (2 * MIB, 60 * MIB, 90 * MIB, 30 * MIB, 0):
            told.allocated = allocated
            lines.look()
    # then
    running = lines.of_steps("cpu", [1])
    assert [line.text for line in running.lines] == ["leave.wait(20)"]
    assert running.allocated == 90 * MIB


@pytest.mark.parametrize("looks", [[90 * MIB] * 3, [90 * MIB, None, 90 * MIB, 90 * MIB]])
def test_too_few_looks_do_not_tell_what_was_allocated(looks: list[int | None]) -> None:
    told = Told()
    lines = told.lines()
    told.resident = 190 * MIB
    with working(lines):
        for told.allocated in looks:
            lines.look()
    running = lines.of_steps("cpu", [1])
    assert running.lines
    assert running.allocated is None


def seen(needs: Iterable[int], is_whole: Callable[[int], bool] = lambda step: True, quickly: bool = False) -> PeakLines:
    """What four looks tell at each of the steps that allocate so many MiB."""
    told = Told()
    lines = told.lines()
    with working(lines):
        for told.step, need in enumerate(needs, start=1):
            told.allocated = need * MIB
            for _ in range(4):
                lines.look(quickly=quickly, is_whole=is_whole(told.step))
    return lines


def test_what_high_steps_allocated_beyond_the_usual_is_known_after_a_few_steps() -> None:
    # given a first step that is high, when nothing is usual yet, and one after some others that were looked at whole
    lines = seen([90 if step in (1, 15) else 6 for step in range(1, 20)], is_whole=lambda step: step % 2 == 0)
    # then
    assert lines.allocated("cpu") == {15: 84 * MIB}
    assert (lines.of_steps("cpu", [15]).allocated, lines.of_steps("cpu", [15]).needed) == (90 * MIB, 84 * MIB)
    assert lines.of_steps("cpu", [1]).needed is None
    # what a spike before them has needed is said, but nobody looks for one among them
    early = seen([90 if step == 3 else 6 for step in range(1, 20)], is_whole=lambda step: step > 3)
    assert (early.of_steps("cpu", [3]).needed, early.allocated("cpu")) == (84 * MIB, {})


def test_what_is_usual_is_what_most_steps_allocate() -> None:
    # given steps of which a third allocate 20 MiB, and one 90
    lines = seen([90 if step == 35 else 20 if step % 3 == 0 else 6 for step in range(1, 40)])
    # then: what is said of it is not more than it needed beyond any of them
    assert lines.of_steps("cpu", [35]).needed == 70 * MIB


def test_what_is_usual_is_known_later_of_a_step_before_which_few_were_looked_at() -> None:
    # given a high step after a single one that was looked at whole
    told = Told()
    lines = told.lines()
    with working(lines):
        for told.step in range(1, 8):
            told.allocated = (90 if told.step == 3 else 6) * MIB
            for _ in range(4):
                lines.look(is_whole=told.step != 3)
            # when: too early
            if told.step == 4:
                assert lines.allocated("cpu") == {}
    # then
    assert lines.allocated("cpu") == {3: 84 * MIB}


def test_looks_that_have_missed_the_highest_moment_of_the_first_steps_do_not_make_a_later_one_higher() -> None:
    # given a high step after four that were looked at whole, at whose highest moment no look was, and later ones
    needs = [90 if step == 5 else 6 if step < 5 else 8 for step in range(1, 9)]
    # then
    assert seen(needs, is_whole=lambda step: step != 5).of_steps("cpu", [5]).needed == 82 * MIB


def test_a_step_that_is_itself_looked_at_whole_is_not_what_is_usual() -> None:
    lines = seen([90 if step == 4 else 6 for step in range(1, 8)])

    assert lines.of_steps("cpu", [4]).needed == 84 * MIB


@pytest.mark.parametrize(("at", "is_followed"), [(range(20), True), ([0, 1, 2, 3, 12, 13, 14, 15], False)])
def test_a_step_is_followed_if_looks_at_it_are_never_far_apart(at: Iterable[int], is_followed: bool) -> None:
    # given
    told, times = Told(), iter(at)
    lines = told.lines(clock=lambda: float(next(times)))
    told.allocated = 90 * MIB
    # when
    with working(lines):
        for _ in at:
            lines.look()
    # then
    assert lines.of_steps("cpu", [1]).is_followed is is_followed
    assert lines.of_steps("cpu", [1]).seconds == max(at)


def test_a_step_of_which_only_a_part_was_seen_does_not_tell_what_is_usual() -> None:
    # given steps at whose peaks no look was taken, but for a few that were looked at whole
    needs = [90 if step == 17 else 20 if step % 3 == 0 else 1 for step in range(1, 20)]
    lines = seen(needs, is_whole=lambda step: step % 3 == 0, quickly=True)
    # then
    assert lines.allocated("cpu")[17] == 70 * MIB


def test_steps_that_are_as_high_as_usual_are_not_looked_at() -> None:
    # given steps that all allocate as much
    told = Told()
    lines = told.lines()
    told.allocated = 100 * MIB
    for told.step in range(1, 80):
        lines.look()
    # when
    with working(lines):
        lines.look()
        told.step, told.allocated = 81, 110 * MIB
        lines.look()
    # then
    assert lines.of_steps("cpu", [80]).lines == ()
    assert lines.of_steps("cpu", [81]).lines[0].text == "leave.wait(20)"


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


@pytest.mark.parametrize("trains", [True, False])
def test_a_peak_in_a_model_that_trains_elsewhere_is_an_evaluation(trains: bool) -> None:
    # given a model in whose forward memory is high
    told = Told()
    lines = told.lines()

    class Model(torch.nn.Module):
        def forward(self) -> None:
            lines.look()

    model = Model().eval()
    told.resident = 150 * MIB
    # when it is in eval mode, and in another step it trains, or does not
    model()
    model.train(trains)
    # then
    assert lines.of_steps("cpu", [1]).is_evaluation is trains
    # and a step of it in training mode is none
    told.step = 2
    model.train()
    model()
    assert not lines.of_steps("cpu", [2]).is_evaluation


def test_of_old_steps_the_largest_are_remembered() -> None:
    # given steps that are all high, since none before was
    told = Told()
    lines = told.lines()
    told.allocated = 0
    for told.step in range(1, 800):
        told.resident = (150 if told.step in (70, 799) else 105 + told.step % 2) * MIB
        lines.look()
    # then
    assert lines.of_steps("cpu", [70]).lines
    assert lines.of_steps("cpu", [799]).lines
    assert lines.of_steps("cpu", [100]).lines == ()


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


def test_a_timer_that_cannot_be_started_is_no_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a program near the recursion limit, where ctypes raises an error of its own
    lines = Told().lines()

    def fail() -> None:
        raise ctypes.ArgumentError("argument 1: RecursionError: maximum recursion depth exceeded")

    monkeypatch.setattr(lines._timer, "begin_step", fail)
    # when / then
    lines.begin_step()
    lines.stop()


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


EVALUATION = """
import torch
from tbmem import MemoryCallback

model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with MemoryCallback(profiling={"enabled": False}) as memory:
    for step in range(1, 121):
        model(torch.rand(64, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            model.eval()
            for _ in range(4):
                model(torch.rand(2048, 256))
            model.train()
        memory.step()
"""


@pytest.mark.slow
def test_an_evaluation_is_no_problem_as_such(tmp_path: Path) -> None:
    # given a loop whose first evaluation needs more than training, which malloc keeps for those that follow
    (tmp_path / "train.py").write_text(EVALUATION)
    # when
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, check=True, timeout=120)
    # then it is mentioned, and the run is stable
    (log,) = tmp_path.glob("runs/*/plugins/tbmem/monitor.jsonl")
    ended = read_monitor_log(log)
    spikes = [finding for finding in ended.findings if finding.kind is FindingKind.SPIKE]
    needed = r"(needed at least|took) \+\d+\.\d\d MiB "  # not on a busy machine
    assert re.match(rf"step 50 \(in an evaluation: the model was in eval mode\) {needed}", spikes[0].message)
    assert {(spike.evidence["phase"], spike.severity) for spike in spikes} == {("evaluation", Severity.INFO)}
    assert ended.end is not None
    (verdict,) = ended.end["verdicts"]
    assert verdict["kind"] == "stable"
    assert any(f" · {spike.message}" in verdict["message"] for spike in spikes)


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
