"""Predicts a training's memory without a GPU, and that of changes which would make it fit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.estimates.fit import HIGH, Alternative, Estimate, Fit, estimate_from_run
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.errors import UsageError
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.files import TIMELINE_SUFFIX, complete_or_nothing
from tbmem.model.gpus import Gpu, gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.timeline_file import save_timeline
from tbmem.present.text.estimate import estimate_view
from tbmem.units import MIB

NCCL = 400 * MIB
"""Typical bytes of NCCL's buffers for a group of ranks in one node."""
ESTIMATE_SUFFIX = ".estimate.json"


def estimate(
    model: str, gpu: str = "h100-80gb", alloc_conf: str = "", alternatives: bool | None = False, **options: Any
) -> Estimate:
    """Predict a training's memory without a GPU.

    Args:
        model: A built-in name, ``'package.module:factory'``, ``'file.py:factory'``, or the path of a ``config.json``.
        gpu: Name of the GPU, as ``'h100-80gb'``.
        alloc_conf: What PYTORCH_ALLOC_CONF will say.
        alternatives: Also estimate what would make it fit; ``None``: only where it does not.
        **options: Those of the command ``tbmem estimate`` by their names there (``batch``, ``seq``, ``fsdp``, ...); the
            fields of ``tbmem.model.job.Job`` say what they mean.

    Returns:
        Peaks, what they are made of, and whether it fits; bytes.

    Raises:
        UsageError: The training cannot be executed, or there is no such option or GPU.
        ConfigError: ``alloc_conf`` is not what torch takes.
    """
    return estimate_job(Job.of(model, os.getcwd(), **options), gpu, alloc_conf, alternatives)[0]


def estimate_job(
    job: Job, gpu: str = "h100-80gb", alloc_conf: str = "", alternatives: bool | None = False
) -> tuple[Estimate, SimulatedRun]:
    """The same of a record, with the allocations that it was made of; arguments and errors as for ``estimate``."""
    estimator = _JobEstimator(gpu_named(gpu), parse_settings(alloc_conf))
    job = replace(job, capability=estimator.gpu.capability, total=estimator.gpu.total)
    (run,) = simulate_jobs([job])
    if isinstance(run, UsageError):
        raise run
    result = estimator.result(job, run)
    wanted = result.fit is not Fit.FITS if alternatives is None else alternatives
    if wanted and not job.inference:
        result = replace(result, alternatives=tuple(_alternatives(result, estimator)))
    return result, run


def write_estimate(folder: str | os.PathLike[str], estimate: Estimate, run: SimulatedRun) -> list[Path]:
    """Write a recording that every reader of recordings opens, and JSON.

    Args:
        folder: Where to; made if missing. As a run folder below a logdir TensorBoard finds it.
        estimate: What came out.
        run: What it was made of.

    Raises:
        OSError: The folder cannot be written.
    """
    place = Path(folder).expanduser()
    place.mkdir(parents=True, exist_ok=True)
    stem = file_stem(estimate.job)
    recording, figures = place / f"{stem}{TIMELINE_SUFFIX}", place / f"{stem}{ESTIMATE_SUFFIX}"
    about = {"model": estimate.job.model, "gpu": estimate.gpu, "rank": estimate.job.rank, **run.about}
    timeline = timeline_of_run(run, parse_settings(estimate.settings), estimate.capacity, about)
    with complete_or_nothing(recording) as partial:
        save_timeline(timeline, partial)
    with complete_or_nothing(figures) as partial:
        partial.write_text(json.dumps(estimate_view(estimate), indent=2))
    return [recording, figures]


def file_stem(job: Job) -> str:
    """The stem of an estimate's files: ``'gpt2_batch8_rank3'``."""
    model = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(job.model).name.partition(":")[2] or Path(job.model).stem).strip("-.")
    return "_".join(filter(None, (model or "model", f"batch{job.batch}", f"rank{job.rank}" * (job.world_size > 1))))


class _JobEstimator:
    """Executes jobs and judges them for one GPU."""

    def __init__(self, gpu: Gpu, settings: AllocatorSettings) -> None:
        self.gpu, self._settings = gpu, settings

    def estimate(self, job: Job) -> Estimate:
        (outcome,) = self.estimate_all([job])
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    def estimate_all(self, jobs: Sequence[Job]) -> list[Estimate | UsageError]:
        return [
            outcome if isinstance(outcome, UsageError) else self.result(job, outcome)
            for job, outcome in zip(jobs, simulate_jobs(jobs), strict=True)
        ]

    def result(self, job: Job, run: SimulatedRun) -> Estimate:
        outside = {"NCCL (typical)": NCCL} if job.world_size > 1 else {}
        return estimate_from_run(job, run, self._settings, self.gpu, outside)


def _alternatives(first: Estimate, estimator: _JobEstimator) -> Iterator[Alternative]:
    changes = {**dict(_changes(first)), **dict(_sharded(first))}
    for words, changed in zip(changes, estimator.estimate_all(list(changes.values())), strict=True):
        if isinstance(changed, Estimate):
            yield _alternative(words, changed)
    largest = largest_batch(first, estimator.estimate)
    if largest is not None:
        yield _alternative(f"batch {largest.job.batch}, the largest that fits", largest)


def _alternative(words: str, changed: Estimate) -> Alternative:
    return Alternative(
        change=words,
        allocated=changed.peak_allocated,
        reserved=changed.peak_reserved,
        fit=changed.fit,
        batch=changed.job.batch,
    )


def _changes(first: Estimate) -> Iterator[tuple[str, Job]]:
    job, whole = first.job, first.dtype in ("", "float32")
    if not job.checkpoint:
        yield "activation checkpointing", replace(job, checkpoint=True)
    if whole and job.amp is None:
        yield "bf16 autocast", replace(job, amp="bfloat16")
    if whole:
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
    """States on more ranks, or on those that hold copies of them already."""
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
    """The fewest ranks, a power of two up to 1,024, over which states can be sharded so that it should fit; else 8.

    Parameters, gradients and optimizer state are divided by their number; the rest stays.
    """
    formula = first.formula
    states = formula.parameters + formula.optimizer + formula.gradients
    room = (first.capacity - sum(first.outside.values()) - NCCL) / HIGH
    for ranks in (1 << power for power in range(1, 11)):
        if first.peak_reserved - states * (1 - 1 / ranks) <= room:
            return ranks
    return 8


def largest_batch(first: Estimate, estimator: Callable[[Job], Estimate]) -> Estimate | None:
    """The largest batch that fits: some are tried, each on the straight line between the last two.

    Args:
        first: The estimate of the batch that was asked for.
        estimator: Estimates another job.

    Returns:
        Its estimate; ``None`` where not even one sample for each part of a step fits.
    """
    # the parts of a step stay as many as they are
    unit = first.job.parts
    fits, fails = (first, None) if first.fit is Fit.FITS else (None, first)
    for _ in range(_TRIES):
        batch = unit if fits is None else _next_batch(fits, fails, unit)
        if batch is None or (fails is not None and batch >= fails.job.batch):
            break
        found = estimator(replace(first.job, batch=batch))
        if found.fit is Fit.FITS:
            fits = found
        else:
            fails = found
    return fits


def _next_batch(fits: Estimate, fails: Estimate | None, unit: int) -> int | None:
    """A batch to try next; ``None`` where there is none between the two."""
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
