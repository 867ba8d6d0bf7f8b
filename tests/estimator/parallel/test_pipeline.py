"""The order of a stage's microbatches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.estimator.parallel.pipeline import microbatch_order
from tbmem.estimator.worker import simulate_jobs
from tbmem.estimator.workload.decoder import DecoderShape
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.estimator.decoders import Made, made


def _alive(order: list[tuple[str, int]]) -> int:
    """The most microbatches that went forward and not yet back."""
    alive = most = 0
    for kind, _ in order:
        alive += 1 if kind == "F" else -1
        most = max(most, alive)
    return most


@pytest.mark.parametrize(("stage", "parts", "most"), [(0, 8, 4), (1, 8, 3), (3, 8, 1), (0, 2, 2)])
def test_1f1b_holds_as_many_microbatches_as_stages_follow(stage: int, parts: int, most: int) -> None:
    assert _alive(microbatch_order("1f1b", stage, 4, parts)) == most
    # GPipe holds all of them, on every stage
    assert _alive(microbatch_order("gpipe", stage, 4, parts)) == parts


def test_the_first_of_two_stages_runs_one_ahead() -> None:
    order = [kind + str(part) for kind, part in microbatch_order("1f1b", 0, 2, 3)]

    assert order == ["F0", "F1", "B0", "F2", "B1", "B2"]


def test_every_microbatch_goes_forward_and_back_once() -> None:
    for schedule in ("1f1b", "gpipe"):
        for stage in range(4):
            order = list(microbatch_order(schedule, stage, 4, 8))
            waiting = 0
            for what, part in order:
                waiting += 1 if what == "F" else -1
                assert waiting >= 0
                assert what == "B" or ("B", part) not in order[: order.index(("F", part))]
            assert sorted(order) == sorted([(what, part) for part in range(8) for what in "FB"])
    assert list(microbatch_order("1f1b", 3, 4, 2)) == [("F", 0), ("B", 0), ("F", 1), ("B", 1)]


def four_layers(batch: int, sequence: int) -> Made:
    """A factory of a decoder, with a batch of one tensor."""
    return made(DecoderShape(layers=4, width=128, heads=4, inner=352, vocabulary=500, context=128), batch, sequence)


def test_a_factorys_batch_may_be_the_tokens_alone() -> None:
    # given a decoder of a factory whose loss reads its targets from the tokens
    shared = {"model": f"{__name__}:four_layers", "search_path": str(Path(__file__).parents[3]), "sequence": 64}
    stages = [Job(**shared, batch=4, pipeline=2, world_size=2, microbatches=4, rank=rank) for rank in (0, 1)]  # type: ignore[arg-type]
    # when
    runs = simulate_jobs(stages)
    # then each stage runs, and the last has the scores of all words
    for run in runs:
        assert isinstance(run, SimulatedRun), run
    first, last = (run for run in runs if isinstance(run, SimulatedRun))
    assert "aten::nll_loss_forward" in last.operators
    assert "aten::nll_loss_forward" not in first.operators
