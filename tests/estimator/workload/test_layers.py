"""A model goes in; the layers that it is made of come out, of each of its halves."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from tbmem.estimator.workload.layers import transformer_layers


class Block(nn.Module):
    """A layer with submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)


class Mixture(Block):
    """A block with a list of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Block(), Block()])


class Model(nn.Module):
    """Parts as attributes."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def blocks(count: int) -> list[nn.Module]:
    return [Block() for _ in range(count)]


def stage(count: int = 2) -> nn.Module:
    return nn.Sequential(*blocks(count))


LISTS: list[tuple[dict[str, list[nn.Module]], int]] = [
    ({"encoder": blocks(2), "decoder": blocks(3)}, 5),
    ({"layers": [Mixture() for _ in range(4)]}, 4),
    ({"layers": [Block(), Mixture(), Block(), Mixture()]}, 4),
    ({"layers": [nn.Linear(2, 2) for _ in range(3)]}, 3),
    ({"layers": blocks(2), "heads": [nn.Linear(2, 2) for _ in range(3)]}, 2),
    ({"layers": [nn.GELU() for _ in range(3)]}, 0),
    ({"layers": [Block(), nn.Linear(2, 2)]}, 0),
    ({"layers": [nn.ModuleList([Block(), Mixture()]) for _ in range(3)]}, 6),
]


@pytest.mark.parametrize(("parts", "count"), LISTS)
def test_layers_are_those_of_all_lists(parts: dict[str, Any], count: int) -> None:
    # given
    model = Model(**{name: nn.ModuleList(layers) for name, layers in parts.items()})
    # when
    layers = transformer_layers(model)
    # then
    assert len(layers) == count
    assert all(any(layer is one for one in layers) for layer in parts.get("encoder", ()))


MODELS: dict[str, tuple[nn.Module, int]] = {
    "a dictionary by number": (nn.ModuleDict({"0": Block(), "1": Mixture(), "2": Block()}), 3),
    "a dictionary by name": (
        nn.ModuleDict({"wte": nn.Linear(2, 2), "h": nn.ModuleList(blocks(3)), "head": Block()}),
        3,
    ),
    "a sequence with both ends": (nn.Sequential(nn.Linear(2, 2), *blocks(3), nn.Linear(2, 2)), 3),
    "a sequence of unlike modules": (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 0),
    "numbered attributes": (Model(stem=nn.Linear(2, 2), layer1=Block(), layer2=Mixture(), head=Block()), 2),
    "numbered stages of blocks": (Model(layer1=stage(2), layer2=stage(3)), 5),
    "numbered stages of unlike modules": (
        Model(**{f"layer{number}": nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for number in range(3)}),
        3,
    ),
    "numbered matrices": (Model(fc1=nn.Linear(2, 2), fc2=nn.Linear(2, 2)), 0),
    "two towers": (Model(encoder=nn.ModuleList(blocks(2)), decoder=Model(layers=nn.ModuleList(blocks(3)))), 5),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_found_wherever_a_model_keeps_them(name: str) -> None:
    # given
    model, count = MODELS[name]
    # when
    layers = transformer_layers(Model(model=model))
    # then
    assert len(layers) == count


def test_a_layer_that_is_in_two_lists_is_one() -> None:
    # given
    shared = blocks(2)
    # when
    layers = transformer_layers(Model(first=nn.ModuleList(shared), second=nn.Sequential(*shared)))
    # then
    assert len(layers) == 2
