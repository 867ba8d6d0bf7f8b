"""What several tests ask of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import Estimate, estimate_from_run
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.gpus import Gpu
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.conftest import PROJECT


def peak(run: SimulatedRun | Exception) -> int:
    """The most bytes alive at once."""
    assert isinstance(run, SimulatedRun), run
    change = np.zeros(max(run.alloc_event.max(), run.free_event.max()) + 1, dtype=np.int64)
    ended = run.free_event >= 0
    np.add.at(change, run.alloc_event, run.size)
    np.add.at(change, run.free_event[ended], -run.size[ended])
    return int(change.cumsum().max())


def estimates_of(module: str, names: Iterable[str], gpu: Gpu, **options: Any) -> dict[str, Estimate]:
    """Estimates of a module's factories, by their names, all executed in one child."""
    names = tuple(names)
    jobs = [Job(model=f"{module}:{name}", search_path=str(PROJECT), **options).on(gpu) for name in names]
    found = {}
    for name, job, run in zip(names, jobs, simulate_jobs(jobs), strict=True):
        assert isinstance(run, SimulatedRun), run
        found[name] = estimate_from_run(job, run, AllocatorSettings(), gpu)
    return found
