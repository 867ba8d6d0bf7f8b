"""One rank of many: the laws that sharding, pipelines and experts obey."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tbmem.estimator.worker import simulate_jobs
from tbmem.model.category import Category
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun

GPT = Job(model="gpt2", sequence=128, dtype="bfloat16", optimizer="adamw", steps=2)
MIXTRAL = Job(model="mixtral-8x7b", sequence=64, dtype="bfloat16", optimizer="sgd")
JOBS = {
    "alone": GPT,
    "ddp": replace(GPT, world_size=4, replicate=4),
    "fsdp": replace(GPT, world_size=8, fsdp=8),
    "fsdp, rank 5": replace(GPT, world_size=8, fsdp=8, rank=5),
    "hsdp": replace(GPT, world_size=8, fsdp=4, replicate=2),
    "tensor": replace(GPT, world_size=4, tensor=4),
    "1f1b": replace(GPT, world_size=4, pipeline=4, batch=8),
    "gpipe": replace(GPT, world_size=4, pipeline=4, batch=8, schedule="gpipe"),
    "last stage": replace(GPT, world_size=4, pipeline=4, batch=8, rank=3),
    "experts alone": Job(model="mixtral-8x7b", sequence=64, dtype="bfloat16", optimizer="sgd"),
    "busy experts": Job(
        model="mixtral-8x7b", sequence=64, dtype="bfloat16", optimizer="sgd", world_size=8, expert=8, imbalance=2.0
    ),
    "experts and shards": replace(MIXTRAL, world_size=32, expert=4, fsdp=8, rank=31),
    "tensor and experts": replace(MIXTRAL, world_size=8, expert=4, tensor=2),
    "half, first stage": replace(GPT, world_size=2, pipeline=2, batch=4, dtype="float32", amp="float16"),
    "clipped, tensor": replace(GPT, world_size=2, tensor=2, clip=1.0),
    "stage, shards": replace(GPT, world_size=4, pipeline=2, fsdp=2, batch=4, rank=3),
    "later stage, inference": replace(GPT, world_size=2, pipeline=2, batch=4, rank=1, inference=True),
    "experts": Job(model="mixtral-8x7b", sequence=64, dtype="bfloat16", optimizer="sgd", world_size=8, expert=8),
}


@cache
def runs() -> dict[str, SimulatedRun]:
    outcomes = dict(zip(JOBS, simulate_jobs(list(JOBS.values())), strict=True))
    assert all(isinstance(outcome, SimulatedRun) for outcome in outcomes.values()), outcomes
    return outcomes  # type: ignore[return-value]


def bytes_of(name: str, category: Category) -> int:
    run = runs()[name]
    return int(run.size[run.category == category].sum())


def peak(name: str) -> int:
    run = runs()[name]
    change = np.zeros(max(run.alloc_event.max(), run.free_event.max()) + 1, dtype=np.int64)
    ended = run.free_event >= 0
    np.add.at(change, run.alloc_event, run.size)
    np.add.at(change, run.free_event[ended], -run.size[ended])
    return int(change.cumsum().max())


@pytest.mark.parametrize(("name", "ranks"), [("fsdp", 8), ("fsdp, rank 5", 8), ("hsdp", 4)])
def test_fsdp_over_n_divides_the_states_by_n(name: str, ranks: int) -> None:
    for category in (Category.PARAMETER, Category.OPTIMIZER_STATE):
        assert bytes_of(name, category) == pytest.approx(bytes_of("alone", category) / ranks, rel=0.02)
    assert bytes_of("fsdp", Category.COMMUNICATION) > 0


def test_ddp_divides_nothing_and_holds_buckets_as_large_as_the_gradients() -> None:
    for category in (Category.PARAMETER, Category.OPTIMIZER_STATE):
        assert bytes_of("ddp", category) == bytes_of("alone", category)
    # one bucket in the first step, then several
    assert bytes_of("ddp", Category.COMMUNICATION) == 2 * bytes_of("alone", Category.PARAMETER)


def test_ddp_divides_its_bucket_in_the_order_of_the_gradients() -> None:
    # when the second step begins
    run = runs()["ddp"]
    buckets = (run.category == Category.COMMUNICATION) & (
        run.operator == run.operators.index("aten::empty.memory_format")
    )
    whole, *parts = run.size[buckets].tolist()
    # then the bucket of all is freed, and several take its place
    assert run.free_event[buckets][0] < run.alloc_event[buckets][1]
    assert len(parts) > 2
    assert sum(parts) == whole


def test_tensor_parallelism_divides_the_layers() -> None:
    assert bytes_of("tensor", Category.PARAMETER) < 0.6 * bytes_of("alone", Category.PARAMETER)


def test_a_stage_holds_its_layers_only_and_1f1b_needs_no_more_than_gpipe() -> None:
    assert bytes_of("1f1b", Category.PARAMETER) < 0.6 * bytes_of("alone", Category.PARAMETER)
    assert peak("1f1b") < peak("gpipe")
    assert bytes_of("last stage", Category.COMMUNICATION) > 0


def test_experts_are_divided_and_tokens_exchanged() -> None:
    assert bytes_of("experts", Category.PARAMETER) < 0.2 * bytes_of("experts alone", Category.PARAMETER)
    assert bytes_of("experts", Category.COMMUNICATION) > 0


def test_a_rank_whose_experts_get_more_tokens_needs_more() -> None:
    assert bytes_of("busy experts", Category.PARAMETER) == bytes_of("experts", Category.PARAMETER)
    assert bytes_of("busy experts", Category.ACTIVATION) > 1.2 * bytes_of("experts", Category.ACTIVATION)
    # each of 64 tokens goes to two experts: as many more are received in 32 layers, 4,096 values of two bytes wide, and
    # as many gradients on the way back, in each of two steps
    more = bytes_of("busy experts", Category.COMMUNICATION) - bytes_of("experts", Category.COMMUNICATION)
    assert more == (64 * 2) * 32 * (4096 * 2) * 2 * 2


def test_a_replica_of_shards_holds_what_the_hand_computes() -> None:
    # 124,439,808 parameters of two bytes on four shards, of 50,257 rows one of them padded; AdamW has two of each
    assert bytes_of("hsdp", Category.PARAMETER) == pytest.approx(124_439_808 * 2 / 4, rel=0.001)
    assert bytes_of("hsdp", Category.OPTIMIZER_STATE) == pytest.approx(2 * 124_439_808 * 2 / 4, rel=0.001)


def test_experts_hold_what_the_hand_computes() -> None:
    experts, all_ = 32 * 8 * 3 * 4096 * 14336, 46_702_792_704
    dense = all_ - experts

    assert bytes_of("experts", Category.PARAMETER) == 2 * (dense + experts // 8)
    # of what all ranks hold the gradients are summed up, in DDP's buckets
    assert bytes_of("experts", Category.COMMUNICATION) > 2 * dense
    # two experts of eight shards: cut across, so that each rank has the same
    assert bytes_of("experts and shards", Category.PARAMETER) == 2 * (dense + experts // 4) // 8
    # attention, ends and experts are divided; norms and routes are not
    whole = 32 * (2 * 4096 + 8 * 4096) + 4096
    halves = 2 * (whole + (dense - whole) // 2 + experts // 8)
    assert bytes_of("tensor and experts", Category.PARAMETER) == halves


@pytest.mark.parametrize("name", ["half, first stage", "clipped, tensor", "stage, shards", "later stage, inference"])
def test_products_run(name: str) -> None:
    assert peak(name) > bytes_of(name, Category.PARAMETER) > 0
