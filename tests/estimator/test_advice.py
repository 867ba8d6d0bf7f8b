"""A run that does not fit goes in, changes that would make it fit come out; how much each saves is made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import Alternative, Estimate, Fit, estimate_from_run
from tbmem.errors import UsageError
from tbmem.estimator.advice import alternatives_to, ranks_that_fit
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.present.text.estimate import estimate_lines
from tbmem.units import GIB
from tests.estimator.test_estimate import JOB, run_of

Sizes = Callable[[Job], tuple[float, float]]
"""States and activations of a job, in GiB."""


def plain(job: Job) -> tuple[float, float]:
    """10 GiB of states and 1 GiB of activations a sample; half of these with checkpointing."""
    return 10, job.batch / (2 if job.checkpoint else 1)


def halved_by_each(job: Job) -> tuple[float, float]:
    """States of a 7B, halved by bf16, and divided by ranks; activations that checkpointing halves."""
    states = 112.0 / job.fsdp / (2 if job.dtype == "bfloat16" else 1) - (12 if job.implementation == "fused" else 0)
    return max(states, 1), job.batch / (2 if job.checkpoint else 1)


def flat_then_steep(job: Job) -> tuple[float, float]:
    """What the optimizer needs hides the activations of small batches."""
    return 10, max(job.batch / 4, 20)


def estimator(gpu: str, sizes: Sizes) -> Callable[[Sequence[Job]], list[Estimate | UsageError]]:
    def estimated(job: Job) -> Estimate:
        job = replace(job, capability=gpu_named(gpu).capability)
        size = np.array([int(part * GIB) for part in sizes(job)])
        return estimate_from_run(job, replace(run_of(job), size=size), AllocatorSettings(), gpu_named(gpu))

    return lambda jobs: [estimated(job) for job in jobs]


def advice(job: Job, gpu: str, sizes: Sizes = plain) -> dict[str, Alternative]:
    estimate_all = estimator(gpu, sizes)
    (first,) = estimate_all([job])
    assert isinstance(first, Estimate)
    return {one.change: one for one in alternatives_to(first, estimate_all)}


def test_what_would_make_it_fit() -> None:
    # given a batch that is too large
    found = advice(replace(JOB, batch=40), "a100-40gb")
    # then
    assert found["activation checkpointing"].fit is Fit.FITS
    *_, largest = found.values()
    assert largest.fit is Fit.FITS
    assert 26 <= largest.batch <= 28
    # what saves nothing is not said, and one change is enough
    assert not any("bf16" in change or " + " in change or "FSDP" in change for change in found)


def test_changes_are_combined_where_no_single_one_fits() -> None:
    # given 112 GiB of states and 80 of activations
    found = advice(replace(JOB, batch=80), "h100-80gb", halved_by_each)
    # then
    together = [change for change, one in found.items() if one.fit is Fit.FITS and "batch" not in change]
    assert together
    assert all(" + " in change for change in together)
    assert any(change.startswith("FSDP over 8 + ") or change.endswith(" + FSDP over 8") for change in together)


def halved_or_sharded(job: Job) -> tuple[float, float]:
    """50 GiB of states, halved by bf16 and divided by ranks; activations that checkpointing halves."""
    return 50.0 / job.fsdp / (2 if job.dtype == "bfloat16" else 1), job.batch / (2 if job.checkpoint else 1)


def test_where_only_more_ranks_are_enough_changes_together_show_what_is_without() -> None:
    # given 50 GiB of states and 16 of activations for a card of 40
    executed: list[Job] = []
    estimate_all = estimator("a100-40gb", halved_or_sharded)

    def counted(jobs: Sequence[Job]) -> list[Estimate | UsageError]:
        executed.extend(jobs)
        return estimate_all(jobs)

    (first,) = estimate_all([replace(JOB, batch=16)])
    assert isinstance(first, Estimate)
    # when
    found = {one.change: one for one in alternatives_to(first, counted)}
    # then
    fit = [change for change, one in found.items() if one.fit is Fit.FITS and not change.startswith("batch")]
    assert fit[0] == "FSDP over 4"
    assert sorted(fit[1].split(" + ")) == ["activation checkpointing", "bf16 throughout"]
    # and of these only what may be enough was executed
    assert sum(job.checkpoint and job.amp is not None for job in executed) == 0


def test_a_fused_optimizer_saves_its_temporaries() -> None:
    # given
    found = advice(replace(JOB, batch=8), "h100-80gb", halved_by_each)
    # then
    assert found["fused optimizer"].reserved == (100 + 8) * GIB


def test_ranks_are_as_many_as_are_needed() -> None:
    # given 112 GiB of states, of which 16 ranks hold 7 each, beside 30 of activations
    found = advice(replace(JOB, batch=30), "a100-40gb", halved_by_each)
    # then
    ranks = [change for change in found if change.startswith("FSDP") and " + " not in change]
    assert [found[change].fit for change in ranks] == [Fit.FITS]


def accumulated(job: Job) -> tuple[float, float]:
    """10 GiB of states and 1 GiB of activations a sample of a part."""
    return 10, job.batch / job.accumulate


@pytest.mark.parametrize(
    ("batch", "parts"),
    [(40, {2: True}), (64, {2: False, 4: True}), (240, {2: False, 16: True}), (254, {2: False})],
    ids=["two are enough", "four are", "sixteen are", "it cannot be divided further"],
)
def test_a_batch_is_divided_as_often_as_is_needed(batch: int, parts: dict[int, bool]) -> None:
    # given room for some 27 samples at a time
    found = advice(replace(JOB, batch=batch), "a100-40gb", accumulated)
    # then
    accumulation = "gradient accumulation, batch in "
    fits = {change: one.fit is Fit.FITS for change, one in found.items() if change.startswith(accumulation)}
    alone = {change: value for change, value in fits.items() if " + " not in change}
    assert alone == {f"{accumulation}{count} parts": value for count, value in parts.items()}


def test_an_old_card_is_offered_what_it_has() -> None:
    # given
    asked: list[str] = []

    def noting(job: Job) -> tuple[float, float]:
        asked.extend(filter(None, (job.amp, job.dtype)))
        return plain(job)

    # when
    advice(replace(JOB, batch=8), "t4", noting)
    # then
    assert "float16" in asked
    assert "bfloat16" not in asked


def test_halves_are_not_halved_again() -> None:
    # given
    asked: list[Job] = []
    estimate_all = estimator("a100-40gb", plain)
    (first,) = estimate_all([replace(JOB, batch=40)])
    assert isinstance(first, Estimate)

    def noting(jobs: Sequence[Job]) -> list[Estimate | UsageError]:
        asked.extend(jobs)
        return estimate_all(jobs)

    # when
    list(alternatives_to(replace(first, dtype="bfloat16"), noting))
    # then
    assert {(job.amp, job.dtype) for job in asked} == {(None, None)}


@pytest.mark.parametrize("batch", [1, 8, 100, 400])
def test_the_largest_batch_is_found_also_where_small_ones_need_the_same(batch: int) -> None:
    # given
    *_, largest = advice(replace(JOB, batch=batch), "a100-40gb", flat_then_steep).values()
    # then (39.4 GiB - the context) / 1.03 - 10 GiB for the states, at a quarter of a GiB each
    assert largest.change == f"batch {largest.batch}, the largest that is not tight"
    assert 108 <= largest.batch <= 111


def test_a_batch_beyond_those_that_are_tried_is_not_called_the_largest() -> None:
    # given a model that needs next to nothing for a sample
    def tiny(job: Job) -> tuple[float, float]:
        return 1, job.batch / 4096

    *_, largest = advice(replace(JOB, batch=64), "a100-40gb", tiny).values()

    assert largest.change == "batch 4096, larger ones were not tried"


def test_where_the_batch_makes_no_difference_a_large_one_is_said_to_fit() -> None:
    # given a model whose peak lies in the optimizer's step
    *_, largest = advice(replace(JOB, batch=64), "a100-40gb", lambda job: (1, 1)).values()

    assert largest.change == "batch 4096, larger ones were not tried"


def test_no_batch_is_tried_where_the_factory_makes_its_own() -> None:
    found = advice(replace(JOB, batch=1, own_batch=True), "a100-40gb")

    assert found
    assert not any("batch" in change for change in found)


def test_a_model_of_which_no_batch_fits() -> None:
    # given
    estimate_all = estimator("t4", flat_then_steep)
    (first,) = estimate_all([JOB])
    assert isinstance(first, Estimate)
    # when
    result = replace(first, alternatives=tuple(alternatives_to(first, estimate_all)))
    # then
    assert not any("largest" in one.change for one in result.alternatives)
    assert "no batch fits" in "\n".join(estimate_lines(result)) or not result.alternatives


def test_shards_are_as_few_as_may_fit() -> None:
    # given
    (estimated,) = estimator("a100-40gb", plain)([replace(JOB, batch=40)])
    assert isinstance(estimated, Estimate)
    states = replace(estimated.formula, parameters=30 * GIB)
    # then
    assert ranks_that_fit(replace(estimated, peak_reserved=50 * GIB, formula=states)) == 2
    assert ranks_that_fit(replace(estimated, peak_reserved=65 * GIB, formula=states)) == 16
    assert ranks_that_fit(replace(estimated, peak_reserved=90 * GIB, formula=states)) is None
