"""Probes of containers and variables: what counts as growth, and that nothing is kept alive."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from tbmem.sources.retainers.probes import Probe, SizeProbe, ValueProbe, ValueReader, reader_of
from tbmem.sources.retainers.reachability import Reference, ReferenceKind, RootScope

FRAME = sys._getframe()


class Box:
    """An attribute in a dict, one in a slot of its own, one of the class."""

    __slots__ = ("__dict__", "__weakref__", "slot")
    shared = "of the class"

    def __init__(self) -> None:
        self.slot, self.plain = "in a slot", "in the dict"


class Pair(NamedTuple):
    """Two values."""

    first: Any
    second: Any


class Items(list[int]):
    """A list that can be referred to weakly."""


def _in(held: Any, kind: ReferenceKind, label: Any, value: Any = None) -> Reference:
    return Reference(value, Reference(held, RootScope(), ReferenceKind.LOCAL, "held"), kind, label)


def test_new_elements_are_counted_and_removed_ones_are_not() -> None:
    kept = [1, 2]
    probe = SizeProbe(kept, list.__len__)

    grown = []
    for change in (lambda: kept.extend([3, 4, 5]), kept.pop, lambda: None, lambda: kept.append(6)):
        change()
        grown.append(probe.grew(FRAME))

    assert grown == [3, 0, 0, 1]
    assert (probe.first, probe.last) == (2, 5)


@pytest.mark.parametrize(("left", "was_emptied"), [(0, True), (1, True), (3, False)])
def test_a_container_that_loses_most_of_its_elements_was_emptied(left: int, was_emptied: bool) -> None:
    # given
    kept = [1, 2, 3, 4]
    probe = SizeProbe(kept, list.__len__)
    # when it is filled again before it is looked at for the last time
    del kept[left:]
    probe.check()
    kept.extend(range(8))
    probe.check()
    # then
    assert probe.was_emptied is was_emptied


def test_a_container_that_nobody_else_holds_is_let_go() -> None:
    kept = Items([1, 2])
    reference = weakref.ref(kept)
    probe = SizeProbe(kept, list.__len__)
    assert probe.check() == 0
    assert not probe.is_gone

    del kept

    assert probe.check() == 0
    assert probe.is_gone
    assert reference() is None


def test_a_longer_successor_is_followed_and_a_fresh_start_is_not() -> None:
    # given a list in a dict that is replaced
    state = {"kept": [1, 2]}
    reader = reader_of(_in(state, ReferenceKind.KEY, "kept"))
    probe = SizeProbe(state["kept"], list.__len__, reader)
    # when
    state["kept"] = [*state["kept"], 3]
    longer = [probe.grew(FRAME), probe.last, probe.is_gone]
    state["kept"] = []
    shorter = [probe.grew(FRAME), probe.last, probe.is_gone]
    # then
    assert longer == [1, 3, False]
    assert shorter == [0, 3, True]


def test_a_value_is_replaced_by_another_one() -> None:
    state: dict[str, Any] = {"x": [1]}
    probe = ValueProbe(reader_of(_in(state, ReferenceKind.KEY, "x")), state["x"])

    same = probe.grew(FRAME)
    former = state["x"]  # so that its address is not used again
    state["x"] = [1]
    other = probe.grew(FRAME)
    del state["x"]
    gone = probe.grew(FRAME)

    assert (same, other, gone) == (0, 1, 0)
    assert former == [1]


def test_a_tensor_that_is_changed_in_place_is_another_value() -> None:
    # given a total whose graph grows while the tensor stays the same object
    weight = torch.ones(1, requires_grad=True) * 2  # a node of its own: torch numbers a thread's nodes from 0
    state = {"total": torch.zeros(1)}
    probe = ValueProbe(reader_of(_in(state, ReferenceKind.KEY, "total")), state["total"])

    grown = []
    for _ in range(2):
        state["total"] += weight
        grown.append(probe.grew(FRAME))
    grown.append(probe.grew(FRAME))

    assert grown == [1, 1, 0]


def _closure() -> Callable[[], str]:
    captured = "in a cell"
    return lambda: captured


@pytest.mark.parametrize(
    ("held", "kind", "label", "value"),
    [
        ({"a": 5}, ReferenceKind.KEY, "a", 5),
        ({"a": 5}, ReferenceKind.KEY, "gone", None),
        ([4, 5], ReferenceKind.ITEM, 1, 5),
        ([4, 5], ReferenceKind.ITEM, 2, None),
        ([4, 5], ReferenceKind.ITEM, -1, 5),
        (Box(), ReferenceKind.ATTRIBUTE, "plain", "in the dict"),
        (Box(), ReferenceKind.ATTRIBUTE, "slot", "in a slot"),
        (Box, ReferenceKind.CLASS_ATTRIBUTE, "shared", "of the class"),
        (_closure(), ReferenceKind.CLOSED, "captured", "in a cell"),
        (deque([1]), ReferenceKind.ATTRIBUTE, "gone", None),
    ],
)
def test_a_value_is_read_in_its_owner(held: Any, kind: ReferenceKind, label: Any, value: Any) -> None:
    assert reader_of(_in(held, kind, label)).value(FRAME) == value


@pytest.mark.parametrize(("kind", "label"), [(ReferenceKind.ATTRIBUTE, "second"), (ReferenceKind.ITEM, 1)])
def test_a_tuple_is_read_where_it_lies_since_it_is_replaced_too(kind: ReferenceKind, label: Any) -> None:
    # given a tuple in a dict
    state: dict[str, Any] = {"pair": Pair(1, 2)}
    owner = _in(state, ReferenceKind.KEY, "pair", state["pair"])
    reader = reader_of(Reference(2, owner, kind, label))
    # when
    state["pair"] = Pair(1, 3)
    # then
    assert reader.value(FRAME) == 3


def test_a_local_and_a_global_are_read_in_frames_of_their_own_code() -> None:
    frame = sys._getframe()
    mine = "here"

    local = reader_of(Reference(mine, RootScope(frame.f_code), ReferenceKind.LOCAL, "mine"))
    module = reader_of(Reference(Box, RootScope(module=__file__), ReferenceKind.GLOBAL, "Box"))

    assert (local.value(frame), module.value(frame)) == ("here", Box)
    other = sys._getframe(1)
    assert (local.value(other), module.value(other)) == (None, None)


def test_an_owner_that_nobody_else_holds_is_let_go() -> None:
    # given
    box = Box()
    reference = weakref.ref(box)
    reader = reader_of(_in(box, ReferenceKind.ATTRIBUTE, "plain"))
    assert reader.value(FRAME) == "in the dict"
    # when
    del box
    # then
    assert reader.value(FRAME) is None
    assert reference() is None


def test_released_probes_hold_nothing() -> None:
    box, kept = Box(), Items()
    references: list[Callable[[], object]] = [weakref.ref(box), weakref.ref(kept)]
    probes: list[Probe] = [
        SizeProbe(kept, list.__len__, ValueReader(box, lambda held, _: held)),
        ValueProbe(ValueReader(box, lambda held, _: held), box),
    ]
    del box, kept

    for probe in probes:
        probe.release()

    assert [reference() for reference in references] == [None, None]
