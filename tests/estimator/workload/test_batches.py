"""How batches of each form reach the model."""

from __future__ import annotations

from collections import UserDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tbmem.estimator.workload.batches import call_model

X, Y = torch.zeros(2), torch.ones(2)


class _One(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"x": x}


class _Two(nn.Module):
    def forward(self, x: Any, y: Any, *, scale: Any = None) -> Any:
        return {"x": x, "y": y, "scale": scale}


class _Masked(nn.Module):
    def forward(self, x: Any, mask: Any = None) -> Any:
        return {"x": x, "mask": mask}


class _Any(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return {"args": args, **kwargs}


class _Pair(NamedTuple):
    inputs: Any
    targets: Any


@pytest.mark.parametrize(
    ("model", "batch", "expected"),
    [
        (_One(), X, {"x": X}),
        (_One(), {"x": X}, {"x": X}),
        (_One(), UserDict(x=X), {"x": X}),
        (_One(), (X,), {"x": X}),
        (_One(), ({"boxes": Y},), {"x": {"boxes": Y}}),
        (_Two(), (X, Y), {"x": X, "y": Y, "scale": None}),
        (_Two(), [X, Y], {"x": X, "y": Y, "scale": None}),
        (_Two(), (X, Y, {"scale": 2}), {"x": X, "y": Y, "scale": 2}),
        (_Two(), (X, {"y": Y}), {"x": X, "y": Y, "scale": None}),
        (_Two(), (X, {"labels": Y}), {"x": X, "y": {"labels": Y}, "scale": None}),
        (_Masked(), (X, {"mask": Y}), {"x": X, "mask": Y}),
        (_Any(), (X, Y), {"args": (X, Y)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_loss", [False, True])
def test_each_form_of_batch(model: nn.Module, batch: Any, expected: dict[str, Any], has_loss: bool) -> None:
    assert call_model(model, batch, has_loss=has_loss) == expected


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], _Pair(X, Y), {"x": X, "labels": Y}], ids=str)
def test_what_forward_does_not_take_is_left_to_the_loss(batch: Any) -> None:
    assert call_model(_One(), batch, has_loss=True) == {"x": X}
    # and without a loss nobody would take it
    with pytest.raises(TypeError):
        call_model(_One(), batch)


def test_a_model_that_takes_anything_gets_all() -> None:
    assert call_model(_Any(), (X, Y), has_loss=True) == {"args": (X, Y)}
    assert call_model(_Any(), {"x": X, "labels": Y}, has_loss=True) == {"args": (), "x": X, "labels": Y}
