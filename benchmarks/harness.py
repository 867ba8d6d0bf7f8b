"""What the benchmarks share: the machine they ran on, and a result's lines."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from pathlib import Path

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
