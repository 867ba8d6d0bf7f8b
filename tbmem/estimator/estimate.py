"""Estimates the memory of a training run without a GPU, and that of changes which would make it fit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.estimates.fit import HIGH, Alternative, Estimate, Fit, estimate_from_run
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.errors import UsageError
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.files import ESTIMATE_SUFFIX, TIMELINE_SUFFIX, atomic_write
from tbmem.model.gpus import Gpu, gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.timeline import save_timeline
from tbmem.present.text.estimate import estimate_view
from tbmem.units import MIB

NCCL = 400 * MIB
"""Typical bytes of NCCL's buffers for a group of ranks in one node."""


def estimate(
    model: str, gpu: str = "h100-80gb", alloc_conf: str = "", alternatives: bool | None = False, **options: Any
) -> Estimate:
    """Estimate the memory of a training run without a GPU.

    Args:
        model: A built-in name, ``'package.module:factory'``, ``'file.py:factory'``, or the path of a ``config.json``.
        gpu: Name of the GPU, as ``'h100-80gb'``.
        alloc_conf: Value of PYTORCH_ALLOC_CONF.
        alternatives: Also estimate what would make it fit; ``None``: only where it does not.
        **options: Options of the command ``tbmem estimate`` (``batch``, ``seq``, ``fsdp``, ...), documented at the
            fields of ``tbmem.model.job.Job``.

    Returns:
        Peaks in bytes, what they are made of, and whether they fit.

    Raises:
        UsageError: The job cannot be executed, or there is no such option or GPU.
        ConfigError: ``alloc_conf`` is not valid.
    """
    return estimate_job(Job.of(model, os.getcwd(), **options), gpu, alloc_conf, alternatives)[0]


def estimate_job(
    job: Job, gpu: str = "h100-80gb", alloc_conf: str = "", alternatives: bool | None = False
) -> tuple[Estimate, SimulatedRun]:
    """Estimate a job, and return its allocations as well; arguments and errors as for :func:`estimate`."""
    estimator = _Estimator(gpu_named(gpu), parse_settings(alloc_conf))
    job = replace(job, capability=estimator.gpu.capability, total=estimator.gpu.total)
    (run,) = simulate_jobs([job])
    if isinstance(run, UsageError):
        raise run
    result = estimator.estimate(job, run)
    wanted = result.fit is not Fit.FITS if alternatives is None else alternatives
    if wanted and not job.inference:
        result = replace(result, alternatives=tuple(_alternatives(result, estimator)))
    return result, run


def write_estimate(folder: str | os.PathLike[str], estimate: Estimate, run: SimulatedRun) -> list[Path]:
    """Write an estimate as JSON, and its allocations as a recording; creates the folder.

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
        partial.write_text(json.dumps(estimate_view(estimate), indent=2))
    return [recording, figures]


def file_stem(job: Job) -> str:
    """The stem of an estimate's files: ``'gpt2_batch8_rank3'``."""
    model = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(job.model).name.partition(":")[2] or Path(job.model).stem).strip("-.")
    return "_".join(filter(None, (model or "model", f"batch{job.batch}", f"rank{job.rank}" * (job.world_size > 1))))


@dataclass(frozen=True)
class _Estimator:
    """Estimates jobs for one GPU."""

    gpu: Gpu
    settings: AllocatorSettings

    def estimate_all(self, jobs: Sequence[Job]) -> list[Estimate | UsageError]:
        return [
            outcome if isinstance(outcome, UsageError) else self.estimate(job, outcome)
            for job, outcome in zip(jobs, simulate_jobs(jobs), strict=True)
        ]

    def estimate(self, job: Job, run: SimulatedRun) -> Estimate:
        outside = {"NCCL (typical)": NCCL} if job.world_size > 1 else {}
        return estimate_from_run(job, run, self.settings, self.gpu, outside)


def _alternatives(first: Estimate, estimator: _Estimator) -> Iterator[Alternative]:
    changes = dict([*_changes(first), *_sharded(first)])
    for change, outcome in zip(changes, estimator.estimate_all(list(changes.values())), strict=True):
        if isinstance(outcome, Estimate):
            yield _alternative(change, outcome)
    largest = _largest_batch(first, estimator)
    if largest is not None:
        yield _alternative(f"batch {largest.job.batch}, the largest that fits", largest)


