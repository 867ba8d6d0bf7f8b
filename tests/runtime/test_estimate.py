"""What would make it fit is estimated as well; the runs are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tbmem.errors import UsageError
from tbmem.model.category import Category, Phase
from tbmem.model.estimate import Fit
from tbmem.model.fake_run import FakeRun
from tbmem.model.job import Job
from tbmem.present.estimate import estimate_lines
from tbmem.runtime.estimate import estimate, ranks_that_fit
from tbmem.units import GIB

JOB = Job(model="gpt2", batch=8)


def run_of(job: Job) -> FakeRun:
    """10 GiB of states and 1 GiB of activations a sample; half of these with checkpointing."""
    activations = job.batch * GIB // (2 if job.checkpoint else 1)
    table = np.array(
        [
            (10 * GIB, 0, -1, -1, Phase.SETUP, Category.PARAMETER),
            (activations, 1, 2, 0, Phase.FORWARD, Category.ACTIVATION),
        ],
        dtype=np.int64,
    )
    return FakeRun(
        size=table[:, 0],
        alloc_event=table[:, 1],
        free_event=table[:, 2],
        step=table[:, 3],
        phase=table[:, 4],
        category=table[:, 5],
        module=np.array([-1, -1]),
        operator=np.array([0, 0]),
        operators=("aten::empty",),
        about={"step_starts": [1], "backward_starts": []},
    )


def execute(jobs: Sequence[Job]) -> list[FakeRun | UsageError]:
    return [UsageError("no") if job.world_size > 1 else run_of(job) for job in jobs]


def test_without_alternatives_one_job_is_executed() -> None:
    result = estimate(JOB, "a100-40gb", execute=execute)

    assert result.fit is Fit.FITS
    assert result.peak_reserved == 18 * GIB
    assert result.alternatives == ()


def test_what_would_make_it_fit() -> None:
    result = estimate(replace(JOB, batch=40), "a100-40gb", alternatives=True, execute=execute)

    assert result.fit is Fit.NO
    fits = {one.change: one.fit for one in result.alternatives}
    assert fits["activation checkpointing"] is Fit.FITS
    assert fits["bf16 autocast"] is Fit.NO
    assert not any("FSDP" in change for change in fits)
    largest = result.alternatives[-1]
    assert largest.fit is Fit.FITS
    assert 26 <= largest.batch <= 28


def test_halves_are_not_halved_again() -> None:
    def in_halves(jobs: Sequence[Job]) -> list[FakeRun | UsageError]:
        return [replace(run_of(job), about={**run_of(job).about, "dtype": "bfloat16"}) for job in jobs]

    result = estimate(JOB, "a100-40gb", alternatives=True, execute=in_halves)

    assert not any("bf16" in one.change for one in result.alternatives)
    assert "gpt2: 0 parameters in bfloat16, on a100-40gb" in "\n".join(estimate_lines(result))


def test_a_job_that_cannot_be_executed_is_an_error() -> None:
    with pytest.raises(UsageError, match="no"):
        estimate(replace(JOB, world_size=2, fsdp=2), execute=execute)


def flat_then_steep(jobs: Sequence[Job]) -> list[FakeRun | UsageError]:
    """What the optimizer needs hides the activations of small batches."""
    runs = []
    for job in jobs:
        run = run_of(job)
        size = np.array([10 * GIB, max(job.batch * GIB // 4, 20 * GIB)])
        runs.append(replace(run, size=size))
    return list(runs)


@pytest.mark.parametrize("batch", [1, 8, 100, 400])
def test_the_largest_batch_is_found_also_where_small_ones_need_the_same(batch: int) -> None:
    result = estimate(replace(JOB, batch=batch), "a100-40gb", alternatives=True, execute=flat_then_steep)

    largest = result.alternatives[-1]
    assert largest.change == f"batch {largest.batch}, the largest that fits"
    # (39.4 GiB - the context) / 1.03 - 10 GiB for the states, at a quarter of a GiB each
    assert 108 <= largest.batch <= 111


def test_a_model_of_which_no_batch_fits() -> None:
    result = estimate(replace(JOB, batch=8), "t4", alternatives=True, execute=flat_then_steep)

    assert not any("largest" in one.change for one in result.alternatives)
    assert "no batch fits" in "\n".join(estimate_lines(result))


def test_alternatives_come_by_themselves_where_it_does_not_fit() -> None:
    small = estimate(JOB, "a100-40gb", alternatives=None, execute=execute)
    large = estimate(replace(JOB, batch=40), "a100-40gb", alternatives=None, execute=execute)

    assert small.alternatives == ()
    assert large.alternatives


def test_shards_are_as_few_as_may_fit() -> None:
    estimated = estimate(replace(JOB, batch=40), "a100-40gb", execute=execute)
    states = replace(estimated.formula, parameters=30 * GIB)

    assert ranks_that_fit(replace(estimated, peak_reserved=50 * GIB, formula=states)) == 2
    assert ranks_that_fit(replace(estimated, peak_reserved=65 * GIB, formula=states)) == 16
    assert ranks_that_fit(replace(estimated, peak_reserved=90 * GIB, formula=states)) == 8
