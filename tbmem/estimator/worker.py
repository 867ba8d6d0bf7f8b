"""Executes jobs in a child process, which may die of them.

The child takes jobs as msgpack on standard input and writes its answers into the folder named on the command line. It
first tests fake CUDA tensors and creates ``works.txt`` if they work. Job ``n`` then gives ``n.run``, a SimulatedRun, or
``n.txt``, one line that says what is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tbmem.errors import TbmemError, UsageError
from tbmem.model.files import atomic_write
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun

ON_CPU = "TBMEM_FAKE_CPU"
"""Environment variable: all jobs run on fake CPU tensors, fake CUDA is not tested."""
WORKS = "works.txt"


def main(arguments: list[str]) -> None:
    """Execute the jobs on standard input."""
    folder = Path(arguments[0])
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

            _write(folder / f"{number}.run", execute(job).to_bytes())
        except (Exception, SystemExit) as error:
            _write(folder / f"{number}.txt", explain(job, error).encode())


def _write(path: Path, answer: bytes) -> None:
    with atomic_write(path) as partial:  # the process may be ended at any moment
        partial.write_bytes(answer)


def explain(job: Job, error: BaseException) -> str:
    """An error message of one line: the cause, its source line, and advice."""
    return str(error) if isinstance(error, TbmemError) else f"--model {job.model}: {_location(error)}{_reason(error)}"


def _reason(error: BaseException) -> str:
    kind = type(error).__name__
    what = (str(error).splitlines() or [""])[0] or kind
    if len(what) > _LONG:
        what = what.partition(". ")[0][: 2 * _LONG]
    for text, advice in _ADVICE.items():
        if text in str(error):
            return advice
    if kind == "DependsOnValueError":
        return str(error)
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode"):
        return (
            f"shapes depend on values ({what}), which an estimate does not have; give the model an upper bound instead"
        )
    if kind in ("UnsupportedOperatorException", "UnsupportedFakeTensorException", "NotImplementedError"):
        return f"an operator has no fake version ({what}); register one with torch.library.register_fake"
    if any(words in str(error) for words in _NEEDS_GPU) or kind == "InterpreterError":
        return (
            f"a kernel that only a GPU can run ({what}); make it an operator with torch.library.custom_op and give it a"
            " fake version with register_fake, or take the model's plain path"
        )
    if isinstance(error, SystemExit):
        return f"the factory ended the program ({error.code})"
    return f"{kind}: {what}"


_LONG = 200
_LAZY = "lazy modules take their sizes from values that an estimate does not have; give the sizes"
_ADVICE = {
    ".numpy() is not supported": (
        ".numpy() reads values, which an estimate does not have; leave it out of what the factory returns"
    ),
    "storage of SparseTensorImpl": (
        "sparse tensors have as many values as are found, which an estimate does not know; leave sparse=True out for an"
        " upper bound"
    ),
    "_pack_padded_sequence": (
        "a packed sequence is as long as its samples are together; leave pack_padded_sequence out, which makes the"
        " estimate an upper bound"
    ),
    "UnknownNumber": (
        "a size, an index or a whole number is a value that the model computes, which an estimate does not have: have"
        " the factory put it into the batch, or give the model an upper bound"
    ),
    "UninitializedParameter": _LAZY,
    "UninitializedBuffer": _LAZY,
    "shape_env must not be None": (
        "the sizes of nested tensors are values, which an estimate does not have; give the model padded tensors instead"
    ),
}
"""Advice by text of the error message, for what fake tensors do not support."""
_NEEDS_GPU = (
    *("data pointer", "active driver", "NVIDIA driver", "not compiled with CUDA", "Cannot find a working triton"),
    *("no kernel image", "CUDA_HOME", "not linked with support for cuda"),
)
"""Error messages of torch, Triton and compiled extensions for tensors without memory or a missing driver."""


def _location(error: BaseException) -> str:
    """The innermost source line outside of torch and tbmem, preferably in the user's own code."""
    frames = [
        frame
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if not any(part in frame.filename for part in (str(Path(__file__).parent), "/torch/", "importlib"))
    ]
    # stable: the user's frames come first
    for frame in sorted(frames, key=lambda frame: "-packages" in frame.filename):
        return f"{Path(frame.filename).name}:{frame.lineno}: "
    return ""


FALLBACK = (
    "torch on this machine does not take fake CUDA tensors through a backward pass: the estimate was made with fake"
    " CPU tensors, which is less exact (attention kernels, workspaces and the optimizer's default are the CPU's)"
)
DIED = "torch's process ended at this job; it was made again with fake CPU tensors, which is less exact"
Outcome = SimulatedRun | UsageError


def simulate_jobs(jobs: Sequence[Job], timeout: float = 600.0) -> list[Outcome]:
    """Execute jobs on fake tensors in one child process: each job's run or error.

    ``timeout`` is in seconds and for all jobs together.
    """
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
            subprocess.run(
                [sys.executable, "-m", "tbmem.estimator.worker", folder],
                input=msgspec.msgpack.encode(jobs),
                timeout=timeout,
                check=False,
                env=child_environment(CUDA_VISIBLE_DEVICES="", **({ON_CPU: "1"} if on_cpu else {})),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"--model {jobs[0].model}: not done after {timeout:.0f} s") from error
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
