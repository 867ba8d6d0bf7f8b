"""Without fake CUDA tensors jobs run on fake CPU tensors; runs are encoded for another process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.estimator import worker
from tbmem.estimator.worker import FALLBACK, simulate_jobs
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.estimator.test_execution import executed, job

_answers = worker._answers


def test_where_fake_cuda_does_not_work_the_estimate_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[list[worker.Outcome]] = [[], []]  # of the two processes for fake CUDA
    monkeypatch.setattr(worker, "_cores", lambda: 2)
    monkeypatch.setattr(worker, "WORKS", "never.txt")
    monkeypatch.setattr(worker, "_answers", lambda folder, count: lost.pop() if lost else _answers(folder, count))

    alone, many = simulate_jobs([job("linear"), replace(job("linear"), world_size=2, fsdp=2)])

    assert isinstance(alone, SimulatedRun)
    assert alone.notes[0] == FALLBACK
    assert alone.about["device"] == "cpu"
    assert isinstance(many, UsageError)
    assert "several ranks are estimated with fake CUDA tensors only" in str(many)


def test_each_core_takes_some_jobs_and_a_process_that_ends_costs_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # given: a job at which torch's process ends
    jobs = [Job(model=name) for name in ("a", "deadly", "c", "d", "e")]
    attempts: list[tuple[str, bool]] = []

    def attempt(
        parts: Sequence[Sequence[Job]], timeout: float, on_cpu: bool = False
    ) -> list[tuple[list[worker.Outcome], bool]]:
        names = [[each.model for each in part] for part in parts]
        attempts.extend(("".join(part), on_cpu) for part in names)
        alive = [list(takewhile(lambda name: on_cpu or name != "deadly", part)) for part in names]
        return [([UsageError(f"{name} {on_cpu}") for name in part], True) for part in alive]

    monkeypatch.setattr(worker, "_cores", lambda: 2)
    monkeypatch.setattr(worker, "_attempt", attempt)
    # when
    outcomes = simulate_jobs(jobs)
    # then
    assert [str(each) for each in outcomes] == ["a False", "deadly True", "c False", "d False", "e False"]
    assert attempts == [("ace", False), ("deadlyd", False), ("deadly", True), ("d", False)]


def test_no_process_is_left_by_one_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    monkeypatch.setattr(worker, "_cores", lambda: 2)
    monkeypatch.setattr(worker, "_GRACE", 0.0)
    monkeypatch.setattr(worker, "_started", start)
    # when
    with pytest.raises(UsageError, match="--model a: not done after 0 s"):
        simulate_jobs([Job(model="a"), Job(model="b")], timeout=0.1)
    # then
    assert [each.returncode for each in started] == [-signal.SIGKILL] * 2


def test_a_run_comes_back_from_bytes_as_it_was() -> None:
    run = executed("linear")

    again = SimulatedRun.from_bytes(run.to_bytes())

    assert again.modules == run.modules
    assert again.size.tolist() == run.size.tolist()
