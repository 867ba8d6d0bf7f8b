"""Training step of one stage of a pipeline, and the order of its microbatches."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils._pytree import tree_leaves

from tbmem.estimator.parallel.fake_ranks import stage_of
from tbmem.estimator.parallel.sharding import RankTraining
from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.estimator.workload.train_step import owner
from tbmem.estimator.workload.workload import Workload, dtype_of
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job


def microbatch_order(schedule: str, stage: int, stages: int, parts: int) -> list[tuple[str, int]]:
    """Order of forwards (``'F'``) and backwards (``'B'``) on a stage; ``parts`` is the number of microbatches.

    torch's own tables are not used: for 1F1B the last stage begins with the second microbatch (torch 2.13), and there
    is none for fewer microbatches than stages.
    """
    ahead = parts if schedule == "gpipe" else min(stages - stage - 1, parts)
    forwards, backwards = [("F", part) for part in range(parts)], [("B", part) for part in range(parts)]
    pairs = zip(forwards[ahead:], backwards, strict=False)
    return [*forwards[:ahead], *chain.from_iterable(pairs), *backwards[parts - ahead :]]


def _tokens(batch: Any) -> torch.Tensor:
    """What the first stage takes of a batch: its first tensor."""
    first: torch.Tensor = next(leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor))
    return first


class PipelineTraining(RankTraining):
    """Keeps the same tensors between a forward and its backward, and from step to step, as torch's own stage.

    Source: ``torch/distributed/pipelining/stage.py`` and ``schedules.py``, with ``step(..., return_outputs=False)``.
    """

    def __init__(self, job: Job, workload: Workload, tracker: AllocationTracker) -> None:
        super().__init__(job, workload, tracker)
        stage = stage_of(job)
        self._order = microbatch_order(job.schedule, stage, job.pipeline, job.parts)
        self._first, self._last = stage == 0, stage == job.pipeline - 1
        # each by its microbatch
        self._outputs: dict[int, torch.Tensor] = {}
        self._losses: dict[int, torch.Tensor] = {}
        self._received: dict[int, torch.Tensor] = {}
        self._gradients: dict[int, torch.Tensor] = {}
        self._newest: torch.Tensor | None = None
        """Keeps alive what torch's schedule still references while the next forward runs."""

    def _forward_and_backward(self) -> None:
        # initializes the scaler on all stages: only the last one scales a loss
        self.scaler.scale(torch.zeros((), device=self.job.device))
        with self._autocast():
            self._run_microbatches()
        self._mark_gradients()

    def _run_microbatches(self) -> None:
        self.observer.begin_phase(Phase.FORWARD)
        self._allocate_buffers()
        for kind, part in self._order:
            if kind == "F":
                self.observer.begin_phase(Phase.FORWARD)
                self._forward(part)
            else:
                self.observer.begin_phase(Phase.BACKWARD)
                self._backward(part)
        self._newest = None
        if isinstance(self.model, FSDPModule):
            self._reduce_gradients()

    def _reduce_gradients(self) -> None:
        """Reduce gradients as FSDP2 does after a backward pass; source: ``perform_reduce_grad`` of torch's stage."""
        for name, parameter in self.model.named_parameters():
            self.observer.mark(parameter.grad, Category.GRADIENT, owner(name))
        self._set_gradient_sync(True)
        state = fully_shard.state(self.model)  # type: ignore[attr-defined]
        for module_state in state._state_ctx.all_states:
            for group in module_state._fsdp_param_groups:
                group.post_backward()
        state._root_post_backward_final_callback()

    def _set_gradient_sync(self, enabled: bool) -> None:
        model: Any = self.model
        model.set_is_last_backward(enabled)
        model.set_reshard_after_backward(enabled)
        model.set_requires_gradient_sync(enabled)

    def _infer(self) -> None:
        self.observer.begin_phase(Phase.FORWARD)
        with self._without_gradients(), self._autocast():
            for part in range(self.job.parts):
                inputs = _tokens(self._batch())
                if not self._first:
                    if part not in self._received:
                        self._receive(self._received, part)
                    inputs = self._received[part]
                self._newest = self.model(inputs)
            self._newest = None

    def _receive(self, buffers: dict[int, torch.Tensor], part: int) -> None:
        """Allocate a buffer for the hidden states or the gradients that another stage sends."""
        model: Any = self.model
        dtype = dtype_of(self.job.amp) if self.job.amp is not None else next(model.parameters()).dtype
        shape = (*_tokens(self.workload.batch).shape, model.shape.width)
        buffers[part] = torch.empty(shape, dtype=dtype, device=self.job.device)
        self.observer.mark(buffers[part], Category.COMMUNICATION)

    def _allocate_buffers(self) -> None:
        """Allocate buffers per microbatch in the first step; their gradients stay until the next step."""
        for buffer in self._received.values():
            buffer.grad = None
        for wanted, buffers in ((not self._first, self._received), (not self._last, self._gradients)):
            for part in range(self.job.parts) if wanted and not buffers else ():
                self._receive(buffers, part)

    def _forward(self, part: int) -> None:
        batch = self._batch()
        inputs = _tokens(batch) if self._first else self._received[part].requires_grad_()
        if self._last:
            loss: Any = self.workload.loss
            # the loss has the batch of its own, the model what the stage before sent
            output = lambda *_, **__: self._output(part, inputs)  # noqa: E731
            self._losses[part] = self.scaler.scale(loss(output, batch))
        else:
            self._output(part, inputs)

    def _output(self, part: int, inputs: torch.Tensor) -> torch.Tensor:
        self._outputs[part] = self._newest = self.model(inputs)
        return self._outputs[part]

    def _backward(self, part: int) -> None:
        output = self._outputs.pop(part)
        if isinstance(self.model, FSDPModule):
            # unsharded gradients are accumulated over all microbatches, and reduced once
            self._set_gradient_sync(False)
        if self._last:
            torch.autograd.backward(self._losses.pop(part))
            # the graph ends with the backward pass, though the schedule still has its output
            if not output._is_view():
                output.detach_()
        else:
            torch.autograd.backward(output, self._gradients[part])
