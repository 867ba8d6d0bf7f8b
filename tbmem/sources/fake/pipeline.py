"""A schedule and a stage go in; the order of its microbatches, and the stage that runs them, come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tbmem.model.category import Category, Phase

Order = Iterator[tuple[str, int]]


def order_of(schedule: str, stage: int, stages: int, parts: int) -> Order:
    """Forwards (``'F'``) and backwards (``'B'``) of the microbatches, as a stage runs them.

    Args:
        schedule: ``'gpipe'``: all forwards first; ``'1f1b'``: as soon as there is something to go back for.
        stage: Which, from 0.
        stages: How many.
        parts: How many microbatches.
    """
    ahead = parts if schedule == "gpipe" else min(stages - stage - 1, parts)
    for part in range(ahead):
        yield "F", part
    for part in range(parts - ahead):
        yield "F", ahead + part
        yield "B", part
    for part in range(parts - ahead, parts):
        yield "B", part


class PipelineStage:
    """Holds what a stage keeps between a forward and its backward."""

    def __init__(self, model: nn.Module, order: list[tuple[str, int]], first: bool, last: bool, watcher: Any) -> None:
        """A stage at rest.

        Args:
            model: The stage's part of the model.
            order: See :func:`order_of`.
            first: Whether tokens come in.
            last: Whether the loss comes out.
            watcher: Who is told.
        """
        self._model, self._order, self._first, self._last, self._watcher = model, order, first, last, watcher
        self._inputs: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, torch.Tensor] = {}
        self._received: dict[int, torch.Tensor] = {}

    def run(self, batch: Callable[[], Any], hidden: Callable[[], torch.Tensor], loss: Callable[..., Any]) -> None:
        """All microbatches of a step.

        Args:
            batch: Makes a microbatch on the device.
            hidden: Makes what comes from the stage before, for one microbatch.
            loss: Of the model and a microbatch.
        """
        for what, part in self._order:
            if what == "F":
                self._watcher.begin(Phase.FORWARD)
                self._forward(part, batch, hidden, loss)
            else:
                self._watcher.begin(Phase.BACKWARD)
                self._backward(part)

    def _forward(
        self, part: int, batch: Callable[[], Any], hidden: Callable[[], torch.Tensor], loss: Callable[..., Any]
    ) -> None:
        given = batch()
        if not self._first:
            # torch's PipelineStage keeps a buffer for each microbatch from the first step on
            if part not in self._received:
                self._received[part] = hidden()
                self._watcher.mark(self._received[part], Category.COMMUNICATION)
            given = (self._received[part].detach().requires_grad_(), given[1])
            self._inputs[part] = given[0]
        self._outputs[part] = loss(self._model, given) if self._last else self._model(given[0])

    def _backward(self, part: int) -> None:
        output = self._outputs.pop(part)
        gradient = None
        if not self._last:
            gradient = torch.empty_like(output)
            self._watcher.mark(gradient, Category.COMMUNICATION)
        torch.autograd.backward(output, gradient)
        self._inputs.pop(part, None)
