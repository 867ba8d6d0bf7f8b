"""A job goes in, the allocations of its training come out; a child process does the work, and may die of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tbmem.errors import UsageError
from tbmem.model.fake_run import FakeRun
from tbmem.model.job import Job

_WRONG = 2
FALLBACK = (
    "torch on this machine does not take fake CUDA tensors through a backward pass: the estimate was made with fake"
    " CPU tensors, which is less exact (attention kernels, workspaces and the optimizer's default are the CPU's)"
)


def fake_run(job: Job, timeout: float = 600.0) -> FakeRun:
    """Execute a job on fake tensors in a child process.

    Args:
        job: What to execute.
        timeout: Seconds.

    Raises:
        UsageError: The job cannot be executed; the message says what to do.
    """
    run = _attempt(job, timeout)
    if run is None and job.device == "cuda" and job.world_size == 1:
        run = _attempt(replace(job, device="cpu"), timeout)
        if run is not None:
            run = replace(run, notes=(FALLBACK, *run.notes))
    if run is None:
        raise UsageError(f"--model {job.model}: torch's process ended without an answer; run it with --device cpu")
    return run


def _attempt(job: Job, timeout: float) -> FakeRun | None:
    """``None``: the process crashed."""
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        answer = Path(folder, "answer")
        command = [sys.executable, "-m", "tbmem.sources.fake.child", str(answer)]
        try:
            done = subprocess.run(
                command,
                input=job.to_json(),
                text=True,
                timeout=timeout,
                check=False,
                env=_environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"--model {job.model}: not done after {timeout:.0f} s") from error
        if done.returncode == 0 and answer.exists():
            return FakeRun.from_bytes(answer.read_bytes())
        if done.returncode == _WRONG and answer.exists():
            raise UsageError(answer.read_text())
        return None


def _environment() -> dict[str, str]:
    """This process's, with a path on which the child finds the same tbmem; no GPU is touched."""
    package = str(Path(__file__).parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}
