"""Circles of objects that only the collector frees are told from objects that something holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tbmem.sources.retainers.instances import cycle_attributes


class Node:
    other: Any = None


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def dropped_circle() -> int:
    first, second = Node(), Node()
    first.other, second.other = second, [first]
    return id(first)


def test_a_circle_that_was_dropped_is_garbage() -> None:
    assert cycle_attributes(dropped_circle(), id(Node)) == {"other"}


def test_a_circle_that_is_held_is_not() -> None:
    first = Node()
    first.other = first

    assert cycle_attributes(id(first), id(Node)) is None


def test_a_circle_that_another_object_holds_is_not() -> None:
    first, outside = Node(), Node()
    first.other = first
    outside.other = {"key": [first]}
    address = id(first)
    del first

    assert cycle_attributes(address, id(Node)) is None


def test_an_object_without_a_circle_is_not() -> None:
    assert cycle_attributes(id(Node), id(type)) is None
    assert cycle_attributes(12345, id(Node)) is None
