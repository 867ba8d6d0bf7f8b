"""Values that a batch has decide sizes as they would; sizes that only the model knows are refused, with their lines."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tbmem.errors import UsageError
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.category import Phase
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.conftest import PROJECT

OF_A_TOKEN = 64
"""Bytes: 16 values in float32."""
KNOWN = {
    "generated": 80,
    **dict.fromkeys(("trimmed_by_item", "trimmed_by_int", "trimmed_by_tensor", "trimmed_by_numpy"), 4 * 30),
    **dict.fromkeys(("trimmed_as_numpy_says", "trimmed_by_fractions", "varlen", "top_as_given"), 4 * 30),
    **{"masked": 62, "selected": 62, "nonzero": 62, "mask_is_filled": 56, "repeated": 56, "split": 56},
}
"""Tokens that remain."""
COMPUTED = "a size, an index or a whole number is a value that the model computes"
UNKNOWN = {
    **dict.fromkeys(("sizes", "half_of_it", "slices", "slices_by_int", "slices_by_tensor", "lists"), COMPUTED),
    **dict.fromkeys(("loops", "top", "classes", "random_crop", "overwritten", "picks"), COMPUTED),
    "packed": "leave pack_padded_sequence out",
}
HARMLESS = ("accuracy", "branches")


@cache
def outcomes() -> dict[str, SimulatedRun | UsageError]:
    """All jobs, in one child."""
    names = [*KNOWN, *UNKNOWN, *HARMLESS]
    jobs = [Job(model=f"tests.estimator.reading_factories:{name}", search_path=str(PROJECT)) for name in names]
    return dict(zip(names, simulate_jobs(jobs), strict=True))


@pytest.mark.parametrize(("factory", "tokens"), KNOWN.items())
def test_sizes_that_the_batch_knows_are_the_real_ones(factory: str, tokens: int) -> None:
    run = outcomes()[factory]

    assert isinstance(run, SimulatedRun), run
    forward = (run.step == 0) & (run.phase == Phase.FORWARD)
    copies = run.size[forward & (run.operator == run.operators.index("aten::clone"))]
    assert copies.tolist() == [tokens * OF_A_TOKEN]
    assert any("the batch's own values decided something (reading_factories.py:" in note for note in run.notes)


@pytest.mark.parametrize(("factory", "reason"), UNKNOWN.items())
def test_sizes_that_nobody_knows_are_refused_with_their_line(factory: str, reason: str) -> None:
    outcome = outcomes()[factory]

    assert isinstance(outcome, UsageError)
    assert re.search(rf"reading_factories.py:\d+: .*{reason}", str(outcome))
    assert "\n" not in str(outcome)


@pytest.mark.parametrize("factory", HARMLESS)
def test_numbers_that_decide_no_size_are_read_with_a_note(factory: str) -> None:
    run = outcomes()[factory]

    assert isinstance(run, SimulatedRun), run
    assert any("0, 1 or False was assumed" in note and "reading_factories.py:" in note for note in run.notes)