def _alternative(change: str, estimate: Estimate) -> Alternative:
    allocated, reserved = estimate.peak_allocated, estimate.peak_reserved
    return Alternative(
        change=change, allocated=allocated, reserved=reserved, fit=estimate.fit, batch=estimate.job.batch
    )


def _changes(first: Estimate) -> Iterator[tuple[str, Job]]:
    job, full_precision = first.job, first.dtype in ("", "float32")
    if not job.checkpoint:
        yield "activation checkpointing", replace(job, checkpoint=True)
    if full_precision and job.amp is None:
        yield "bf16 autocast", replace(job, amp="bfloat16")
    if full_precision:
        yield "bf16 throughout", replace(job, dtype="bfloat16", amp=None)
    if job.optimizer in ("adam", "adamw"):
        yield "8-bit AdamW", replace(job, optimizer="adamw8bit", implementation="default")
    if not job.offload and job.world_size == 1:
        yield "optimizer state in host memory", replace(job, offload=True)
    parts = 2 * job.parts
    if job.batch % parts == 0 and job.pipeline > 1:
        yield f"batch in {parts} microbatches", replace(job, microbatches=parts)
    elif job.batch % parts == 0:
        yield f"batch in {parts} parts", replace(job, accumulate=parts)


def _sharded(first: Estimate) -> Iterator[tuple[str, Job]]:
    """States sharded over more ranks, or over those that hold copies of them."""
    job = first.job
    if job.world_size == 1:
        ranks = ranks_that_fit(first)
        yield f"FSDP over {ranks}", replace(job, world_size=ranks, fsdp=ranks)
    elif job.replicate > 1:
        ranks = job.fsdp * job.replicate
        yield f"FSDP over {ranks}, without copies", replace(job, fsdp=ranks, replicate=1)
    else:
        yield f"FSDP over {2 * job.fsdp}", replace(job, fsdp=2 * job.fsdp, world_size=2 * job.world_size)


def ranks_that_fit(first: Estimate) -> int:
    """The smallest power of two up to 1,024 of ranks over which states can be sharded so that it should fit; else 8.

    Parameters, gradients and optimizer state are divided by their number; the rest stays.
    """
    formula = first.formula
    states = formula.parameters + formula.optimizer + formula.gradients
    room = (first.capacity - sum(first.outside.values()) - NCCL) / HIGH
    for ranks in (1 << power for power in range(1, 11)):
        if first.peak_reserved - states * (1 - 1 / ranks) <= room:
            return ranks
    return 8


def _largest_batch(first: Estimate, estimator: _Estimator) -> Estimate | None:
    """The estimate of the largest batch that fits; ``None`` if not even one sample per part of a step fits.

    Each batch tried is a linear interpolation between the last two.
    """
    # the number of parts of a step does not change
    unit = first.job.parts
    fits, fails = (first, None) if first.fit is Fit.FITS else (None, first)
    for _ in range(_TRIES):
        batch = unit if fits is None else _next_batch(fits, fails, unit)
        if batch is None or (fails is not None and batch >= fails.job.batch):
            break
        (estimate,) = estimator.estimate_all([replace(first.job, batch=batch)])
        if isinstance(estimate, UsageError):
            raise estimate
        if estimate.fit is Fit.FITS:
            fits = estimate
        else:
            fails = estimate
    return fits


def _next_batch(fits: Estimate, fails: Estimate | None, unit: int) -> int | None:
    """The batch to try next; ``None`` if there is none between the two."""
    low = fits.job.batch
    if fails is None:
        return low * 4 if low < _LARGEST_BATCH else None
    width = fails.job.batch - low
    if width <= unit:
        return None
    room = (fits.capacity - sum(fits.outside.values())) / HIGH
    share = (room - fits.peak_reserved) / max(fails.peak_reserved - fits.peak_reserved, 1)
    step = int(share * width) // unit * unit
    return low + min(max(step, unit), (width - 1) // unit * unit)


_TRIES, _LARGEST_BATCH = 9, 4096
