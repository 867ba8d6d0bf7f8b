"""A small training and a clock that only moves when told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def train_step() -> Callable[[], None]:
    """One step of a small training."""
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
