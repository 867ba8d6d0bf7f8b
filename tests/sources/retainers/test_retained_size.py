"""Bytes that objects alone keep alive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import RendererAgg

from tbmem.model.evidence import Contents
from tbmem.sources.retainers.retained_size import (
    NODE_BYTES,
    TENSOR_BYTES,
    BaselineObjects,
    RetainedSize,
    elements_of,
    entry_bytes,
)

KIB = 1024
THOUSAND = torch.zeros(1000)


@pytest.mark.parametrize(
    ("thing", "low", "high", "contents"),
    [
        (1.5, 24, 24, Contents.OBJECTS),
        ("x" * 1000, 1000, 1100, Contents.OBJECTS),
        (np.zeros(1000), 8000, 8200, Contents.OBJECTS),
        (torch.zeros(1000), 4000 + TENSOR_BYTES, 4100 + TENSOR_BYTES, Contents.TENSORS),
        ({"a": [torch.zeros(1000)]}, 4400, 5000, Contents.TENSORS),
        (lambda data=THOUSAND: data, 4400, 5000, Contents.TENSORS),
        (torch.nn.Linear(100, 100), 40_000, 46_000, Contents.MODULES),
        (torch.zeros(64 * KIB)[:4], 256 * KIB, 257 * KIB, Contents.VIEWS),
        (torch.ones(10, requires_grad=True) * 2, 64 + TENSOR_BYTES + NODE_BYTES, 2000, Contents.GRAPHS),
        # to drop its graph would change next to nothing
        (torch.nn.Parameter(torch.ones(1000)) * 2, 4000 + TENSOR_BYTES + NODE_BYTES, 6000, Contents.TENSORS),
    ],
)
def test_things_weigh_what_they_keep(thing: Any, low: int, high: int, contents: Contents) -> None:
    retained = RetainedSize(1.0)

    assert low <= retained.measure(thing) <= high
    assert retained.contents() is contents


def test_what_was_weighed_weighs_nothing_more() -> None:
    data = torch.zeros(10_000)
    retained = RetainedSize(1.0)

    assert retained.measure(data[:100]) > 40_000
    assert retained.measure(data[100:]) <= TENSOR_BYTES


def test_thousands_of_numbers_weigh_what_they_are() -> None:
    # given
    numbers, others = [number * 1.5 for number in range(20_000)], {each: f"{each:040}" for each in range(1000, 21_000)}
    retained = RetainedSize(5.0)
    # when / then
    assert retained.measure(numbers) == pytest.approx(20_000 * (24 + 8), rel=0.1)
    assert retained.measure(others) == pytest.approx(20_000 * (89 + 28) + others.__sizeof__(), rel=0.1)
    # and of a dict keys and values alike
    few = {each: f"{each:040}" for each in range(1000, 2500)}
    assert retained.measure(few) == pytest.approx(1500 * (89 + 28) + few.__sizeof__(), rel=0.1)
    # and another list of the same numbers only its own memory
    assert retained.measure(list(numbers)) == pytest.approx(20_000 * 8, rel=0.1)


def test_what_is_baseline_weighs_nothing() -> None:
    data, model = torch.zeros(10_000), torch.nn.Linear(100, 100)

    retained = RetainedSize(1.0, BaselineObjects([data, model, *model.parameters()]))

    assert retained.measure(data) == 0
    assert retained.measure(data[:5]) <= TENSOR_BYTES
    assert retained.measure([model]) < 200


def test_a_parameter_is_no_part_of_a_graph() -> None:
    model = torch.nn.Linear(1000, 1000)

    assert RetainedSize(1.0).measure(model(torch.zeros(2, 1000))) < 100 * KIB


def test_an_input_that_requires_gradients_is_part_of_its_graph_with_its_gradient() -> None:
    # given a penalty on gradients, as of WGAN-GP, and weights that are no parameters
    weights = torch.zeros(2048, requires_grad=True)
    retained = RetainedSize(1.0)
    retained.measure((torch.zeros(2048, requires_grad=True) * weights).sum())
    inputs = torch.zeros(2048, requires_grad=True)
    (gradient,) = torch.autograd.grad((inputs * weights).square().sum(), inputs, create_graph=True)
    penalty = gradient.square().sum()
    penalty.backward()
    # when
    size = retained.measure(penalty)
    # then: 8 KiB each
    assert 16 * KIB < size < 24 * KIB
    assert retained.measure(inputs) == 0


def test_a_graph_weighs_what_it_has_saved() -> None:
    x = torch.ones(10_000, requires_grad=True)

    total = RetainedSize(1.0).measure((x * 2).tanh().sum())

    assert 40_000 < total < 140_000


def test_an_old_tensor_is_counted() -> None:
    old = torch.zeros(1000)
    retained = RetainedSize(1.0, None, {(id(old), old.data_ptr())})

    assert retained.measure(old) == 0
    assert retained.initial_met == 1


def test_elements_with_their_keys() -> None:
    assert elements_of({"a": 1, "b": 2}, 1) == [("b", 2)]
    assert elements_of([1, 2], 5) == [(1,), (2,)]
    assert entry_bytes([0] * 1000) in range(8, 10)
    assert entry_bytes([]) == 8


def test_the_pixels_of_an_extensions_object_are_counted() -> None:
    # given a renderer in C++ that shows its pixels as a buffer
    renderer = RendererAgg(64, 32, 72)
    # then
    assert RetainedSize(1.0).measure(renderer) >= 64 * 32 * 4
