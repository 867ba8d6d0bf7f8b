"""Executes jobs in a child process, which may die of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from tbmem.errors import UsageError
from tbmem.estimator.worker.process import ON_CPU, WORKS
from tbmem.model.job import Job
from tbmem.model.simulated_run import FakeRun

FALLBACK = (
    "torch on this machine does not take fake CUDA tensors through a backward pass: the estimate was made with fake"
    " CPU tensors, which is less exact (attention kernels, workspaces and the optimizer's default are the CPU's)"
)
DIED = "torch's process ended at this job; it was made again with fake CPU tensors, which is less exact"
Outcome = FakeRun | UsageError


def fake_runs(jobs: Sequence[Job], timeout: float = 600.0) -> list[Outcome]:
    """Execute jobs on fake tensors, one after the other in one child process, which saves loading torch for each.

    Args:
        jobs: What to execute.
        timeout: Seconds for all of them.

    Returns:
        For each job its run, or what is wrong with it.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        attempt = _attempt(jobs[len(outcomes) :], timeout)
        outcomes += attempt.outcomes
        if not attempt.works:
            return [*outcomes, *(_fallback(job, timeout, FALLBACK) for job in jobs[len(outcomes) :])]
        if len(outcomes) < len(jobs):
            # the process ended at this job
            outcomes.append(_fallback(jobs[len(outcomes)], timeout, DIED))
    return outcomes


def _fallback(job: Job, timeout: float, why: str) -> Outcome:
    if job.world_size > 1:
        return UsageError(f"--model {job.model}: {why}; several ranks are estimated with fake CUDA tensors only")
    for outcome in _attempt([replace(job, device="cpu", instead=job.device == "cuda")], timeout, on_cpu=True).outcomes:
        if isinstance(outcome, FakeRun) and job.device == "cuda":
            return replace(outcome, notes=(why, *outcome.notes))
        return outcome
    return UsageError(f"--model {job.model}: torch's process ended without an answer; is there memory enough?")


class _Attempt(NamedTuple):
    outcomes: list[Outcome]
    """Of as many jobs as the process lived for."""
    works: bool
    """Whether fake CUDA tensors do, as far as that was asked."""


def _attempt(jobs: Sequence[Job], timeout: float, on_cpu: bool = False) -> _Attempt:
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        command = [sys.executable, "-m", "tbmem.estimator.worker.process", folder]
        try:
            subprocess.run(
                command,
                input=msgspec.msgpack.encode(jobs),
                timeout=timeout,
                check=False,
                env=child_environment(CUDA_VISIBLE_DEVICES="", **({ON_CPU: "1"} if on_cpu else {})),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"--model {jobs[0].model}: not done after {timeout:.0f} s") from error
        return _Attempt(_answers(Path(folder), len(jobs)), on_cpu or Path(folder, WORKS).exists())


def _answers(folder: Path, count: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for number in range(count):
        run, wrong = folder / f"{number}.run", folder / f"{number}.txt"
        if run.exists():
            outcomes.append(FakeRun.from_bytes(run.read_bytes()))
        elif wrong.exists():
            outcomes.append(UsageError(wrong.read_text()))
        else:
            break
    return outcomes


def child_environment(**changes: str) -> dict[str, str]:
    """This process's, with a path on which a child finds the same tbmem."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}
