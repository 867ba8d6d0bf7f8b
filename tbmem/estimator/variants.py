"""Estimates of a job with other batches, with and without checkpointing, under several settings of the allocator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.estimates.fit import Estimate
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.estimator.estimate import Estimator
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.present.views.prediction import variant_view
from tbmem.present.views.remedies import SETTINGS

_FACTORS = (0.25, 0.5, 1, 2, 4)
"""Of the batch."""


def variants_of(estimate: Estimate) -> list[dict[str, Any]]:
    """Estimate the variants of a job, as plain values for JSON.

    Each batch is executed and each setting replayed; a variant that cannot be executed is left out.
    """
    jobs = list(_jobs(estimate.job))
    runs = zip(jobs, simulate_jobs(jobs), strict=True)
    texts = dict.fromkeys((estimate.settings, "", *SETTINGS))
    return [_variant(estimate, job, run, text) for job, run in runs if isinstance(run, SimulatedRun) for text in texts]


def _jobs(job: Job) -> Iterator[Job]:
    batches = sorted({int(job.batch * factor) for factor in ((1,) if job.own_batch else _FACTORS)})
    for batch in (batch for batch in batches if batch > 0 and batch % job.parts == 0):
        for checkpoint in (False, True):
            yield replace(job, batch=batch, checkpoint=checkpoint)


def _variant(estimate: Estimate, job: Job, run: SimulatedRun, text: str) -> dict[str, Any]:
    settings = parse_settings(text)
    result = Estimator(gpu_named(estimate.gpu), settings).estimate(job, run)
    return variant_view(result, timeline_of_run(run, settings, result.capacity))
