"""Executes jobs in a child process, which may die of them.

The child takes jobs as msgpack on standard input and writes its answers into the folder named on the command line; the
second argument is its time in seconds. It first tests fake CUDA tensors and creates ``works.txt`` if they work. Job
``n`` then gives ``n.run``, a SimulatedRun, or ``n.txt``, one line that says what is wrong.
"""

from __future__ import annotations

import os
import subprocess  # nosec B404  # starts this interpreter, without a shell
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tbmem.errors import UsageError
from tbmem.estimator.refusals import REHEARSE, explain
from tbmem.estimator.time_limit import TimeLimitError, time_limit
from tbmem.model.files import atomic_write
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.requirements import TorchFeature

ON_CPU = "TBMEM_FAKE_CPU"
"""Environment variable: all jobs run on fake CPU tensors, fake CUDA is not tested."""
WORKS = "works.txt"


def main(arguments: list[str]) -> None:
    """Execute the jobs on standard input."""
    folder, seconds = Path(arguments[0]), float(arguments[1])
    deadline = time.monotonic() + seconds
    if not os.environ.get(ON_CPU):
        from tbmem.estimator.fake_tensors.device_guard import self_test

        try:
            self_test()
        except Exception:  # the client falls back to fake CPU tensors
            return
        _write(folder / WORKS, b"")
    for number, job in enumerate(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[Job])):
        try:
            from tbmem.estimator.execution import execute

            with time_limit(seconds, deadline):
                answer = execute(job).to_bytes()
            _write(folder / f"{number}.run", answer)
        except (Exception, SystemExit, TimeLimitError) as error:
            _write(folder / f"{number}.txt", explain(job, error).encode())


def _write(path: Path, answer: bytes) -> None:
    with atomic_write(path) as partial:  # the process may be ended at any moment
        partial.write_bytes(answer)


FALLBACK = (
    "torch on this machine does not take fake CUDA tensors through a backward pass: the estimate was made with fake"
    " CPU tensors, which is less exact (attention kernels, workspaces and the optimizer's default are the CPU's)"
)
DIED = "torch's process ended at this job; it was made again with fake CPU tensors, which is less exact"
_GRACE = 30.0
"""Seconds until a child is ended that does not end itself."""
Outcome = SimulatedRun | UsageError


def simulate_jobs(jobs: Sequence[Job], timeout: float = 600.0) -> list[Outcome]:
    """Execute jobs on fake tensors in one child process: each job's run or error.

    ``timeout`` is in seconds and for all jobs together.
    """
    if missing := TorchFeature.ESTIMATE.missing:
        return [UsageError(missing)] * len(jobs)
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        done, works = _attempt(jobs[len(outcomes) :], timeout)
        outcomes += done
        if not works:
            return [*outcomes, *(_fallback(job, timeout, FALLBACK) for job in jobs[len(outcomes) :])]
        if len(outcomes) < len(jobs):
            # the process ended at this job
            outcomes.append(_fallback(jobs[len(outcomes)], timeout, DIED))
    return outcomes


def _fallback(job: Job, timeout: float, why: str) -> Outcome:
    if job.world_size > 1:
        return UsageError(f"--model {job.model}: {why}; several ranks are estimated with fake CUDA tensors only")
    instead = replace(job, device="cpu", instead=job.device == "cuda")
    for outcome in _attempt([instead], timeout, on_cpu=True)[0]:
        if isinstance(outcome, SimulatedRun) and job.device == "cuda":
            return replace(outcome, notes=(why, *outcome.notes))
        return outcome
    return UsageError(f"--model {job.model}: torch's process ended without a result; is there enough memory?")


def _attempt(jobs: Sequence[Job], timeout: float, on_cpu: bool = False) -> tuple[list[Outcome], bool]:
    """Outcomes of the jobs before the process ended; and whether fake CUDA tensors work, if they were tested."""
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        try:
            subprocess.run(  # nosec B603  # this interpreter; the job is its input
                [sys.executable, "-m", "tbmem.estimator.worker", folder, str(timeout)],
                input=msgspec.msgpack.encode(jobs),
                timeout=timeout + _GRACE,
                check=False,
                env=child_environment(CUDA_VISIBLE_DEVICES="", **({ON_CPU: "1"} if on_cpu else {})),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            message = (
                f"not done after {timeout:.0f} s, in code that cannot be interrupted; run the script itself: {REHEARSE}"
            )
            raise UsageError(f"--model {jobs[0].model}: {message}") from error
        return _answers(Path(folder), len(jobs)), on_cpu or Path(folder, WORKS).exists()


def _answers(folder: Path, count: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for number in range(count):
        run, error = folder / f"{number}.run", folder / f"{number}.txt"
        if run.exists():
            outcomes.append(SimulatedRun.from_bytes(run.read_bytes()))
        elif error.exists():
            outcomes.append(UsageError(error.read_text()))
        else:
            break
    return outcomes


def child_environment(**changes: str) -> dict[str, str]:
    """The environment for a child process that imports the same tbmem."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # skips torch's teardown, which takes a second
