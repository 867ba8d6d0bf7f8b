"""Estimates the memory of a training run without a GPU, and that of changes which would make it fit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.diagnosis.advice import CONF
from tbmem.analysis.estimates.fit import Alternative, Estimate, Fit, estimate_from_run
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.errors import UsageError
from tbmem.estimator.advice import alternative, alternatives_to
from tbmem.estimator.factory_files import refuse_without_function
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.files import ESTIMATE_SUFFIX, TIMELINE_SUFFIX, atomic_write
from tbmem.model.gpus import NCCL, Gpu, gpus_named
from tbmem.model.job import Job
from tbmem.model.progress import show_first
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.timeline import save_timeline
from tbmem.present.text.estimate import estimate_view

_WORTH_IT = 0.01
"""Share of the reserved peak that another setting of the allocator must save to be an alternative."""


def estimate_job(
    job: Job, gpu: str | Sequence[str] = "h100-80gb", alloc_conf: str = "", alternatives: bool | None = False
) -> tuple[Estimate, SimulatedRun]:
    """Estimate a job on a GPU, and whether it fits others.

    Args:
        job: The training run.
        gpu: Name of the GPU, as ``'h100-80gb'``, or several: the estimate is of the first.
        alloc_conf: Value of PYTORCH_ALLOC_CONF.
        alternatives: Also estimate what would make it fit; ``None``: only where it does not.

    Returns:
        The estimate, and the allocations that it is made from.

    Raises:
        UsageError: The job cannot be executed, or there is no such GPU.
        ConfigError: ``alloc_conf`` is not valid.
    """
    refuse_without_function(job)
    settings = parse_settings(alloc_conf)
    estimators = [Estimator(gpu, settings) for gpu in gpus_named(gpu)]
    jobs = [job.on(estimator.gpu) for estimator in estimators]
    runs = simulate_jobs(jobs)
    failed = next((run for run in runs if isinstance(run, UsageError)), None)
    if failed is not None:
        raise failed
    done = [run for run in runs if isinstance(run, SimulatedRun)]
    results = [each.estimate(job, run) for each, job, run in zip(estimators, jobs, done, strict=True)]
    result = replace(results[0], gpus=tuple(each.as_fit for each in results))
    wanted = result.fit is not Fit.FITS if alternatives is None else alternatives
    if wanted and not job.inference:
        show_first(result)
        others = alternatives_to(result, estimators[0].estimate_all)
        result = replace(result, alternatives=(*_in_expandable_segments(result, done[0], estimators[0]), *others))
    return result, done[0]


def _in_expandable_segments(first: Estimate, run: SimulatedRun, estimator: Estimator) -> Iterator[Alternative]:
    """The same run in segments that grow, where that saves anything to speak of."""
    settings = replace(estimator.settings, expandable_segments=True)
    change = f"{CONF}=expandable_segments:True"
    expanded = alternative(change, replace(estimator, settings=settings).estimate(first.job, run))
    if first.peak_reserved - expanded.reserved >= _WORTH_IT * first.peak_reserved:
        yield expanded


def write_estimate(
    folder: str | os.PathLike[str],
    estimate: Estimate,
    run: SimulatedRun,
    variants: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Write an estimate with its variants as JSON, and its allocations as a recording; creates the folder.

    A run folder below a logdir is found by TensorBoard.
    """
    directory = Path(folder).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    stem = file_stem(estimate.job)
    recording, figures = directory / f"{stem}{TIMELINE_SUFFIX}", directory / f"{stem}{ESTIMATE_SUFFIX}"
    about = {"model": estimate.job.model, "gpu": estimate.gpu, "rank": estimate.job.rank, **run.about}
    timeline = timeline_of_run(run, parse_settings(estimate.settings), estimate.capacity, about)
    with atomic_write(recording) as partial:
        save_timeline(timeline, partial)
    with atomic_write(figures) as partial:
        partial.write_text(_json(estimate_view(estimate), variants))
    return [recording, figures]


def _json(figures: dict[str, Any], variants: Sequence[Mapping[str, Any]]) -> str:
    """The figures to be read by people, each variant with its curves on one line."""
    text = json.dumps(figures, indent=2)
    lines = ",\n    ".join(map(json.dumps, variants))
    return f'{text[:-2]},\n  "variants": [\n    {lines}\n  ]\n}}' if variants else text


def file_stem(job: Job) -> str:
    """The stem of an estimate's files: ``'gpt2_batch8_rank3'``."""
    model = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(job.model).name.partition(":")[2] or Path(job.model).stem).strip("-.")
    return "_".join(filter(None, (model or "model", f"batch{job.batch}", f"rank{job.rank}" * (job.world_size > 1))))


@dataclass(frozen=True)
class Estimator:
    """Estimates jobs for one GPU."""

    gpu: Gpu
    settings: AllocatorSettings

    def estimate_all(self, jobs: Sequence[Job]) -> list[Estimate | UsageError]:
        """Execute jobs and estimate each."""
        return [
            outcome if isinstance(outcome, UsageError) else self.estimate(job, outcome)
            for job, outcome in zip(jobs, simulate_jobs(jobs), strict=True)
        ]

    def estimate(self, job: Job, run: SimulatedRun) -> Estimate:
        """Estimate a job from its run."""
        outside = {"NCCL (typical)": NCCL} if job.world_size > 1 else {}
        return estimate_from_run(job, run, self.settings, self.gpu, outside)
