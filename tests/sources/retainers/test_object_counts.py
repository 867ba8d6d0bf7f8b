"""What grows from look to look, by length and by number."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tbmem.sources.retainers.object_counts import ObjectCounts, ObjectTable, Series, class_key


def series(*points: tuple[int, int]) -> Series:
    return Series(list(points))


@pytest.mark.parametrize(
    ("points", "growing", "per_step"),
    [
        (((0, 10), (10, 20), (20, 30)), True, 1.0),
        (((0, 10), (10, 10), (20, 30)), False, 2.0),
        (((0, 10), (10, 11), (20, 12)), True, 0.1),
        (((0, 10), (10, 20), (20, 5)), False, None),
        (((0, 10), (10, 12), (20, 12), (30, 13)), True, 0.1),
        (((0, 0), (10, 2), (20, 22)), True, 2.0),
    ],
)
def test_growth_is_two_rises_and_no_fall(
    points: tuple[tuple[int, int], ...], growing: bool, per_step: float | None
) -> None:
    found = series(*points)

    assert found.is_growing is growing
    if per_step is not None:
        assert found.per_step == pytest.approx(per_step)


def test_the_first_rise_is_remembered() -> None:
    assert series((5, 1), (6, 1), (7, 2), (8, 3)).since == 7


class Thing:
    def __init__(self) -> None:
        self.me: Any = None


def test_containers_and_classes_that_grow_are_found() -> None:
    # given one list that grows, one that does not, and objects that become more
    grows: list[int] = [1]
    stays = [1, 2, 3]
    things = [Thing()]
    counts = ObjectCounts()

    # when they are looked at three times
    for step in (10, 16, 22):
        counts.look(step, ObjectTable())
        grows.extend(range(6))
        things.append(Thing())

    # then
    growing = counts.growing_containers()
    assert growing[id(grows)].points == [(10, 1), (16, 7), (22, 13)]
    assert growing[id(grows)].per_step == 1.0
    assert id(stays) not in growing
    assert counts.growing_classes()[class_key(Thing)].points == [(10, 1), (16, 2), (22, 3)]


def test_a_list_that_is_emptied_does_not_grow() -> None:
    items = [1]
    counts = ObjectCounts()
    for step in range(4):
        counts.look(step, ObjectTable())
        items.append(step)
        if step == 2:
            items.clear()

    assert id(items) not in counts.growing_containers()


def test_all_objects_are_let_go_of() -> None:
    gc.disable()
    try:
        before = sum(type(one) is ObjectTable for one in gc.get_objects())
        ObjectTable()
        assert sum(type(one) is ObjectTable for one in gc.get_objects()) == before
    finally:
        gc.enable()
