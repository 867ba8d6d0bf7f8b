"""Whether the elements that a container had are gone, over containers of every kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tbmem.sources.retainers.turnover import ElementSamples


def _tensors(count: int) -> list[torch.Tensor]:
    return [torch.ones(1) for _ in range(count)]


CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": lambda: _tensors(5),
    "tuple": lambda: tuple(_tensors(5)),
    "dict": lambda: dict(enumerate(_tensors(5))),
    "deque": lambda: deque(_tensors(5)),
    "tuples in a list": lambda: [(0.5, each) for each in _tensors(5)],
    "dicts in a list": lambda: [{"loss": each} for each in _tensors(5)],
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_samples_are_gone_with_the_container(make: Callable[[], Any]) -> None:
    # given
    container = make()
    samples = ElementSamples(container)
    assert not samples.are_gone
    # when
    del container
    # then
    assert samples.are_gone


def test_samples_are_gone_when_a_list_is_emptied_and_filled_again() -> None:
    # given
    kept = _tensors(4)
    samples = ElementSamples(kept)
    # when
    kept.clear()
    kept += _tensors(6)
    # then
    assert samples.are_gone


def test_a_list_that_drops_some_of_its_elements_still_has_others() -> None:
    # given
    kept = _tensors(6)
    samples = ElementSamples(kept)
    # when its oldest are dropped and more are added
    del kept[:2]
    kept += _tensors(4)
    # then
    assert not samples.are_gone


def test_a_longer_copy_keeps_the_elements() -> None:
    # given
    kept = _tensors(3)
    samples = ElementSamples(kept)
    # when
    kept = [*kept, torch.ones(1)]
    # then
    assert not samples.are_gone


@pytest.mark.parametrize("container", [[1.5, 2.5], [], ["text"], {1}, [torch.nn.Parameter(torch.ones(1))], [int]])
def test_what_cannot_be_held_weakly_says_nothing(container: Any) -> None:
    # given
    samples = ElementSamples(container)
    # when
    container.clear()
    # then
    assert not samples.are_gone


def test_a_copy_that_is_longer_keeps_elements_and_the_next_rollouts_list_does_not() -> None:
    # given a list that something else holds as well
    rollout = _tensors(3)
    buffer = [rollout]
    samples = ElementSamples(buffer[0])
    # then
    assert not samples.are_dropped_by(ElementSamples([*rollout, torch.ones(1)]))
    assert not samples.are_dropped_by(ElementSamples([torch.ones(1), *rollout]))
    assert samples.are_dropped_by(ElementSamples(_tensors(5)))
    # and of numbers nothing is known
    assert not ElementSamples([0.5, 1.5]).are_dropped_by(ElementSamples([2.5]))
