"""What the benchmarks share: the machine they ran on, and a result's lines."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun


def heading(title: str) -> str:
    """Title, date and machine, as a line of Markdown."""
    import torch

    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    return (
        f"## {title}\n\n{today} · {_processor()}, {os.cpu_count()} cores · Python {platform.python_version()}"
        f" · torch {torch.__version__}\n"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def fake_run(job: Job) -> SimulatedRun:
    """A job on fake tensors; raises what is wrong with it."""
    from tbmem.estimator.worker import simulate_jobs

    (outcome,) = simulate_jobs([job])
    if not isinstance(outcome, SimulatedRun):
        raise outcome
    return outcome


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def environment_of_users() -> dict[str, str]:
    """This process' environment, in which Python keeps what it has compiled, as it does of an installed package.

    Else each process compiles all of tbmem anew, which takes 0.2 s.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def take_turns_on_cores(process: int, side: int) -> None:
    """Put a process and its children on one of the two first cores, which change places every 5 s.

    Two processes with ``side`` 0 and 1 are never on the same core, and each spends as long on the faster one: on
    machines that are shared, cores differ by ten percent for minutes.
    """
    core = (int(time.time() / 5) + side) % 2
    try:
        tree = psutil.Process(process)
        threads = [thread.id for each in (tree, *tree.children(recursive=True)) for thread in each.threads()]
        for thread in threads:
            os.sched_setaffinity(thread, {core})
    except (psutil.Error, ProcessLookupError):
        return  # one has ended meanwhile; the next turn finds the others
