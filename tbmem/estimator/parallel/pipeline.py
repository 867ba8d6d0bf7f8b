"""The microbatches of a pipeline: their order on a stage, and the stage that runs them."""

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
    """Forwards (``'F'``) and backwards (``'B'``) of the microbatches, as a stage runs them.

    Not torch's own tables: of 1F1B that of the last stage begins with the second microbatch (torch 2.13), and there is
    none for fewer microbatches than stages.

    Args:
        schedule: ``'gpipe'``: all forwards first; ``'1f1b'``: as soon as there is something to go back for.
        stage: Which, from 0.
        stages: How many.
        parts: How many microbatches.
    """
    ahead = parts if schedule == "gpipe" else min(stages - stage - 1, parts)
    forwards, backwards = [("F", part) for part in range(parts)], [("B", part) for part in range(parts)]
    pairs = zip(forwards[ahead:], backwards, strict=False)
    return [*forwards[:ahead], *chain.from_iterable(pairs), *backwards[parts - ahead :]]


class PipelineStage:
    """Holds what a stage keeps between a forward and its backward, and from step to step, as torch's own does.

    Source: ``torch/distributed/pipelining/stage.py`` and ``schedules.py``, with ``step(..., return_outputs=False)``.
    """

    def __init__(self, model: nn.Module, order: list[tuple[str, int]], first: bool, last: bool, observer: Any) -> None:
        """A stage at rest.

        Args:
            model: The stage's part of the model.
            order: See :func:`microbatch_order`.
            first: Whether tokens come in.
            last: Whether the loss comes out.
            observer: Who is told.
        """
        self._model, self._order, self._first, self._last, self._observer = model, order, first, last, observer
        self._outputs: dict[int, torch.Tensor] = {}
        self._losses: dict[int, torch.Tensor] = {}
        self._received: dict[int, torch.Tensor] = {}
        self._gradients: dict[int, torch.Tensor] = {}
        self._newest: torch.Tensor | None = None
        """The schedule still has it in its hand while the next forward runs."""

    def run(self, batch: Callable[[], Any], hidden: Callable[[], torch.Tensor], loss: Callable[..., Any]) -> None:
        """All microbatches of a step.

        Args:
            batch: Makes a microbatch on the device.
            hidden: Makes what one microbatch gets from the stage before, or back from the stage behind.
            loss: Of the model and a microbatch.
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
        """What FSDP2 does after a backward pass; source: ``perform_reduce_grad`` of torch's stage."""
        for name, parameter in model.named_parameters():
            self._observer.mark(parameter.grad, Category.GRADIENT, owner(name))
        _set_sending(model, True)
        state = fully_shard.state(model)  # type: ignore[attr-defined]
        for one in state._state_ctx.all_states:
            for group in one._fsdp_param_groups:
                group.post_backward()
        state._root_post_backward_final_callback()

    def infer(self, batch: Callable[[], Any], hidden: Callable[[], torch.Tensor]) -> None:
        """Only the forwards, of which nothing is kept."""
        for part in sorted({part for _, part in self._order}):
            given = batch()[0]
            if not self._first:
                if part not in self._received:
                    self._receive(self._received, part, hidden)
                given = self._received[part]
            self._newest = self._model(given)
        self._newest = None

    def _receive(self, buffers: dict[int, torch.Tensor], part: int, hidden: Callable[[], torch.Tensor]) -> None:
        buffers[part] = hidden()
        self._observer.mark(buffers[part], Category.COMMUNICATION)

    def _buffers(self, hidden: Callable[[], torch.Tensor]) -> None:
        """One each way for each microbatch, made in the first step; their gradients stay until the next one begins."""
        for buffer in self._received.values():
            buffer.grad = None
        parts = {part for _, part in self._order}
        for wanted, buffers in ((not self._first, self._received), (not self._last, self._gradients)):
            for part in sorted(parts - set(buffers)) if wanted else ():
                self._receive(buffers, part, hidden)

    def _forward(self, part: int, batch: Callable[[], Any], loss: Callable[..., Any]) -> None:
        given = batch()
        if not self._first:
            given = (self._received[part].requires_grad_(), given[1])
        if self._last:
            self._losses[part] = loss(lambda inputs: self._output(part, inputs), given)
        else:
            self._output(part, given[0])

    def _output(self, part: int, inputs: torch.Tensor) -> torch.Tensor:
        self._outputs[part] = self._newest = self._model(inputs)
        return self._outputs[part]

    def _backward(self, part: int) -> None:
        output = self._outputs.pop(part)
        if isinstance(self._model, FSDPModule):
            # gradients of all microbatches are summed up whole, and sent once
            _set_sending(self._model, False)
        if self._last:
            torch.autograd.backward(self._losses.pop(part))
            # the graph ends with the backward pass, though the schedule still has its output
            if not output._is_view():
                output.detach_()
        else:
            torch.autograd.backward(output, self._gradients[part])


def _set_sending(model: FSDPModule, sending: bool) -> None:
    model.set_is_last_backward(sending)
    model.set_reshard_after_backward(sending)
    model.set_requires_gradient_sync(sending)
