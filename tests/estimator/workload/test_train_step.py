"""A workload goes in; its steps run, and report their phases and what each tensor is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import Workload
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job


class Notes:
    """Keeps what a training reports."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.marked: dict[Category, int] = {}

    def begin_step(self, step: int) -> None:
        self.phases.clear()

    def begin_phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    def mark(self, tensor: Any, category: Category, module: str | None = None) -> None:
        self.marked[category] = self.marked.get(category, 0) + isinstance(tensor, torch.Tensor)


def workload() -> Workload:
    return Workload(
        model=nn.Linear(4, 2), batch=(torch.ones(3, 4),), loss=lambda model, batch: model(*batch).square().mean()
    )


def test_a_step_has_its_phases_and_names_its_tensors() -> None:
    # given
    notes = Notes()
    training = Training(Job(model="m", device="cpu"), workload(), notes)
    # when
    training.run()
    # then
    assert notes.phases == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER]
    assert all(notes.marked[one] for one in (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE))


def test_parts_of_a_batch_accumulate_into_the_same_gradients() -> None:
    # given
    notes = Notes()
    training = Training(Job(model="m", device="cpu", batch=2, accumulate=2), workload(), notes)
    # when
    training.step(0)
    # then
    assert notes.phases.count(Phase.BACKWARD) == 2
    assert all(parameter.grad is None for parameter in training.model.parameters())
