"""Order of a pipeline's microbatches on a stage, and the stage that runs them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from tbmem.estimator.workload.train_step import owner
from tbmem.model.category import Category, Phase


def microbatch_order(schedule: str, stage: int, stages: int, parts: int) -> list[tuple[str, int]]:
    """Order of forwards (``'F'``) and backwards (``'B'``) on a stage; ``parts`` is the number of microbatches.

    torch's own tables are not used: for 1F1B the last stage begins with the second microbatch (torch 2.13), and there
    is none for fewer microbatches than stages.
    """
    ahead = parts if schedule == "gpipe" else min(stages - stage - 1, parts)
    forwards, backwards = [("F", part) for part in range(parts)], [("B", part) for part in range(parts)]
    pairs = zip(forwards[ahead:], backwards, strict=False)
    return [*forwards[:ahead], *chain.from_iterable(pairs), *backwards[parts - ahead :]]


class PipelineStage:
    """Keeps the same tensors between a forward and its backward, and from step to step, as torch's own stage.

    Source: ``torch/distributed/pipelining/stage.py`` and ``schedules.py``, with ``step(..., return_outputs=False)``.
    """

    def __init__(self, model: nn.Module, order: list[tuple[str, int]], first: bool, last: bool, observer: Any) -> None:
        self._model, self._order, self._first, self._last, self._observer = model, order, first, last, observer
        self._outputs: dict[int, torch.Tensor] = {}
        self._losses: dict[int, torch.Tensor] = {}
        self._received: dict[int, torch.Tensor] = {}
        self._gradients: dict[int, torch.Tensor] = {}
        self._newest: torch.Tensor | None = None
        """The schedule still references it while the next forward runs."""

    def run(self, batch: Callable[[], Any], hidden: Callable[[], torch.Tensor], loss: Callable[..., Any]) -> None:
        """Run all microbatches of a step.

        Args:
            batch: Creates a microbatch on the device.
            hidden: Creates the hidden states or gradients received from another stage.
            loss: Computes the loss of the model and a microbatch.
        """
        self._observer.begin_phase(Phase.FORWARD)
        self._buffers(hidden)
        for what, part in self._order:
            if what == "F":
                self._observer.begin_phase(Phase.FORWARD)
                self._forward(part, batch, loss)
            else:
                self._observer.begin_phase(Phase.BACKWARD)
                self._backward(part)
        self._newest = None
        if isinstance(self._model, FSDPModule):
            self._send_gradients(self._model)

    def _send_gradients(self, model: Any) -> None:
        """Reduce gradients as FSDP2 does after a backward pass; source: ``perform_reduce_grad`` of torch's stage."""
        for name, parameter in model.named_parameters():
            self._observer.mark(parameter.grad, Category.GRADIENT, owner(name))
        _set_gradient_sync(model, True)
        state = fully_shard.state(model)  # type: ignore[attr-defined]
        for module_state in state._state_ctx.all_states:
            for group in module_state._fsdp_param_groups:
                group.post_backward()
        state._root_post_backward_final_callback()

    def infer(self, batch: Callable[[], Any], hidden: Callable[[], torch.Tensor]) -> None:
        """Run only the forwards, of which nothing is kept."""
        for part in sorted({part for _, part in self._order}):
            inputs = batch()[0]
            if not self._first:
                if part not in self._received:
                    self._receive(self._received, part, hidden)
                inputs = self._received[part]
            self._newest = self._model(inputs)
        self._newest = None

    def _receive(self, buffers: dict[int, torch.Tensor], part: int, hidden: Callable[[], torch.Tensor]) -> None:
        buffers[part] = hidden()
        self._observer.mark(buffers[part], Category.COMMUNICATION)

    def _buffers(self, hidden: Callable[[], torch.Tensor]) -> None:
        """Allocate receive buffers per microbatch in the first step; their gradients stay until the next step."""
        for buffer in self._received.values():
            buffer.grad = None
        parts = {part for _, part in self._order}
        for wanted, buffers in ((not self._first, self._received), (not self._last, self._gradients)):
            for part in sorted(parts - set(buffers)) if wanted else ():
                self._receive(buffers, part, hidden)

    def _forward(self, part: int, batch: Callable[[], Any], loss: Callable[..., Any]) -> None:
        inputs = batch()
        if not self._first:
            inputs = (self._received[part].requires_grad_(), inputs[1])
        if self._last:
            self._losses[part] = loss(lambda tokens: self._output(part, tokens), inputs)
        else:
            self._output(part, inputs[0])

    def _output(self, part: int, inputs: torch.Tensor) -> torch.Tensor:
        self._outputs[part] = self._newest = self._model(inputs)
        return self._outputs[part]

    def _backward(self, part: int) -> None:
        output = self._outputs.pop(part)
        if isinstance(self._model, FSDPModule):
            # unsharded gradients are accumulated over all microbatches, and reduced once
            _set_gradient_sync(self._model, False)
        if self._last:
            torch.autograd.backward(self._losses.pop(part))
            # the graph ends with the backward pass, though the schedule still has its output
            if not output._is_view():
                output.detach_()
        else:
            torch.autograd.backward(output, self._gradients[part])


def _set_gradient_sync(model: FSDPModule, enabled: bool) -> None:
    model.set_is_last_backward(enabled)
    model.set_reshard_after_backward(enabled)
    model.set_requires_gradient_sync(enabled)
