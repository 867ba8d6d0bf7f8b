"""Which module runs, and which one made a node of the autograd graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tbmem.estimator.tracker.module_stack import ModuleStack


class Probe(nn.Module):
    """Notes the path of the running module."""

    def __init__(self, modules: ModuleStack, seen: list[str], fails: bool = False) -> None:
        super().__init__()
        self.tracked, self.seen, self.fails = modules, seen, fails

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.tracked.current)
        if self.fails:
            raise ValueError("stop")
        result = values * 2
        self.tracked.record_nodes(lambda: len(self.seen))
        return result


def _model(modules: ModuleStack, seen: list[str], **last: Any) -> nn.Sequential:
    model = nn.Sequential(Probe(modules, seen), nn.Sequential(Probe(modules, seen, **last)))
    modules.register_names(model, "Net")
    return model


def test_the_running_module_has_its_path_in_the_model() -> None:
    # given
    modules, seen = ModuleStack(), list[str]()
    model = _model(modules, seen)
    # when
    with modules:
        model(torch.ones(1))
        assert modules.current == ""
        Probe(modules, seen)(torch.ones(1))
    model(torch.ones(1))
    # then one that is not of the model has no path, and nothing is tracked afterwards
    assert seen == ["0", "1.0", "", "", ""]


def test_a_forward_that_raises_ends_its_modules() -> None:
    modules, seen = ModuleStack(), list[str]()
    model = _model(modules, seen, fails=True)

    with modules, pytest.raises(ValueError, match="stop"):
        model(torch.ones(1))

    assert seen == ["0", "1.0"]
    assert modules.current == ""


def test_a_node_belongs_to_the_module_that_made_it() -> None:
    # given
    modules, seen = ModuleStack(), list[str]()
    model = _model(modules, seen)
    before = torch.ones(1, requires_grad=True) * 1
    modules.record_nodes(lambda: 0)
    # when
    with modules:
        after = model(before)
    # then torch's own numbers of the nodes lead to the modules, innermost first
    node = after.grad_fn
    assert modules.owner_of_node(node._sequence_nr()) == ("1.0", 2)
    assert modules.owner_of_node(node.next_functions[0][0]._sequence_nr()) == ("0", 1)
    # and a node that is not known has none
    assert modules.owner_of_node(node._sequence_nr() + 1) == ("", -1)


@pytest.mark.parametrize(
    ("first", "second", "parent"),
    [
        ("layers.0.mlp", "layers.0.attention", "layers.0"),
        ("layers.0", "layers.0.attention", "layers.0"),
        ("layers.1", "layers.10", "layers"),
        ("head", "layers.0", "Net"),
        ("", "layers.0", "Net"),
    ],
)
def test_two_modules_are_in_a_common_one(first: str, second: str, parent: str) -> None:
    modules = ModuleStack()
    modules.register_names(nn.Identity(), "Net")

    assert modules.common_parent(first, second) == parent
