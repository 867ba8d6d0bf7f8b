"""Training step of one rank: its shard of the model, and its communication buffers."""

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
from tbmem.estimator.parallel.fake_ranks import as_placed, local, mesh_of, stage_of
from tbmem.estimator.tracker.tracker import AllocationTracker, counting
from tbmem.estimator.workload.decoder import Decoder, MoEFeedForward
from tbmem.estimator.workload.layers import transformer_layers
from tbmem.estimator.workload.optimizers import HostOptimizer, make_optimizer
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import Workload, dtype_of
from tbmem.model.category import Category
from tbmem.model.job import Job
from tbmem.units import MIB

_FIRST_BUCKET, _BUCKET = 1 * MIB, 25 * MIB
_COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
_ROWS = ("attention.out", "feed_forward.down")
_ELEMENTWISE = ("adamw", "adam", "sgd", "momentum", "adagrad", "rmsprop", "adamw8bit")
"""Elementwise optimizers, whose step on a shard does not depend on other ranks."""


class RankTraining(Training):
    """The model and the step of one rank."""

    def __init__(self, job: Job, workload: Workload, tracker: AllocationTracker) -> None:
        self._tracker = tracker
        super().__init__(job, workload, tracker)
        copied = _copied_parameters(self.model, job) if job.fsdp == 1 else []
        self._copied = [parameter for parameter in copied if parameter.requires_grad]
        self._arrived: list[torch.Tensor] = []
        """Parameters in the order of their gradients in the first step."""
        self._buckets: list[torch.Tensor] = []
        """DDP's, kept alive from step to step."""
        self._fill_buckets([sum(map(_gradient_bytes, self._copied))])

    def step(self, number: int) -> None:
        """Run one step; DDP has one bucket in the first, and divides it at the beginning of the second.

        Source: ``torch/nn/parallel/distributed.py`` (``_ddp_init_helper``), and ``Reducer::rebuild_buckets`` of
        ``torch/csrc/distributed/c10d/reducer.cpp``.
        """
        hooks: list[Any] = []
        if self._copied and number == 0:
            tensors: list[Any] = self._copied
            hooks = [one.register_post_accumulate_grad_hook(self._arrived.append) for one in tensors]
        elif self._arrived:
            hooks = [self.model.register_forward_pre_hook(self._divide_bucket)]
        super().step(number)
        for hook in hooks:
            hook.remove()

    def _divide_bucket(self, *_: Any) -> None:
        if self._arrived:
            sizes, self._arrived = _bucket_sizes(self._arrived), []
            self._fill_buckets(sizes)

    def _fill_buckets(self, sizes: Iterable[int]) -> None:
        self._buckets.clear()
        for size in filter(None, sizes):
            self._buckets.append(torch.empty(size, dtype=torch.uint8, device=self.job.device))
            self.observer.mark(self._buckets[-1], Category.COMMUNICATION)

    def _placed(self, model: nn.Module) -> nn.Module:
        """Shard the model without counting memory, as on the meta device; then count its local shards."""
        with counting(self._tracker, "paused"):
            model = _sharded(super()._placed(model), self.job, self.workload.divided)
        for tensor in (*model.parameters(), *model.buffers()):
            self._tracker.adopt(local(tensor))
        return model

    def _optimizer(self) -> torch.optim.Optimizer | HostOptimizer | None:
        job, workload = self.job, self.workload
        self._shards: dict[nn.Parameter, nn.Parameter] = {}
        if job.inference or job.offload or workload.optimizer or workload.step or job.optimizer not in _ELEMENTWISE:
            return super()._optimizer()
        # plain tensors: same blocks as with distributed tensors, without the cost of sharding propagation
        self._shards = {
            parameter: nn.Parameter(local(parameter).detach())
            for parameter in self.model.parameters()
            if parameter.requires_grad
        }
        return make_optimizer(job, self._shards.values())

    def _update(self) -> None:
        for parameter, shard in self._shards.items():
            shard.grad = None if parameter.grad is None else local(as_placed(parameter.grad, parameter))
        super()._update()
        for shard in self._shards.values():
            shard.grad = None

    def _trained(self) -> Iterable[nn.Parameter]:
        # distributed and plain gradients cannot be clipped together
        return self._shards.values() or super()._trained()

    def _state_of(self, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
        return super()._state_of(optimizer, self._shards.get(parameter, parameter))


def _sharded(model: nn.Module, job: Job, divided: bool) -> nn.Module:
    """Shard a model; a divided one already is one rank's part by tensor, pipeline and expert parallelism of its own."""
    mesh = mesh_of(job)
    if job.pipeline > 1 and not divided:
        _keep_stage(model, job)
    if job.expert > 1 and not divided:
        _keep_experts(model, job, mesh)
    if job.tensor > 1 and not divided:
        _divide_layers(model, job, mesh)
    if job.fsdp > 1:
        _shard_states(model, job, mesh)
    return model


def _copied_parameters(model: nn.Module, job: Job) -> list[nn.Parameter]:
    """Parameters of a rank that other ranks hold as well: all of a replica, or all outside of experts."""
    if job.replicate > 1:
        return list(model.parameters())
    if job.expert == 1:
        return []
    experts = _experts(model)
    return [parameter for parameter in model.parameters() if id(parameter) not in experts] if experts else []


def _experts(model: nn.Module) -> set[int]:
    """Identities of the parameters of experts."""
    layers = [part for part in model.modules() if isinstance(part, MoEFeedForward)]
    return {id(parameter) for layer in layers for parameter in (layer.gate, layer.up, layer.down)}


def _gradient_bytes(parameter: torch.Tensor) -> int:
    return local(parameter).numel() * parameter.element_size()


def _bucket_sizes(parameters: Iterable[torch.Tensor]) -> list[int]:
    """Sizes in bytes of DDP's gradient buckets, of parameters in the order of their gradients.

    Source: ``torch/nn/parallel/distributed.py``, ``bucket_cap_mb`` and the first bucket of 1 MiB.
    """
    sizes, filled, limit = [], 0, _FIRST_BUCKET
    for parameter in dict.fromkeys(parameters):
        filled += _gradient_bytes(parameter)
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
    if stage > 0:
        del decoder.positions
        decoder.positions = None
        decoder.tokens = nn.Identity()
    if stage < job.pipeline - 1:
        decoder.norm, decoder.output = nn.Identity(), nn.Identity()


def _keep_experts(model: nn.Module, job: Job, mesh: DeviceMesh) -> None:
    layers = [part for part in model.modules() if isinstance(part, MoEFeedForward)]
    if not layers:
        raise UsageError(
            f"--ep {job.expert}: {job.model} has no experts of a built-in decoder to divide; leave --ep out, or let the"
            ' factory ask for ep, build what one rank holds and return a dict with "divided": True'
        )
    for layer in layers:
        layer.divide(mesh["expert"].get_group(), job.expert, job.imbalance)


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
    ends: dict[str, ParallelStyle] = {}  # other stages of a pipeline do not have them
    if isinstance(decoder.tokens, nn.Embedding):
        ends["tokens"] = RowwiseParallel(input_layouts=Replicate())
    if isinstance(decoder.output, nn.Linear):
        ends["output"] = ColwiseParallel(output_layouts=Replicate())
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

    experts = _experts(model)
    group = mesh["replicate", "fsdp"] if job.replicate > 1 else mesh["fsdp"]
    policy = MixedPrecisionPolicy()
    if job.amp is not None:
        policy = MixedPrecisionPolicy(param_dtype=dtype_of(job.amp), reduce_dtype=torch.float32)
    for layer in transformer_layers(model):
        fully_shard(layer, mesh=group, mp_policy=policy, shard_placement_fn=placement)
    fully_shard(model, mesh=group, mp_policy=policy)
