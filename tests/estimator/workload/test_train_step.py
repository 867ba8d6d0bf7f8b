"""A model goes in; the layers that it is made of come out, of each of its halves."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from tbmem.estimator.workload.train_step import transformer_layers


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.GELU())


def mixture() -> nn.Module:
    """A block with a list of its own."""
    return nn.ModuleDict({"experts": nn.ModuleList([block(), block()])})


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        ({"encoder": [block() for _ in range(2)], "decoder": [block() for _ in range(3)]}, 5),
        ({"layers": [mixture() for _ in range(4)]}, 4),
        ({"layers": [nn.Linear(2, 2) for _ in range(3)]}, 3),
        ({"layers": [block() for _ in range(2)], "heads": [nn.Linear(2, 2) for _ in range(3)]}, 2),
        ({"layers": [nn.GELU() for _ in range(3)]}, 0),
        ({"layers": [block(), nn.Linear(2, 2)]}, 0),
    ],
)
def test_layers_are_those_of_all_lists_of_like_modules(parts: dict[str, Any], count: int) -> None:
    model = nn.ModuleDict({name: nn.ModuleList(layers) for name, layers in parts.items()})

    layers = transformer_layers(model)

    assert len(layers) == count
    assert all(any(layer is one for one in layers) for layer in parts.get("encoder", ()))


def test_a_layer_that_is_in_two_lists_is_one() -> None:
    shared = [block(), block()]

    assert len(transformer_layers(nn.ModuleList([nn.ModuleList(shared), nn.Sequential(*shared), nn.Identity()]))) == 2
