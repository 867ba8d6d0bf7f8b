"""What the traversal of a program's objects reaches, by which path, and what it leaves out."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from tbmem.sources.retainers.reachability import Reference, ReferenceKind, Traversal

KEPT_BY_THE_MODULE = [object()]


class Tracker:
    """Keeps outputs in an attribute."""

    seen = [object()]

    def __init__(self, outputs: list[Any]) -> None:
        self.outputs = outputs


def _reach(frame: FrameType, limit: int = 60_000, generators: tuple[Any, ...] = ()) -> Traversal:
    return Traversal(limit, 60.0, frame, generators)


def _path(traversal: Traversal, value: Any) -> list[tuple[ReferenceKind, Any]]:
    return [(each.kind, each.label) for each in traversal.references[id(value)].path()]


def test_the_paths_are_those_that_a_user_would_write() -> None:
    # given an object behind each kind of reference
    tracker = Tracker([0, object()])
    by_name = {"epoch": {7: object()}}

    def uses(of: list[Any] = [1]) -> list[Any]:  # noqa: B006
        return of

    # when
    found = _reach(sys._getframe())
    # then
    assert _path(found, tracker.outputs[1]) == [
        (ReferenceKind.LOCAL, "tracker"),
        (ReferenceKind.ATTRIBUTE, "outputs"),
        (ReferenceKind.ITEM, 1),
    ]
    assert _path(found, by_name["epoch"][7]) == [
        (ReferenceKind.LOCAL, "by_name"),
        (ReferenceKind.KEY, "epoch"),
        (ReferenceKind.KEY, 7),
    ]
    assert _path(found, uses()) == [(ReferenceKind.LOCAL, "uses"), (ReferenceKind.DEFAULT, "of")]
    assert _path(found, KEPT_BY_THE_MODULE[0]) == [
        (ReferenceKind.GLOBAL, "KEPT_BY_THE_MODULE"),
        (ReferenceKind.ITEM, 0),
    ]
    assert _path(found, Tracker.seen)[-1] == (ReferenceKind.CLASS_ATTRIBUTE, "seen")
    first = found.references[id(tracker.outputs[1])]
    assert first.scope.code is sys._getframe().f_code
    assert first.holder is tracker.outputs
    assert found.complete


def test_the_shortest_path_wins() -> None:
    shared = [object()]
    deep = {"a": {"b": [shared]}}

    found = _reach(sys._getframe())

    assert _path(found, shared) == [(ReferenceKind.LOCAL, "shared")]
    assert id(deep["a"]["b"]) in found.references


def test_a_parameters_gradient_is_an_attribute_of_it() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)

    found = _reach(sys._getframe())

    assert _path(found, weight.grad) == [(ReferenceKind.LOCAL, "weight"), (ReferenceKind.ATTRIBUTE, "grad")]


def test_numbers_and_short_texts_are_left_out_and_long_texts_noted() -> None:
    short, long, number = "x" * 1023, "y" * 1024, 10**30

    found = _reach(sys._getframe())

    assert id(long) in found.references
    assert id(short) not in found.references
    assert id(number) not in found.references


def _pairs() -> Iterator[int]:
    behind = OrderedDict(first=object())
    yield id(behind["first"])


def test_a_suspended_generator_is_aside() -> None:
    generator = _pairs()
    address = next(generator)

    found = _reach(sys._getframe(), generators=(generator,))

    reference = found.references[address]
    assert reference.scope.is_aside
    assert [each.label for each in reference.path()] == ["behind", "first"]


def test_another_threads_variables_are_aside() -> None:
    # given
    ready, end = threading.Event(), threading.Event()
    addresses: list[int] = []

    def work() -> None:
        own_batch = [object()]
        addresses.append(id(own_batch))
        ready.set()
        end.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    # when
    try:
        found = _reach(sys._getframe())
    finally:
        end.set()
        thread.join()
    # then
    reference = found.references[addresses[0]]
    assert (reference.label, reference.scope.is_aside) == ("own_batch", True)


def test_a_path_has_the_same_key_when_the_value_was_replaced() -> None:
    def observe(tracker: Tracker) -> Reference:
        return _reach(sys._getframe()).references[id(tracker.outputs)]

    keys = [observe(Tracker([number])).key() for number in range(2)]

    assert keys[0] == keys[1]
    assert observe(Tracker([])).value == []


def test_a_traversal_that_is_cut_short_says_so() -> None:
    many = [[number] for number in range(200)]

    found = _reach(sys._getframe(), limit=100)

    assert not found.complete
    assert id(many) in found.references


def test_files_of_classes_that_were_met_are_the_users() -> None:
    tracker = Tracker([])

    files = _reach(sys._getframe()).user_files()

    assert __file__ in files
    assert torch.nn.Module.__init__.__code__.co_filename not in files
    assert tracker.outputs == []


def test_a_notebooks_shell_is_no_way_to_a_variable() -> None:
    # given a notebook, whose shell holds the variables' namespace once more, and is a variable itself
    class Shell:
        __module__ = "ipykernel.zmqshell"

        def __init__(self) -> None:
            self.ns_table = {"user": [object()]}

        def get_ipython(self) -> Shell:
            return self

    get_ipython = Shell().get_ipython

    found = _reach(sys._getframe())

    assert id(get_ipython.__self__.ns_table) not in found.references  # type: ignore[attr-defined]
