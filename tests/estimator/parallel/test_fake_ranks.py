"""One rank of a group without the others."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from tbmem.estimator.parallel.fake_ranks import as_placed, distributed_tensors, fake_rank, local, mesh_of, stage_of
from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.model.job import Job

FSDP: Any = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param")
JOB = Job(model="gpt2", device="cpu", world_size=16, pipeline=2, fsdp=4, tensor=2, rank=13, batch=4)


def test_the_process_is_its_rank_within_the_block_only() -> None:
    # given
    before = dict(os.environ)
    # when
    with fake_rank(JOB):
        assert (dist.get_rank(), dist.get_world_size()) == (13, 16)
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("13", "16")
        # a collective returns at once
        dist.all_reduce(torch.ones(4))
    # then
    assert not dist.is_initialized()
    assert dict(os.environ) == before


def test_the_group_ends_with_an_error() -> None:
    before = dict(os.environ)

    with pytest.raises(RuntimeError, match="stop"), fake_rank(JOB):
        raise RuntimeError("stop")

    assert not dist.is_initialized()
    assert dict(os.environ) == before


def test_a_rank_has_its_place_in_every_dimension() -> None:
    # given 2 stages x 4 shards x 2 tensor ranks, of which rank 13 is 1 * 8 + 2 * 2 + 1
    with fake_rank(JOB):
        mesh = mesh_of(JOB)
        # then
        sizes = dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True))
        assert sizes == {"pipeline": 2, "replicate": 1, "fsdp": 4, "expert": 1, "tensor": 2}
        assert list(mesh.get_coordinate() or ()) == [1, 0, 2, 0, 1]


def test_consecutive_ranks_share_a_stage() -> None:
    assert [stage_of(replace(JOB, rank=rank)) for rank in (0, 7, 8, 15)] == [0, 0, 1, 1]


def test_a_gradient_gets_the_placements_of_its_parameter() -> None:
    job = replace(JOB, pipeline=1, tensor=1, world_size=4, rank=0)
    with fake_rank(job):
        mesh = mesh_of(job)["fsdp"]
        parameter = distribute_tensor(torch.zeros(8, 3), mesh, [Shard(0)])
        whole = DTensor.from_local(torch.zeros(8, 3), mesh, [Replicate()], run_check=False)

        placed = as_placed(whole, parameter)

        assert isinstance(placed, DTensor)
        assert placed.placements == (Shard(0),)
        assert local(placed).shape == local(parameter).shape == (2, 3)
        # what is placed already, or is no distributed tensor, is left alone
        assert as_placed(parameter, parameter) is parameter
    plain = torch.zeros(2)
    assert as_placed(plain, plain) is local(plain) is plain


@pytest.mark.parametrize(("rows", "ranks"), [(8, 4), (10, 4), (5, 4), (3, 8)])
def test_shards_are_cut_as_torch_cuts_them(rows: int, ranks: int) -> None:
    # given
    values = torch.arange(rows * 2).reshape(rows, 2)
    expected = FSDP._chunk_with_empty(values, ranks, dim=0)
    # when
    with AllocationTracker("cpu") as tracker, distributed_tensors(tracker):
        shards = FSDP._chunk_with_empty(values, ranks, dim=0)
        found = [shards[index] for index in range(len(shards))]
    # then
    assert len(found) == len(expected) == ranks
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.numel() == theirs.numel()
        assert torch.equal(mine.flatten(), theirs.flatten())
