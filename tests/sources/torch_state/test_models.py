"""The model that an optimizer trains."""

from __future__ import annotations

import torch

from tbmem.sources.torch_state.storages import model_of


def test_the_outermost_module_with_most_of_the_parameters() -> None:
    # given a model, another one that shares a layer with it, and one that has nothing to do with it
    shared = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(shared, torch.nn.Sequential(torch.nn.Linear(4, 2)))
    others = [torch.nn.Sequential(shared), torch.nn.Linear(4, 4)]

    found = model_of(torch.optim.SGD(model.parameters(), lr=0.1))

    assert found is model
    assert len(others) == 2


def test_parameters_without_a_module() -> None:
    assert model_of(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)) is None
