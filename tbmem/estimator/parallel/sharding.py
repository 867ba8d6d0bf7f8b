"""Shards a model: what one rank holds of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from tbmem.errors import UsageError
from tbmem.estimator.parallel.fake_ranks import local, mesh_of, stage_of
from tbmem.estimator.workload.decoder import Decoder, MoEFeedForward
from tbmem.estimator.workload.train_step import transformer_layers
from tbmem.estimator.workload.workload import dtype_of
from tbmem.model.job import Job
from tbmem.units import MIB

_FIRST_BUCKET, _BUCKET = 1 * MIB, 25 * MIB
_COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
_ROWS = ("attention.out", "feed_forward.down")


def sharded(model: nn.Module, job: Job, divided: bool = False) -> nn.Module:
    """The job's parallelism applied to a model.

    ``divided`` says that the model already is one rank's part by tensor, pipeline and expert parallelism of its own.
    """
    mesh = mesh_of(job)
    if divided:
        if job.fsdp > 1:
            _shard_states(model, job, mesh)
        return model
    if job.pipeline > 1:
        _keep_stage(model, job)
    if job.expert > 1:
        _keep_experts(model, job, mesh)
    if job.tensor > 1:
        _divide_layers(model, job, mesh)
    if job.fsdp > 1:
        _shard_states(model, job, mesh)
    return model


def copied_parameters(model: nn.Module, job: Job) -> list[nn.Parameter]:
    """Parameters of a rank that other ranks hold as well: all of a replica, or all outside of experts."""
    if job.replicate > 1:
        return list(model.parameters())
    if job.expert == 1:
        return []
    experts = {id(parameter) for parameter in _experts(model)}
    return [parameter for parameter in model.parameters() if id(parameter) not in experts] if experts else []


def _experts(model: nn.Module) -> list[nn.Parameter]:
    parts = [part for part in model.modules() if isinstance(part, MoEFeedForward)]
    return [parameter for part in parts for parameter in part.experts()]


def buckets(parameters: Iterable[nn.Parameter]) -> list[int]:
    """Sizes in bytes of DDP's gradient buckets.

    Source: ``torch/nn/parallel/distributed.py``, ``bucket_cap_mb`` and the first bucket of 1 MiB.
    """
    sizes, filled, limit = [], 0, _FIRST_BUCKET
    for parameter in reversed([parameter for parameter in parameters if parameter.requires_grad]):
        filled += local(parameter).numel() * parameter.element_size()
        if filled >= limit:
            sizes.append(filled)
            filled, limit = 0, _BUCKET
    return [*sizes, filled] if filled else sizes


def _decoder(model: nn.Module, flag: str) -> Decoder:
    if isinstance(model, Decoder):
        return model
    raise UsageError(
        f"{flag} divides the built-in decoders only (llama-7b, ...), not a config's or a factory's model; let a"
        " factory build what one rank holds (it may ask for rank, world_size, tp, pp, ep) and return a dict with"
        ' "divided": True'
    )


def _keep_stage(model: nn.Module, job: Job) -> None:
    decoder, stage = _decoder(model, "--pp"), stage_of(job)
    layers = list(decoder.layers)
    if len(layers) % job.pipeline:
        raise UsageError(f"--pp {job.pipeline}: {len(layers)} layers cannot be divided evenly")
    each = len(layers) // job.pipeline
    decoder.layers = nn.ModuleList(layers[stage * each : (stage + 1) * each])
    decoder.first, decoder.last = stage == 0, stage == job.pipeline - 1
    if not decoder.first:
        del decoder.positions
        decoder.positions = None
        decoder.tokens = nn.Identity()
    if not decoder.last:
        decoder.norm, decoder.output = nn.Identity(), nn.Identity()


def _keep_experts(model: nn.Module, job: Job, mesh: DeviceMesh) -> None:
    parts = [part for part in model.modules() if isinstance(part, MoEFeedForward)]
    if not parts:
        raise UsageError(
            f"--ep {job.expert}: {job.model} has no experts of a built-in decoder to divide; leave --ep out, or let the"
            ' factory ask for ep, build what one rank holds and return a dict with "divided": True'
        )
    for part in parts:
        part.divide(mesh["expert"].get_group(), job.expert, job.imbalance)


def _divide_layers(model: nn.Module, job: Job, mesh: DeviceMesh) -> None:
    decoder = _decoder(model, "--tp")
    kv_heads = decoder.shape.kv_heads or decoder.shape.heads
    if kv_heads % job.tensor:
        raise UsageError(f"--tp {job.tensor}: {kv_heads} heads cannot be divided evenly")
    for layer in decoder.layers:
        names = {name for name, _ in layer.named_modules()}
        plan: dict[str, Any] = {name: ColwiseParallel() for name in _COLUMNS if name in names}
        plan |= {name: RowwiseParallel() for name in _ROWS if name in names}
        parallelize_module(layer, mesh["tensor"], plan)
        if isinstance(layer.feed_forward, MoEFeedForward):
            layer.feed_forward.slice(mesh["tensor"].get_group(), job.tensor)
    ends: dict[str, ParallelStyle] = {
        # other stages of a pipeline do not have them
        name: style
        for name, style, kind in (
            ("tokens", RowwiseParallel(input_layouts=Replicate()), nn.Embedding),
            ("output", ColwiseParallel(output_layouts=Replicate()), nn.Linear),
        )
        if isinstance(getattr(decoder, name), kind)
    }
    if ends:
        parallelize_module(decoder, mesh["tensor"], ends)
    if decoder.shape.tied and len(ends) == 2:
        decoder.output.weight = decoder.tokens.weight


def _shard_states(model: nn.Module, job: Job, mesh: DeviceMesh) -> None:
    """Apply FSDP2 to each layer and then to the model; HSDP if the group is replicated.

    Experts whose number is not a multiple of the ranks are sharded along the second dimension, as in torchtitan.
    """

    def placement(parameter: nn.Parameter) -> Shard | None:
        length, width = (*parameter.shape, 1, 1)[:2]
        across = id(parameter) in experts and length % job.fsdp and not width % job.fsdp
        return Shard(1) if across else None

    experts = {id(parameter) for parameter in _experts(model)}
    group = mesh["replicate", "fsdp"] if job.replicate > 1 else mesh["fsdp"]
    policy = MixedPrecisionPolicy()
    if job.amp is not None:
        policy = MixedPrecisionPolicy(param_dtype=dtype_of(job.amp), reduce_dtype=torch.float32)
    for layer in transformer_layers(model):
        fully_shard(layer, mesh=group, mp_policy=policy, shard_placement_fn=placement)
    fully_shard(model, mesh=group, mp_policy=policy)
