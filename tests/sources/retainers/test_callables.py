"""Functions that become more, over hand-made observations: closures of one function, callbacks of ``atexit``."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tbmem.model.evidence import Contents, Holder, HolderKind
from tests.sources.retainers.test_search import hunt_in

pytestmark = pytest.mark.usefixtures("the_libraries_are_frozen")


def wrapped(forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    total = torch.zeros(1000)

    def counted(x: Any) -> Any:
        total.add_(1)
        return forward(x)

    return counted


def save(state: torch.Tensor) -> None:
    """Does nothing."""


@pytest.fixture
def no_callbacks_are_left() -> Iterator[None]:
    yield
    atexit.unregister(save)


def _found(step: Callable[[int], Any], kind: HolderKind) -> list[Holder]:
    holders, _ = hunt_in(step)
    return [holder for holder in holders if holder.kind is kind]


def test_closures_that_wrap_each_other_are_named_with_the_line_that_makes_them() -> None:
    # given
    model = {"forward": torch.sin}

    def step(i: int) -> None:
        model["forward"] = wrapped(model["forward"])

    # when
    (closures,) = _found(step, HolderKind.CLOSURES)
    # then
    assert closures.name == "closures wrapped.counted()"
    assert closures.per_step == 1
    assert closures.bytes_per_element >= 4000
    assert 'model["forward"] = wrapped(model["forward"])' in {line.text for line in closures.lines}


@pytest.mark.usefixtures("no_callbacks_are_left")
def test_callbacks_of_atexit_are_named_with_the_tensors_that_nothing_else_holds() -> None:
    # given
    def step(i: int) -> None:
        atexit.register(save, torch.zeros(1000))

    # when
    (callbacks,) = _found(step, HolderKind.CALLBACKS)
    # then
    assert callbacks.per_step == 1
    assert callbacks.contents is Contents.TENSORS
    assert callbacks.bytes_per_element >= 4000
    assert {line.text for line in callbacks.lines} == {"atexit.register(save, torch.zeros(1000))"}


def test_a_closure_that_is_made_anew_in_each_step_is_no_holder() -> None:
    def step(i: int) -> None:
        wrapped(torch.sin)(torch.zeros(1))

    assert not _found(step, HolderKind.CLOSURES)
