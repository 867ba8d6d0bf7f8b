"""The example in megatron-core is estimated; skipped where megatron-core is not installed."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from tbmem.estimator.worker import simulate_jobs
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

JOB = Job(
    model="examples/megatron_gpt.py:build",
    search_path=str(PROJECT),
    sequence=256,
    batch=8,
    dtype="bfloat16",
    world_size=64,
    tensor=2,
    pipeline=2,
    expert=4,
    replicate=4,
)


@pytest.mark.skipif(find_spec("megatron") is None, reason="pip install --no-deps megatron-core")
def test_two_ranks_of_sixty_four_in_one_process() -> None:
    first, last, wider = simulate_jobs([JOB, replace(JOB, rank=63), replace(JOB, expert=2, replicate=8)])

    for run in (first, last, wider):
        assert isinstance(run, SimulatedRun), run
        assert {int(phase) for phase in run.phase[run.step == 1]} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
        assert bytes_of(run, Category.OPTIMIZER_STATE) == pytest.approx(2 * bytes_of(run, Category.PARAMETER), rel=0.01)
        assert bytes_of(run, Category.COMMUNICATION) > 0
        assert any("local_experts" in module for module in run.modules)
    assert isinstance(first, SimulatedRun)
    assert isinstance(wider, SimulatedRun)
    # half as many ranks share the experts
    assert bytes_of(wider, Category.PARAMETER) > 1.3 * bytes_of(first, Category.PARAMETER)


def bytes_of(run: SimulatedRun, category: Category) -> int:
    return int(run.size[run.category == category].sum())
