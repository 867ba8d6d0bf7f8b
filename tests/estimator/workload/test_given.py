"""Models, batches and functions are handed over without weights, and mean the same on the other side."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from tbmem.errors import UsageError
from tbmem.estimator.workload.given import Given, resized, samples_of, unpacked


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 512)
        self.head = nn.Linear(512, 1000, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("lengths", torch.tensor([3, 1]))
        self.embedding.weight.is_shared = True  # type: ignore[attr-defined]


def test_a_module_comes_without_its_weights() -> None:
    # given a model of 2 MB with tied weights
    model = Tied()
    model.head.weight.requires_grad_(False)

    # when it is handed over
    data = Given(model, (torch.zeros(4, 7),)).packed()
    other = unpacked(data).model

    # then shapes, types, identity and attributes are the same, and whole numbers have their values
    assert len(data) < 20_000
    assert other.head.weight is other.embedding.weight
    assert other.head.weight.shape == (1000, 512)
    assert not other.head.weight.requires_grad
    assert other.head.weight.is_shared
    assert other.lengths.tolist() == [3, 1]


def test_functions_of_a_test_and_optimizers_come_by_value() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    given = unpacked(Given(model, torch.zeros(2, 3), lambda output, batch: output.sum(), optimizer).packed())

    assert given.loss is not None
    assert given.loss(torch.ones(2), None) == 2
    made = given.optimizer(given.model.parameters())
    assert isinstance(made, torch.optim.SGD)
    assert (made.defaults["lr"], made.defaults["momentum"]) == (0.5, 0.9)


def test_what_cannot_be_handed_over_is_one_line() -> None:
    model = nn.Linear(3, 3)
    model.lock = threading.Lock()

    for given, words in (
        (Given(model, torch.zeros(1, 3)), "Linear: cannot be handed over"),
        (Given(nn.DataParallel(nn.Linear(1, 1)), torch.zeros(1)), "give its .module"),
        (Given(nn.Linear(1, 1), torch.eye(2).to_sparse()), "a tensor of Tensor (sparse_coo) cannot be handed over"),
    ):
        with pytest.raises(UsageError) as raised:
            given.packed()
        assert words in str(raised.value)
        assert "\n" not in str(raised.value)


def test_names_and_samples() -> None:
    def make(batch: int) -> None: ...

    assert Given(make).name == "make"
    assert Given(nn.Linear(1, 1), {"x": torch.zeros(6, 2)}).name == "Linear"
    assert Given(nn.Linear(1, 1), {"x": torch.zeros(6, 2)}).samples == 6
    assert samples_of({"flag": True}) is None


def test_a_batch_is_cut_or_repeated() -> None:
    batch = {"x": torch.arange(6).reshape(3, 2), "mask": torch.ones(2, 2), "n": 3}

    larger, smaller = resized(batch, 7), resized(batch, 2)

    assert larger["x"][:, 0].tolist() == [0, 2, 4, 0, 2, 4, 0]
    assert smaller["x"].shape == (2, 2)
    assert (larger["mask"].shape, larger["n"]) == ((2, 2), 3)
