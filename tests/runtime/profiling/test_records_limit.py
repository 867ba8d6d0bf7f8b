"""The limit of a window's records: memory that is told by hand, calls that Python really makes."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from tbmem.runtime.profiler import MemoryProfiler
from tbmem.runtime.profiling.records_limit import RecordsLimit
from tbmem.units import MIB


class Recording:
    """A recording that notes where it was ended."""

    def __init__(self, resident: int) -> None:
        self.resident = resident
        self.ends = 0
        self.limit = RecordsLimit(lambda: self.resident > 100 * MIB, self._end)

    def _end(self) -> None:
        self.ends += 1
        self.limit.stop()


def wait_for(recording: Recording, seconds: float = 2.0) -> None:
    """The program's own code, in which it may be ended."""
    until = time.monotonic() + seconds
    while not recording.ends and time.monotonic() < until:
        sum(range(1000))


def test_above_the_limit_it_ends_in_the_middle_of_the_programs_work() -> None:
    # given
    recording = Recording(101 * MIB)
    # when
    recording.limit.start()
    wait_for(recording)
    # then: once
    assert recording.ends == 1
    assert recording.limit.is_exceeded


def test_below_the_limit_nothing_happens() -> None:
    recording = Recording(99 * MIB)
    recording.limit.start()
    wait_for(recording, 0.7)
    recording.limit.stop()
    assert recording.ends == 0
    assert not recording.limit.is_exceeded


def test_a_stopped_one_does_not_end_anything_more() -> None:
    recording = Recording(101 * MIB)
    recording.limit.start()
    recording.limit.stop()
    wait_for(recording, 0.7)
    assert recording.ends == 0
    assert not recording.limit.is_exceeded


def test_a_question_that_takes_long_is_not_asked_again_within_itself() -> None:
    # given a recording that traces Python, and a program that has its own signals: in Python 3.11 a second pending call
    # during the first one makes the first traced function repeat its first instruction for ever
    program = """
        import signal, sys, time
        from tbmem.runtime.profiling import records_limit

        def look(asked=[]):
            asked.append(time.monotonic())
            while time.monotonic() < asked[-1] + 0.3:
                repr(records_limit)
            return False

        records_limit._runs_the_program = lambda frame: True
        limit = records_limit.RecordsLimit(look, lambda: None)
        limit.start()
        sys.setprofile(lambda *event: None)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            sum(range(100))
        sys.setprofile(None)
        limit.stop()
        print("asked", len(look.__defaults__[0]))
    """
    # when
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    # then
    assert int(done.stdout.split()[1]) >= 2


def test_control_c_during_a_question_reaches_the_program() -> None:
    # given
    def ask() -> bool:
        signal.raise_signal(signal.SIGINT)
        return False

    limit = RecordsLimit(ask, lambda: None)

    def train() -> None:
        limit.start()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            sum(range(1000))

    # when, then
    try:
        with pytest.raises(KeyboardInterrupt):
            train()
    finally:
        limit.stop()


def test_a_backward_pass_is_not_interrupted() -> None:
    # given: a hook that runs Python within the pass
    recording, inside = Recording(101 * MIB), []

    def hook(gradient: torch.Tensor) -> None:
        recording.limit.start()
        wait_for(recording, 0.7)
        inside.append(recording.ends)

    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(hook)
    # when
    weight.sum().backward()
    # then
    assert inside == [0]
    wait_for(recording)
    assert recording.ends == 1


def steps(profiler: MemoryProfiler, operators: int, count: int = 8) -> None:
    weight = torch.ones(2, requires_grad=True)
    for _ in range(count):
        total = weight
        for _ in range(operators):
            total = total * 1.0
        total.sum().backward()
        profiler.step()


def test_a_step_of_too_many_operators_is_left_out_before_it_is_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # given / when: 2,000 operators are 10 MB of records
    with MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=2, repeat=1, max_records="1 MiB") as profiler:
        steps(profiler, 2000)
    # then
    assert profiler.ledger.windows == []
    assert "a step has too many operators to be recorded in 1.00 MiB (profiling.max_records)" in caplog.text


def test_a_window_that_has_grown_too_large_ends_early(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # given / when: each step fits into 1 MiB of records, two do not
    with MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=3, repeat=1, max_records="1 MiB") as profiler:
        steps(profiler, 120)
    # then
    (result,) = profiler.ledger.windows
    assert result.steps == [3, 4]
    assert not result.complete
    assert "window 1 ends after step 4" in caplog.text


@pytest.mark.slow
def test_a_step_that_turns_out_too_large_is_left_in_its_middle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # given
    with MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=2, repeat=2, max_records="1 MiB") as profiler:
        steps(profiler, 10, 2)
        # when: the first recorded step is much longer than those before
        weight = torch.ones(2, requires_grad=True)
        until = time.monotonic() + 5
        while profiler._window is not None and time.monotonic() < until:
            weight.exp()
            sum(range(2000))
        is_within_the_step = profiler._window is None
        steps(profiler, 10, 6)
    # then
    assert is_within_the_step
    assert profiler.ledger.windows == []
    assert "window 1 is left out" in caplog.text
