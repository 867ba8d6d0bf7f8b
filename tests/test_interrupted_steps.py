"""Exceptions of the program that arrive at any line of tbmem's, and calls near the recursion limit."""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from tbmem import MemoryCallback
from tbmem.interruption import _OURS
from tests.conftest import read_malloc_at_each_step

WINDOWS = {"wait": 1, "warmup": 1, "active": 2, "repeat": 0}


class Timeout(Exception):
    """Raised by a debugger or a signal handler of the user's."""


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def _interrupted_after(lines: int, call: Callable[[], None]) -> bool:
    """Call a function of tbmem's and raise in its n-th line; whether it came that far."""
    left = lines

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Timeout
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Timeout:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("seed", range(3))
def test_an_exception_at_any_line_reaches_the_program_and_all_parts_go_on(seed: int, tmp_path: Path) -> None:
    # given a run with windows, where every second step is interrupted somewhere
    chance = random.Random(seed)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reached = 0

    # when
    memory = MemoryCallback(
        run={"logdir": str(tmp_path)}, profiling=WINDOWS, evidence={"enabled": False}, monitor={"log_every_n_steps": 1}
    )
    with memory:
        memory.watch(model, optimizer)
        for number in range(80):
            _train(model, optimizer)
            if number % 2:
                reached += _interrupted_after(int(10 ** chance.uniform(0, 3.3)), memory.step)
            else:
                memory.step()
        # a window that was interrupted comes later each time, as chance has it
        plain = 0
        while plain < 8 or (plain < 200 and memory.profiler and not memory.profiler.ledger.windows):
            _train(model, optimizer)
            memory.step()
            plain += 1

    # then: no part is off, all count the same steps, no record is twice in the log, and windows were recorded
    assert reached > 20
    summary, profiler, monitor = memory.summary, memory.profiler, memory.monitor
    assert summary is not None
    assert profiler is not None
    assert monitor is not None
    assert summary.problems == ()
    assert (summary.steps, monitor._step) == (memory._steps, memory._steps)
    assert profiler._step == memory._steps + 1
    assert summary.traces
    assert monitor.log_path is not None
    rows = [json.loads(line) for line in monitor.log_path.read_text().splitlines()]
    steps = [row["step"] for row in rows if row["type"] == "sample"]
    assert steps == sorted(set(steps))


def test_near_the_recursion_limit_steps_are_passed_over_and_later_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run in which step() is called with ever less room
    read_malloc_at_each_step(monkeypatch)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            memory.step()

    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    kept: list[torch.Tensor] = []

    # when
    with MemoryCallback(run={"logdir": str(tmp_path)}, profiling={**WINDOWS, "wait": 20}) as memory:
        for number in range(300):
            kept.append(torch.zeros(100_000))
            room = 4 + number % 40
            try:
                deep(limit - depth - room if 20 < number < 100 else 0)
            except RecursionError as error:
                innermost = traceback.extract_tb(error.__traceback__)[-1].filename
                assert innermost == __file__  # no room even for the call of step()

    # then the last steps were watched and recorded, and the summary tells of the others
    summary = memory.summary
    assert summary is not None
    assert [problem.partition(":")[2] for problem in summary.problems] == [
        " the program was near the recursion limit, or out of memory"
    ]
    assert [verdict.kind.value for verdict in summary.verdicts] == ["leak"]
    assert summary.verdicts[0].last_step > 250
    assert len(summary.traces) >= 8


def test_out_of_memory_in_a_step_of_tbmem_passes_it_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    with MemoryCallback(run={"logdir": str(tmp_path)}, profiling={"enabled": False}) as memory:
        memory.step()
        monitor = memory.monitor
        assert monitor is not None
        assert monitor._counters is not None

        def no_memory(*_: object, **__: object) -> Any:
            raise MemoryError

        # when one step finds no memory
        with monkeypatch.context() as patch:
            patch.setattr(monitor._counters, "sample", no_memory)
            memory.step()
        memory.step()

    # then
    assert memory.summary is not None
    assert memory.summary.steps == 3
    assert memory.summary.problems == ("passed over once: the program was near the recursion limit, or out of memory",)
    assert monitor.findings is not None
