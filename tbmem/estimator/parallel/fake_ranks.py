"""Simulates one rank of a process group whose other ranks do not exist."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from tbmem.estimator.fake_tensors.fake_cuda import patched
from tbmem.estimator.tracker.tracker import AllocationTracker, counting
from tbmem.model.job import Job

_MESH_METHODS = (
    *("__init__", "__getitem__", "get_coordinate", "get_local_rank", "_get_root_mesh", "_flatten", "get_group"),
    *("size", "_unflatten", "_concatenate"),
)
"""Run outside of fake mode: rank numbers are real tensors. Some exist in newer versions of torch only."""
_PROPAGATION = ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached")
_FSDP = ("foreach_all_gather", "foreach_all_gather_copy_out", "foreach_reduce")
_DIMENSIONS = ("pipeline", "replicate", "fsdp", "expert", "tensor")


@contextlib.contextmanager
def fake_rank(job: Job) -> Iterator[None]:
    """Within the block this process is rank ``job.rank`` of ``job.world_size``; collectives return at once."""
    variables = {"RANK": job.rank, "WORLD_SIZE": job.world_size, "LOCAL_RANK": 0, "MASTER_ADDR": "localhost"}
    before = dict(os.environ)
    os.environ.update({name: str(value) for name, value in variables.items()}, MASTER_PORT="0")
    # shards of another rank may have other sizes
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    with contextlib.ExitStack() as stack:
        for name in _MESH_METHODS:
            if hasattr(DeviceMesh, name):
                plain = _disable_current_modes()(getattr(DeviceMesh, name))
                stack.enter_context(patched(DeviceMesh, name, plain))
        dist.init_process_group("fake", store=FakeStore(), rank=job.rank, world_size=job.world_size)
        try:
            yield
        finally:
            dist.destroy_process_group()
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def distributed_tensors(tracker: AllocationTracker) -> Iterator[None]:
    """Within the block the tracker counts local shards, not the full tensors of sharding propagation."""
    tracker.distributed = DTensor
    with contextlib.ExitStack() as stack:
        for owner, names, counter in (
            (ShardingPropagator, _PROPAGATION, "paused"),
            (_fsdp_param_group, _FSDP, "communicates"),
        ):
            for name in names:
                if hasattr(owner, name):
                    stack.enter_context(patched(owner, name, counting(tracker, counter)(getattr(owner, name))))
        if hasattr(_fsdp_param, "_chunk_with_empty"):
            stack.enter_context(patched(_fsdp_param, "_chunk_with_empty", _Shards))
        yield


class _Shards:
    """A tensor's shards as FSDP2 cuts them, created on access: it accesses two of a thousand."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, num_chunks, dim

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        length = self._tensor.shape[self._dim]
        each = -(-length // self._count)
        if index * each >= length:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, index * each, min(each, length - index * each))


def mesh_of(job: Job) -> DeviceMesh:
    """The device mesh over all dimensions of the job's parallelism."""
    sizes = tuple(getattr(job, name) for name in _DIMENSIONS)
    with _disable_current_modes():
        return init_device_mesh(job.device, sizes, mesh_dim_names=_DIMENSIONS)


def stage_of(job: Job) -> int:
    """The pipeline stage of the job's rank."""
    return job.rank // (job.world_size // job.pipeline)


def as_placed(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A gradient with its parameter's placements: that of an embedding is not sharded."""
    if not isinstance(gradient, DTensor) or not isinstance(parameter, DTensor):
        return gradient
    same = gradient.placements == parameter.placements
    return gradient if same else gradient.redistribute(placements=parameter.placements)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The local shard of a tensor."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor
