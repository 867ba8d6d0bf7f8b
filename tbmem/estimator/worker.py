"""Executes jobs in child processes, which may die of them.

A child takes jobs as msgpack on standard input and writes its answers into the folder named on the command line; the
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
_MOST_PROCESSES = 4
"""At a time: each has torch in its memory."""
_GRACE = 30.0
"""Seconds until a child is ended that does not end itself."""
Outcome = SimulatedRun | UsageError


def simulate_jobs(jobs: Sequence[Job], timeout: float = 600.0) -> list[Outcome]:
    """Execute jobs on fake tensors in child processes, one for each core: each job's run or error.

    ``timeout`` is in seconds and for all jobs together.
    """
    if missing := TorchFeature.ESTIMATE.missing:
        return [UsageError(missing)] * len(jobs)
    outcomes: dict[int, Outcome] = {}
    while left := [number for number in range(len(jobs)) if number not in outcomes]:
        count = min(_cores(), _MOST_PROCESSES, len(left))
        parts = [left[first::count] for first in range(count)]
        attempts = _attempt([[jobs[number] for number in part] for part in parts], timeout)
        for part, (done, works) in zip(parts, attempts, strict=True):
            outcomes.update(zip(part, done, strict=False))
            # the process ended at the first of those that have no outcome
            failed, why = (part[len(done) :][:1], DIED) if works else (part[len(done) :], FALLBACK)
            outcomes.update((number, _fallback(jobs[number], timeout, why)) for number in failed)
    return [outcomes[number] for number in range(len(jobs))]


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fallback(job: Job, timeout: float, why: str) -> Outcome:
    if job.world_size > 1:
        return UsageError(f"--model {job.model}: {why}; several ranks are estimated with fake CUDA tensors only")
    instead = replace(job, device="cpu", instead=job.device == "cuda")
    ((outcomes, _),) = _attempt([[instead]], timeout, on_cpu=True)
    for outcome in outcomes:
        if isinstance(outcome, SimulatedRun) and job.device == "cuda":
            return replace(outcome, notes=(why, *outcome.notes))
        return outcome
    return UsageError(f"--model {job.model}: torch's process ended without a result; is there enough memory?")


def _attempt(parts: Sequence[Sequence[Job]], timeout: float, on_cpu: bool = False) -> list[tuple[list[Outcome], bool]]:
    """Execute each part in a process of its own.

    Returns:
        Of each part the outcomes of its jobs before the process ended, and whether fake CUDA tensors work.
    """
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        places = [Path(folder, str(number)) for number in range(len(parts))]
        processes: list[subprocess.Popen[bytes]] = []
        deadline = time.monotonic() + timeout + _GRACE
        try:
            for part, place in zip(parts, places, strict=True):
                processes.append(_started(part, place, timeout, on_cpu))
            for process in processes:
                process.wait(deadline - time.monotonic())
        except subprocess.TimeoutExpired as error:
            message = (
                f"not done after {timeout:.0f} s, in code that cannot be interrupted; run the script itself: {REHEARSE}"
            )
            raise UsageError(f"--model {parts[0][0].model}: {message}") from error
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [
            (_answers(place, len(part)), on_cpu or (place / WORKS).exists())
            for part, place in zip(parts, places, strict=True)
        ]


def _started(jobs: Sequence[Job], place: Path, timeout: float, on_cpu: bool) -> subprocess.Popen[bytes]:
    """A process that executes jobs and answers in a new folder."""
    place.mkdir()
    given = place / "jobs"
    given.write_bytes(msgspec.msgpack.encode(jobs))
    with given.open("rb") as file:
        return subprocess.Popen(  # nosec B603  # this interpreter; the jobs are its input
            [sys.executable, "-m", "tbmem.estimator.worker", str(place), str(timeout)],
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=child_environment(CUDA_VISIBLE_DEVICES="", **({ON_CPU: "1"} if on_cpu else {})),
        )


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
