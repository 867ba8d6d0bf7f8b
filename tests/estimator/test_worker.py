"""Without fake CUDA tensors jobs run on fake CPU tensors; runs are encoded for another process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbmem.errors import UsageError
from tbmem.estimator import worker
from tbmem.estimator.worker import FALLBACK, simulate_jobs
from tbmem.model.simulated_run import SimulatedRun
from tests.estimator.test_execution import executed, job

_answers = worker._answers


def test_where_fake_cuda_does_not_work_the_estimate_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WORKS", "never.txt")
    monkeypatch.setattr(worker, "_answers", lambda folder, count: [] if count == 2 else _answers(folder, count))

    alone, many = simulate_jobs([job("linear"), replace(job("linear"), world_size=2, fsdp=2)])

    assert isinstance(alone, SimulatedRun)
    assert alone.notes[0] == FALLBACK
    assert alone.about["device"] == "cpu"
    assert isinstance(many, UsageError)
    assert "several ranks are estimated with fake CUDA tensors only" in str(many)


def test_a_run_comes_back_from_bytes_as_it_was() -> None:
    run = executed("linear")

    again = SimulatedRun.from_bytes(run.to_bytes())

    assert again.modules == run.modules
    assert again.size.tolist() == run.size.tolist()
