"""Sizes and contents of objects, read past whatever their classes define."""

from __future__ import annotations

import collections
import functools
import itertools
import threading
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tbmem.sources.program import introspection as plain


def length(container: Any) -> int:
    counted = plain.length_function(type(container))
    assert counted is not None
    return counted(container)


class Shouting(list[int]):
    def __len__(self) -> int:
        raise AssertionError("len")

    def __iter__(self) -> Any:
        raise AssertionError("iter")


@pytest.mark.parametrize(
    ("container", "length"),
    [
        ([1, 2], 2),
        (Shouting([1, 2, 3]), 3),
        ({1: 1}, 1),
        (collections.OrderedDict(a=1, b=2), 2),
        (collections.Counter("aab"), 2),
        (collections.defaultdict(list, {1: []}), 1),
        ({1, 2}, 2),
        (collections.deque([1], maxlen=3), 1),
    ],
)
def test_lengths_are_counted_in_c(container: Any, length: int) -> None:
    count = plain.length_function(type(container))

    assert count is not None
    assert count(container) == length


@pytest.mark.parametrize("kind", [tuple, str, frozenset, int, object])
def test_what_cannot_grow_has_no_length(kind: type) -> None:
    assert plain.length_function(kind) is None


@pytest.mark.parametrize("maxsize", [None, 128])
def test_entries_of_a_cache(maxsize: int | None) -> None:
    @functools.lru_cache(maxsize=maxsize)
    def squares(n: int) -> list[int]:
        return [n * n]

    for n in (1000, 2000, 1000):
        squares(n)

    assert plain.cache_entries(squares)[-2:][0][1] in ([1000**2], [2000**2])
    assert sorted(answer for _, answer in plain.cache_entries(squares)) == [[1000**2], [2000**2]]
    assert length(squares) == 2
    assert plain.bound_of(squares) == maxsize
    assert plain.wrapped_function(squares) is squares.__wrapped__


def test_an_empty_cache_has_no_entries() -> None:
    assert plain.cache_entries(functools.lru_cache(lambda n: n)) == []


def test_a_tee_keeps_what_the_slower_branch_has_not_seen() -> None:
    fast, slow = itertools.tee(iter(range(1000, 2000)))
    for _ in range(200):
        next(fast)

    assert length(slow) == 200
    assert list(plain.tee_elements(slow))[:2] == [1000, 1001]


def test_the_newest_elements_come_last() -> None:
    large = {i: i * 2 for i in range(1000)}

    assert plain.newest_of([1, 2, 3], 2) == [2, 3]
    assert plain.newest_of(collections.deque([1, 2, 3]), 2) == [2, 3]
    assert plain.newest_of(large, 2) == [1996, 1998]
    assert plain.newest_items(large, 1) == [(999, 1998)]
    assert [key for key, _ in plain.some_items(large)][:5] == [0, 1, 2, 3, 984]


class Pair(NamedTuple):
    left: int
    right: int


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class Lying:
    def __init__(self) -> None:
        self.truth = 1

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("dict")


def test_attributes_are_read_without_asking_the_object() -> None:
    local = threading.local()
    local.x = 1

    assert plain.instance_dict(SimpleNamespace(x=1)) == {"x": 1}
    assert plain.instance_dict(local) == {"x": 1}
    assert plain.instance_dict(Lying()) is None
    assert plain.slot_values(Slotted()) == [("a", 1)]
    assert plain.fields_of(Pair(1, 2)) == ("left", "right")
    assert plain.fields_of((1, 2)) == ()
