"""Names of objects on hand-built paths, as the user would write them."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import weakref
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from tbmem.model.evidence import HolderKind
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.retainers.naming import Name, kind_of, name_of, type_name
from tbmem.sources.retainers.reachability import Reference, ReferenceKind, RootScope

FILE = os.path.basename(__file__)
ATTRIBUTE, KEY, ITEM = ReferenceKind.ATTRIBUTE, ReferenceKind.KEY, ReferenceKind.ITEM
Step = tuple[ReferenceKind, Any, Any]


class Base:
    """Has a table of the class."""

    table: list[Any] = []


class Tracker(Base):
    """A class of the user's."""


class Net(torch.nn.Module):
    """A module of the user's, with a child by name and one by number."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 2))


def _reference(scope: RootScope, *steps: Step) -> Reference:
    owner: Reference | RootScope = scope
    for kind, label, value in steps:
        owner = Reference(value, owner, kind, label)
    assert isinstance(owner, Reference)
    return owner


def _here() -> RootScope:
    return RootScope(sys._getframe(1).f_code)


def _name(scope: RootScope, *steps: Step) -> Name:
    return name_of(_reference(scope, *steps), SourceCode())


def _local(label: str, value: Any) -> Step:
    return (ReferenceKind.LOCAL, label, value)


def test_a_local_and_what_lies_in_it() -> None:
    history = {"loss": [[1.5]]}
    test = "test_a_local_and_what_lies_in_it"

    plain = _name(_here(), _local("history", history))
    inner = _name(_here(), _local("history", history), (KEY, "loss", history["loss"]), (ITEM, 0, history["loss"][0]))

    assert plain.text == f"dict 'history' in {test}()"
    assert inner.text == f"list history['loss'][0] in {test}()"
    assert (inner.handle.root, inner.handle.path) == ("history", (("key", "loss"), ("key", 0)))
    assert inner.handle.files == (__file__,)
    assert inner.is_users


def test_a_key_that_is_an_object_is_not_written() -> None:
    assert _name(_here(), _local("by", {}), (KEY, object(), [])).text.startswith("list by[...] in ")


def test_an_attribute_of_a_users_object_begins_the_name() -> None:
    tracker, outputs = Tracker(), {"a": [1]}

    name = _name(_here(), _local("tracker", tracker), (ATTRIBUTE, "outputs", outputs), (KEY, "a", outputs["a"]))

    assert name.text == "Tracker.outputs['a']"
    assert (name.handle.root, name.handle.is_attribute) == ("outputs", True)


def test_a_class_attribute_belongs_to_the_class_that_defines_it() -> None:
    steps = _local("kind", Tracker), (ReferenceKind.CLASS_ATTRIBUTE, "table", Tracker.table)

    assert _name(_here(), *steps).text == "Base.table"


def test_the_tables_of_a_module_are_not_written() -> None:
    net = Net()
    linear: Any = net.layers[0]
    steps = (
        _local("net", net),
        (ATTRIBUTE, "_modules", net._modules),
        (KEY, "layers", net.layers),
        (ATTRIBUTE, "_modules", net.layers._modules),
        (KEY, "0", linear),
        (ATTRIBUTE, "_parameters", linear._parameters),
        (KEY, "weight", linear.weight),
    )

    assert _name(_here(), *steps).text == "Net.layers[0].weight"


def test_the_dict_in_a_wrapper_is_the_wrapper() -> None:
    cache: Any = weakref.WeakValueDictionary()
    reference = _reference(_here(), _local("cache", cache), (ATTRIBUTE, "data", cache.data))

    assert name_of(reference, SourceCode()).text.startswith("WeakValueDictionary 'cache' in ")
    assert type_name(reference) == "WeakValueDictionary"
    assert kind_of(reference) is HolderKind.DICT


@pytest.mark.parametrize(("module", "is_users"), [(__file__, True), (functools.__file__, False)])
def test_a_global_is_named_with_its_file(module: str, is_users: bool) -> None:
    name = _name(RootScope(module=module), (ReferenceKind.GLOBAL, "CACHE", {}))

    assert name.text == f"module-level dict 'CACHE' in {os.path.basename(module)}"
    assert name.is_users is is_users


def test_a_default_and_a_variable_of_an_enclosing_function() -> None:
    captured: list[Any] = []

    def collect(into: list[Any] = []) -> list[Any]:  # noqa: B006
        return into or captured

    here = "test_a_default_and_a_variable_of_an_enclosing_function"
    default = _name(_here(), _local("collect", collect), (ReferenceKind.DEFAULT, "into", collect()))
    closed = _name(_here(), _local("collect", collect), (ReferenceKind.CLOSED, "captured", captured))

    assert default.text == f"list 'into' in a default of {here}.collect()"
    assert closed.text == f"list 'captured' in {here}()"


def test_what_no_variable_leads_to_has_no_name() -> None:
    name = _name(RootScope(), (ReferenceKind.INSIDE, None, deque()))

    assert (name.text, name.is_users) == ("deque without a name", False)


@pytest.mark.parametrize(
    ("value", "kind", "type_"),
    [
        ([], HolderKind.LIST, ""),
        (deque(), HolderKind.DEQUE, ""),
        ({1}, HolderKind.SET, ""),
        (functools.lru_cache(len), HolderKind.LRU_CACHE, ""),
        (torch.ones(1), HolderKind.TENSOR, "tensor"),
        (torch.nn.Parameter(torch.ones(1)), HolderKind.TENSOR, "parameter"),
        (np.ones(1), HolderKind.TENSOR, "ndarray"),
        (itertools.tee([1])[0], HolderKind.ITERATOR, "tee"),
        (object(), HolderKind.OBJECTS, "object"),
    ],
)
def test_kinds_and_types(value: Any, kind: HolderKind, type_: str) -> None:
    reference = _reference(_here(), _local("value", value))

    assert (kind_of(reference), type_name(reference)) == (kind, type_)


def test_a_table_of_hooks_and_the_list_in_an_iterator() -> None:
    net, cycle, saved = Net(), itertools.cycle([1]), [1]
    hooks = _reference(_here(), _local("net", net), (ATTRIBUTE, "_forward_hooks", net._forward_hooks))
    inside = _reference(_here(), _local("batches", cycle), (ReferenceKind.INSIDE, None, saved))

    assert kind_of(hooks) is HolderKind.HOOKS
    assert (kind_of(inside), type_name(inside)) == (HolderKind.ITERATOR, "cycle")
