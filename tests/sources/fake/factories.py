"""Models that the tests' jobs name; each is built in a child process."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def linear(batch: int = 4) -> Any:
    """One layer whose bytes can be worked out by hand: 256 KiB of weights."""
    return nn.Linear(256, 256, bias=False), torch.zeros(batch, 256), lambda output, batch: output.sum()


def layers(batch: int = 8) -> Any:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)])
    return model, torch.zeros(batch, 256), lambda output, batch: output.square().mean()


def copied() -> Any:
    """Layers that are deep copies of one."""
    layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return model, torch.zeros(2, 16, 64), lambda output, batch: output.sum()


class Chooses(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values[values > 0].sum()


def data_dependent() -> Any:
    return nn.Sequential(nn.Linear(4, 4), Chooses()), torch.zeros(2, 4)


def raises() -> Any:
    raise RuntimeError("the data set is not here")


def only_model() -> Any:
    return nn.Linear(2, 2)


def no_loss() -> Any:
    return nn.Linear(2, 2), torch.zeros(3, 2)


NOT_A_FUNCTION = 3
