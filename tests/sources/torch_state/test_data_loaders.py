"""Which data sets are read by workers, with real DataLoaders."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from tbmem.model.evidence import WorkerCode
from tbmem.sources.torch_state.data_loaders import code_in_workers


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2)


class Photos(Images):
    pass


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.zeros(2)] * 8)


class Caching(Images):
    seen: set[int] = set()

    def __init__(self) -> None:
        self.decoded: dict[int, torch.Tensor] = {}
        self.recent: deque[int] = deque(maxlen=4)
        self.decoded[0] = torch.zeros(2)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.recent.append(index)
        if index not in self.decoded:
            self.decoded[index] = self.decode(index)
        return self.decoded[index]

    def decode(self, index: int) -> torch.Tensor:
        self.seen.add(index)
        return torch.zeros(2)


@pytest.mark.slow
def test_lines_that_add_to_what_a_data_set_keeps_without_a_bound() -> None:
    # given
    batches = iter(DataLoader(Subset(Caching(), [0, 1]), num_workers=1))
    next(batches)
    # when
    code = code_in_workers()
    del batches
    # then
    assert [line.function for line in code.methods] == ["Caching.__getitem__"]
    assert [line.text for line in code.additions] == [
        "self.decoded[index] = self.decode(index)",
        "self.seen.add(index)",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "method", "text"),
    [
        (Images(), "Images.__getitem__", "def __getitem__(self, index: int) -> torch.Tensor:"),
        (Photos(), "Images.__getitem__", "def __getitem__(self, index: int) -> torch.Tensor:"),
        (Subset(Photos(), [0, 1]), "Images.__getitem__", "def __getitem__(self, index: int) -> torch.Tensor:"),
        (Stream(), "Stream.__iter__", "def __iter__(self) -> Iterator[torch.Tensor]:"),
    ],
)
def test_the_method_that_workers_call_is_named(data: Dataset[torch.Tensor], method: str, text: str) -> None:
    # given
    batches = iter(DataLoader(data, num_workers=1))
    next(batches)
    # when
    (line,) = code_in_workers().methods
    del batches
    # then
    assert (line.function, line.text) == (method, text)


@pytest.mark.slow
def test_torchs_own_data_sets_have_no_method_to_name() -> None:
    batches = iter(DataLoader(TensorDataset(torch.zeros(4)), num_workers=1))
    next(batches)
    assert code_in_workers() == WorkerCode()
    del batches


def test_a_loader_without_workers_is_none() -> None:
    batches = iter(DataLoader(Images()))
    next(batches)
    assert code_in_workers() == WorkerCode()
