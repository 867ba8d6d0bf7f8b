"""Variables whose value or graph grows, over hand-made observations of one local variable."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tbmem.model.evidence import HolderKind
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.retainers.candidates import Candidate, SearchContext
from tbmem.sources.retainers.reachability import Reference, ReferenceKind, RootScope
from tbmem.sources.retainers.variables import (
    VariableHistories,
    VariableHistory,
    add_graphs,
    add_value,
    grown_values,
    inner_length,
)

SCOPE = RootScope(sys._getframe().f_code)


class Observed:
    """The histories of a variable ``x`` in a function, whose value is given at each observation."""

    def __init__(self, *values: Any, steps: int = 6) -> None:
        self.values = values  # kept: an address that is used again would be the same value
        self.histories = VariableHistories()
        scope = RootScope(_train.__code__)
        for number, value in enumerate(values):
            reference = Reference(value, scope, ReferenceKind.LOCAL, "x")
            self.histories.look(20 + steps * number, [reference])
        self.traversal: Any = SimpleNamespace(references={id(value): reference})

    def candidates(self) -> list[Candidate]:
        context = SearchContext(SourceCode(), set(), None)
        for reference, history in grown_values(self.histories, self.traversal, set()):
            add_value(context, reference, history)
        add_graphs(context, self.histories, self.traversal)
        return context.sorted()


def _train() -> torch.Tensor:
    x = torch.ones(1)
    for _ in range(3):
        x = torch.cat([x, torch.ones(1)])
    return x


def _numbers(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32)


def test_a_tensor_that_is_replaced_by_a_longer_one() -> None:
    # given 100 more numbers of 4 bytes in 5 steps
    torch.manual_seed(0)
    numbers = torch.randn(300)
    found = Observed(*(numbers[: 100 * n].clone() for n in (1, 2, 3)), steps=5)
    # when
    (candidate,) = found.candidates()
    # then
    holder = candidate.holder
    assert (holder.kind, holder.name) == (HolderKind.TENSOR, "tensor 'x' in _train()")
    assert (holder.per_step, holder.bytes_per_element, holder.bytes_per_step) == (80.0, 1, 80.0)
    assert not candidate.must_be_cumulative  # it begins with the same bytes each time
    assert [line.text for line in candidate.read()] == ["x = torch.cat([x, torch.ones(1)])"]


def test_a_tensor_of_other_numbers_has_to_be_made_of_the_old_one() -> None:
    torch.manual_seed(0)
    (candidate,) = Observed(*(torch.randn(100 * n) for n in (1, 2, 3))).candidates()

    assert candidate.must_be_cumulative


@pytest.mark.parametrize(
    "values",
    [
        [_numbers(300), _numbers(200), _numbers(400)],  # fell back
        [_numbers(100), _numbers(100), _numbers(200)],  # grew once
        [_numbers(10), _numbers(20), _numbers(30)],  # 120 bytes
        [1, 2, 3],
    ],
)
def test_what_does_not_grow_or_is_small_is_no_holder(values: list[Any]) -> None:
    assert Observed(*values).candidates() == []


def test_one_array_that_stays_the_same_object_is_no_holder() -> None:
    # given a buffer whose owner resizes it
    buffer, histories = np.zeros(100), VariableHistories()
    reference = Reference(buffer, SCOPE, ReferenceKind.LOCAL, "buffer")
    for step in (20, 26, 32):
        histories.look(step, [reference])
        buffer.resize(buffer.size + 100, refcheck=False)
    traversal: Any = SimpleNamespace(references={id(buffer): reference})
    # when
    ((_, history),) = grown_values(histories, traversal, set())
    context = SearchContext(SourceCode(), set(), None)
    add_value(context, reference, history)
    # then
    assert not history.is_replaced
    assert context.sorted() == []


def test_a_list_that_is_replaced_by_a_longer_one() -> None:
    (candidate,) = Observed(*([1.5] * n for n in (20, 26, 32))).candidates()

    assert (candidate.holder.kind, candidate.holder.length, candidate.holder.per_step) == (HolderKind.LIST, 32, 1.0)


def test_the_next_rollouts_list_is_longer_and_keeps_nothing_of_the_one_before() -> None:
    # given a buffer that keeps each rollout, and the variable in which they are made
    buffer = [[np.ones(40) for _ in range(length)] for length in (4, 7, 10)]
    # when
    (candidate,) = Observed(*buffer).candidates()
    # then
    assert (candidate.holder.length, candidate.holder.is_emptied) == (10, True)


def test_a_total_whose_graph_goes_back_to_the_first_step() -> None:
    # given two nodes in a step (a product, a sum), of which observations are 3 steps apart
    weight = torch.ones(1, requires_grad=True)
    total, totals = torch.zeros(1), []
    for _ in range(4):
        for _ in range(3):
            total = total + weight * 2
        totals.append(total)
    # when
    (candidate,) = Observed(*totals, steps=3).candidates()
    # then the leaf's own node is counted with the length
    holder = candidate.holder
    assert (holder.kind, holder.type, holder.per_step) == (HolderKind.GRAPH, "AddBackward0", 2.0)
    assert holder.length == 4 * 3 * 2 + 1
    assert holder.name == "tensor 'x' in _train()"


def test_of_several_variables_in_one_graph_the_newest_is_named() -> None:
    # given the state of a loop, and that of the step before under another name
    weight = torch.ones(1, requires_grad=True)
    states = [torch.zeros(1)]
    for _ in range(5):
        states.append(states[-1] + weight * 2)
    scope, histories = RootScope(_train.__code__), VariableHistories()
    for step in range(1, 5):
        before = Reference(states[step], scope, ReferenceKind.LOCAL, "before")
        state = Reference(states[step + 1], scope, ReferenceKind.LOCAL, "state")
        histories.look(step, [before, state])
    traversal: Any = SimpleNamespace(references={id(each.value): each for each in (before, state)})
    context = SearchContext(SourceCode(), set(), None)
    # when
    add_graphs(context, histories, traversal)
    # then
    assert [each.holder.name for each in context.sorted()] == ["tensor 'state' in _train()"]


def test_a_loss_with_a_graph_of_its_own_step_is_no_holder() -> None:
    weight = torch.ones(1, requires_grad=True)

    assert Observed(*(weight * n for n in range(4))).candidates() == []


def test_a_variable_that_is_gone_is_forgotten() -> None:
    # given a variable that is missing at the second of four observations
    histories, values = VariableHistories(), [[0] * n for n in (10, 20, 30, 40)]
    references = [Reference(value, SCOPE, ReferenceKind.LOCAL, "x") for value in values]
    for step, seen in enumerate([references[:1], [], references[2:3], references[3:]]):
        histories.look(step, seen)
    traversal: Any = SimpleNamespace(references={id(values[3]): references[3]})
    # when
    known = histories.references(traversal, lambda history: True, lambda value: True)
    # then
    assert [history.series.points for _, history in known] == [[(2, 30), (3, 40)]]


def test_graphs_that_are_not_linked_begin_anew() -> None:
    weight, history = torch.ones(1, requires_grad=True), VariableHistory()
    first = weight * 2
    linked = first + weight
    other = weight * 3
    steps = []

    for step, value in enumerate([first, linked, other, torch.ones(1)]):
        history.add(step, 4, value)
        steps.append([step for step, _ in history.numbers])

    assert steps == [[0], [0, 1], [2], []]


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ({"a": [1, 2], "b": [3]}, 3),
        ([[1, 2], [[3], [4, 5]]], 4 + 3),  # 2 and 2 in the first level, 1 and 2 in the second
        ([[[[1]]]], 2),  # two levels
        ((1, 2.5, "text"), 0),
        ({1, 2}, 0),
        ([[1]] * 5001, 0),  # too many
    ],
)
def test_elements_of_the_containers_in_a_container(value: Any, length: int) -> None:
    assert inner_length(value) == length
