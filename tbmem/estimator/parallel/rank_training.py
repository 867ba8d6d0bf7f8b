"""Training step of one rank: its shard of the model, its communication buffers, its pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tbmem.estimator.parallel.fake_ranks import as_placed, local, stage_of
from tbmem.estimator.parallel.pipeline import PipelineStage, microbatch_order
from tbmem.estimator.parallel.sharding import buckets, copied_parameters, sharded
from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.estimator.workload.decoder import Decoder
from tbmem.estimator.workload.optimizers import HostOptimizer, make_optimizer
from tbmem.estimator.workload.train_step import Observer, Training, moved
from tbmem.estimator.workload.workload import Workload, dtype_of
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job

_ELEMENTWISE = ("adamw", "adam", "sgd", "momentum", "adagrad", "rmsprop", "adamw8bit")
"""Elementwise optimizers, whose step on a shard does not depend on other ranks."""


class RankTraining(Training):
    """The model and the step of one rank."""

    def __init__(self, job: Job, workload: Workload, observer: Observer, tracker: AllocationTracker) -> None:
        """Shard the model without counting memory, as on the meta device; the tracker then counts local shards."""

        def prepare(model: nn.Module) -> nn.Module:
            tracker.paused += 1
            try:
                model = sharded(moved(model, job, workload), job, workload.divided)
            finally:
                tracker.paused -= 1
            for tensor in (*model.parameters(), *model.buffers()):
                tracker.adopt(local(tensor))
            return model

        super().__init__(job, workload, observer, prepare)
        self._buckets = self._ddp_buckets() if job.fsdp == 1 else []
        self._stage = self._pipeline_stage() if job.pipeline > 1 and not workload.divided else None

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

    def _prepare_update(self) -> None:
        for parameter, shard in self._shards.items():
            shard.grad = None if parameter.grad is None else local(as_placed(parameter.grad, parameter))

    def _forget_gradients(self) -> None:
        super()._forget_gradients()
        for shard in self._shards.values():
            shard.grad = None

    def _trained(self) -> Iterable[nn.Parameter]:
        # distributed and plain gradients cannot be clipped together
        return self._shards.values() or super()._trained()

    def _state_of(self, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
        return super()._state_of(optimizer, self._shards.get(parameter, parameter))

    def _ddp_buckets(self) -> list[torch.Tensor]:
        copied = copied_parameters(self.model, self.job)
        tensors = [torch.empty(size, dtype=torch.uint8, device=self.job.device) for size in buckets(copied)]
        for bucket in tensors:
            self.observer.mark(bucket, Category.COMMUNICATION)
        return tensors

    def _pipeline_stage(self) -> PipelineStage:
        job, stage = self.job, stage_of(self.job)
        order = microbatch_order(job.schedule, stage, job.pipeline, job.parts)
        return PipelineStage(self.model, order, stage == 0, stage == job.pipeline - 1, self.observer)

    def _infer(self) -> None:
        if self._stage is None:
            super()._infer()
            return
        self.observer.begin_phase(Phase.FORWARD)
        with torch.no_grad(), self._autocast():
            self._stage.infer(self._batch, self._hidden)

    def _forward_and_backward(self) -> None:
        if self._stage is None:
            super()._forward_and_backward()
            return
        # initializes the scaler on all stages: only the last one scales a loss
        self.scaler.scale(torch.zeros((), device=self.job.device))
        with self._autocast():
            self._stage.run(self._batch, self._hidden, self._scaled_loss)
        self._mark_gradients()

    def _scaled_loss(self, model: Any, batch: Any) -> torch.Tensor:
        loss: torch.Tensor = self.scaler.scale(self.workload.loss(model, batch))
        return loss

    def _hidden(self) -> torch.Tensor:
        """Hidden states received from the previous stage."""
        numbers = self.workload.batch[0]
        assert isinstance(self.model, Decoder)
        dtype = dtype_of(self.job.amp) if self.job.amp is not None else next(self.model.parameters()).dtype
        return torch.empty(*numbers.shape, self.model.shape.width, dtype=dtype, device=self.job.device)
