"""What an autograd graph is made of, without running anybody's hooks."""

from __future__ import annotations

import pytest
import torch

from tbmem.sources.torch_state import autograd_graph as graphs


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.ones(4, requires_grad=True)


def test_a_running_total_goes_back_to_its_old_value(weight: torch.Tensor) -> None:
    total = weight.sum()
    before = graphs.number_of(total.grad_fn)
    for _ in range(20):
        total = total + (weight * 2).tanh().sum()

    assert graphs.reaches(total.grad_fn, before)


def test_a_value_that_is_new_each_time_does_not(weight: torch.Tensor) -> None:
    before = graphs.number_of((weight * 2).sum().grad_fn)

    assert not graphs.reaches((weight * 2).sum().grad_fn, before)


def test_a_value_that_was_detached_does_not(weight: torch.Tensor) -> None:
    total = weight.sum()
    before = graphs.number_of(total.grad_fn)
    total = total.detach() + weight.sum()

    assert not graphs.reaches(total.grad_fn, before)


def test_the_search_ends(weight: torch.Tensor) -> None:
    total = weight.sum()
    before = graphs.number_of(total.grad_fn)
    for _ in range(100):
        total = total + 1

    assert not graphs.reaches(total.grad_fn, before, limit=50)


def test_nodes_are_counted_once_and_leaves_not_at_all(weight: torch.Tensor) -> None:
    graph = graphs.Graph(100, 1.0)
    first = (weight * 2).tanh()
    second = first.sum()

    assert len(graph.add(first.grad_fn)) == 2
    assert len(graph.add(second.grad_fn)) == 1
    assert list(graphs.leaves(graph.nodes))[0] is weight


def test_only_what_is_newer_is_counted(weight: torch.Tensor) -> None:
    total = weight.sum()
    before = graphs.number_of(total.grad_fn)
    for _ in range(3):
        total = total + 1

    assert len(graphs.Graph(100, 1.0).add(total.grad_fn, before)) == 3


def test_a_large_graph_is_cut(weight: torch.Tensor) -> None:
    total = weight.sum()
    for _ in range(50):
        total = total + 1
    graph = graphs.Graph(10, 1.0)

    graph.add(total.grad_fn)

    assert len(graph.nodes) == 10
    assert not graph.complete


def test_saved_tensors_are_there_until_the_backward_pass(weight: torch.Tensor) -> None:
    loss = (weight * weight).sum()
    node = graphs.parents(loss.grad_fn)[0]

    assert [one.data_ptr() for one in graphs.saved(node)] == [weight.data_ptr()] * 2
    loss.backward()
    assert list(graphs.saved(node)) == []


def test_of_packed_tensors_the_parts_are_given_and_nothing_is_unpacked(weight: torch.Tensor) -> None:
    def unpack(packed: object) -> torch.Tensor:
        raise AssertionError("unpacked")

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: ("packed", 1), unpack):
        square = weight * weight

    assert list(graphs.saved(square.grad_fn)) == ["packed", 1] * 2
