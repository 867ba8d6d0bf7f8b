"""Variants of a job: each batch is executed, each setting of the allocator replayed."""

from __future__ import annotations

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.estimator.estimate import estimate_job
from tbmem.estimator.variants import variants_of
from tbmem.model.job import Job
from tests.conftest import PROJECT


def test_variants_are_what_their_own_estimates_are() -> None:
    # given a job in two parts, which a batch of 3 does not have
    job = Job(model="tests.estimator.factories:layers", batch=6, accumulate=2, search_path=str(PROJECT))
    first, _ = estimate_job(job)

    variants = variants_of(first)

    assert {variant["batch"] for variant in variants} == {6, 12, 24}
    assert {variant["checkpoint"] for variant in variants} == {False, True}
    assert all(parse_settings(variant["settings"]) for variant in variants)
    (same,) = (one for one in variants if (one["batch"], one["checkpoint"], one["settings"]) == (6, False, ""))
    assert same["peak_reserved"] == first.peak_reserved
    (large,) = (one for one in variants if (one["batch"], one["checkpoint"], one["settings"]) == (24, False, ""))
    # the batch is in the backward pass
    assert large["steps"]["steady"][1]["peak"] > same["steps"]["steady"][1]["peak"]
