"""Containers that grow: with hand-made counts, how they are found, named, bounded and merged."""

from __future__ import annotations

import functools
import gc
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch

from tbmem.model.evidence import HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.retainers.candidates import SearchContext
from tbmem.sources.retainers.containers import Grown, add_container, add_filling, grown_containers, with_grown_inside
from tbmem.sources.retainers.object_counts import Series
from tbmem.sources.retainers.reachability import Traversal
from tbmem.sources.retainers.variables import VariableHistories
from tests.sources.retainers.test_search import hunt_in

LOOKS = (20, 26, 32)
KEPT_BY_THE_MODULE: dict[str, Any] = {"of": {"this": [0] * 26}}


@pytest.fixture(autouse=True, scope="module")
def what_is_older_is_frozen() -> None:
    """Nothing is: what this file and libraries keep is found by its referrers, which frozen objects are not among."""
    gc.unfreeze()


def _series(length: int) -> Series:
    """One more in each step."""
    return Series([(20, length - 12), (26, length - 6), (32, length)])


def _grown(traversal: Traversal, by_kind: dict[type, list[Any]]) -> list[Grown]:
    """The containers of each kind, which have all grown; nothing else that is left here refers to them."""
    growing = {id(one): _series(26) for found in by_kind.values() for one in found}
    counts: Any = SimpleNamespace(growing_containers=lambda: growing)
    objects: Any = SimpleNamespace(containers=lambda: list(by_kind.items()), by_kind=by_kind)
    return grown_containers(counts, objects, traversal)


def _reach(frame: FrameType | None, limit: int = 60_000) -> Traversal:
    return Traversal(limit, 60.0, frame)


def _added(*grown: Grown) -> SearchContext:
    context = SearchContext(SourceCode(), set(), None)
    for reference, series in grown:
        add_container(context, reference, series)
    return context


def test_a_container_is_found_with_the_path_to_it() -> None:
    # given
    history = {"loss": [0.5] * 26}
    # when
    ((reference, series),) = _grown(_reach(sys._getframe()), {list: [history["loss"]]})
    (candidate,) = _added((reference, series)).sorted()
    # then
    assert [each.label for each in reference.path()] == ["history", "loss"]
    holder = candidate.holder
    assert holder.name == "list history['loss'] in test_a_container_is_found_with_the_path_to_it()"
    assert (holder.kind, holder.length, holder.per_step, holder.grows_since) == (HolderKind.LIST, 26, 1.0, 26)


def test_a_container_that_the_traversal_has_missed_is_found_by_its_referrers() -> None:
    # given a traversal that ends before it looks into anything
    missed = KEPT_BY_THE_MODULE["of"]["this"]
    # when
    ((reference, _),) = _grown(_reach(None, limit=0), {list: [missed]})
    # then
    assert [each.label for each in reference.path()] == ["KEPT_BY_THE_MODULE", "of", "this"]


def test_of_many_that_grow_alike_the_longest_is_found_by_its_referrers() -> None:
    # given a list of buffers that get as much in each step as the list does, all out of sight
    kept = KEPT_BY_THE_MODULE["of"]["this"]
    buffers = [[0] * 20 for _ in range(30)]
    growing = {id(one): _series(26 if one is kept else 20) for one in (*buffers, kept)}
    counts: Any = SimpleNamespace(growing_containers=lambda: growing)
    objects: Any = SimpleNamespace(containers=lambda: [(list, [*buffers, kept])], by_kind={})
    # when
    found = grown_containers(counts, objects, _reach(None, limit=10))
    # then
    assert any(reference.value is kept for reference, _ in found)


def test_modules_that_are_imported_late_are_no_leak() -> None:
    assert _grown(_reach(sys._getframe()), {dict: [sys.modules]}) == []


def test_bounds_and_hits_are_those_of_the_container() -> None:
    # given a deque that is not full, and a cache that was hit twice
    window = deque(range(26), maxlen=40)

    @functools.lru_cache(maxsize=100)
    def mask_for(n: int) -> list[int]:
        return [n]

    for number in (*range(26), 3, 4):
        mask_for(number)
    cache: Any = mask_for
    # when
    found = _added(*_grown(_reach(sys._getframe()), {deque: [window], type(cache): [cache]})).sorted()
    # then
    holders = {each.holder.kind: each.holder for each in found}
    assert holders[HolderKind.DEQUE].bound == 40
    assert holders[HolderKind.LRU_CACHE].bound == 100
    assert holders[HolderKind.LRU_CACHE].hits == 2
    here = "test_bounds_and_hits_are_those_of_the_container"
    assert holders[HolderKind.LRU_CACHE].name == f"lru_cache of {here}.mask_for()"


def test_the_dict_inside_a_cache_is_no_holder_where_the_cache_is_frozen() -> None:
    # given a cache that the collector does not show
    cached: Any = functools.lru_cache(maxsize=100)(abs)
    gc.collect()
    gc.freeze()
    for number in range(26):
        cached(number)
    (entries,) = [one for one in gc.get_referents(cached) if type(one) is dict and len(one) == 26]
    # when
    grown = _grown(_reach(sys._getframe()), {dict: [entries]})
    gc.unfreeze()
    # then
    assert grown == []


def test_an_element_that_was_put_in_meanwhile_is_no_holder_beside_its_container() -> None:
    # given a buffer of episodes; the list of the last one has the address of one that grew before
    episodes = deque([[0.5] * 10 for _ in range(26)], maxlen=60)
    last = episodes[-1]  # a variable is nearer than the buffer
    # when
    grown = _grown(_reach(sys._getframe()), {deque: [episodes], list: [episodes[0], last]})
    # then: one that was there before is filled, and may be a holder
    assert [id(reference.value) for reference, _ in grown] == [id(episodes), id(episodes[0])]


def test_a_container_that_was_emptied_meanwhile_is_no_holder() -> None:
    buffer = [0.5] * 26
    grown = _grown(_reach(sys._getframe()), {list: [buffer]})
    del buffer[3:]

    assert _added(*grown).sorted() == []


def _observed(add: Callable[[], None], frame: FrameType) -> tuple[VariableHistories, Traversal]:
    """The histories of all variables, while something adds what six steps add before each look."""
    histories = VariableHistories()
    for step in LOOKS:
        add()
        traversal = _reach(frame)
        histories.look(step, traversal.references.values())
    return histories, traversal


def _numbers_to(*lists: list[int]) -> None:
    for one in lists:
        one.extend([0] * 6)


@pytest.mark.parametrize(("count", "merged"), [(20, True), (2, False)])
def test_many_lists_that_grow_alike_are_one_holder(count: int, merged: bool) -> None:
    # given a list for each layer
    by_layer: dict[str, list[int]] = {f"layer {number}": [] for number in range(count)}
    frame = sys._getframe()
    histories, traversal = _observed(lambda: _numbers_to(*by_layer.values()), frame)
    grown = [(traversal.references[id(one)], _series(18)) for one in by_layer.values()]
    # when
    single, filling = with_grown_inside(grown, histories, traversal)
    del frame
    # then
    assert len(single) == (0 if merged else count)
    assert [reference.label for reference, _ in filling] == (["by_layer"] if merged else [])


def test_the_dict_of_an_object_is_no_holder_beside_its_attribute() -> None:
    # given an object with a list, whose attributes a variable holds too
    one = SimpleNamespace(kept=[])
    attributes = one.__dict__
    frame = sys._getframe()
    histories, traversal = _observed(lambda: _numbers_to(one.kept), frame)
    grown = [(traversal.references[id(one.kept)], _series(18))]
    # when
    single, filling = with_grown_inside(grown, histories, traversal)
    del frame
    # then
    assert id(attributes) in traversal.references
    assert single == grown
    assert filling == []


def test_a_list_of_dicts_explains_all_that_its_object_gains() -> None:
    # given an object whose list gets a dict of two a step, whose attributes a variable holds too
    one = SimpleNamespace(outputs=[])
    attributes = one.__dict__
    frame = sys._getframe()
    histories, traversal = _observed(
        lambda: one.outputs.extend({"loss": 0.5, "features": [0.5]} for _ in range(6)), frame
    )
    grown = [(traversal.references[id(one.outputs)], _series(18))]
    # when
    single, filling = with_grown_inside(grown, histories, traversal)
    del frame
    # then
    assert id(attributes) in traversal.references
    assert single == grown
    assert filling == []


def test_the_rate_of_a_container_is_that_of_all_in_it() -> None:
    # given
    by_layer: dict[str, list[int]] = {f"layer {number}": [] for number in range(20)}
    frame = sys._getframe()
    histories, traversal = _observed(lambda: _numbers_to(*by_layer.values()), frame)
    del frame
    _, ((reference, series),) = with_grown_inside([], histories, traversal)
    context = SearchContext(SourceCode(), set(), None)
    # when
    add_filling(context, reference, series)
    # then 20 lists with 18 numbers each
    (candidate,) = context.sorted()
    here = "test_the_rate_of_a_container_is_that_of_all_in_it"
    assert candidate.holder.name == f"dict 'by_layer' in {here}(), in its elements"
    assert (candidate.holder.length, candidate.holder.per_step) == (360, 20.0)


def test_figures_that_are_never_closed_are_held_by_pyplots_registry() -> None:
    # given
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")

    def step(i: int) -> None:
        pyplot.figure(figsize=(1, 1)).canvas.draw()

    # when
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more than 20 figures are open
        holders, _ = hunt_in(step)
    pyplot.close("all")
    # then
    assert holders[0].name == "Gcf.figs"
    assert holders[0].bytes_per_element >= 100 * 100 * 4
    assert [line.text for line in holders[0].lines] == ["pyplot.figure(figsize=(1, 1)).canvas.draw()"]


def test_lines_that_pile_up_in_a_plot_are_held_by_its_axes() -> None:
    # given a program that draws into the same axes again and again; each line keeps their ``remove``
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    pyplot.figure(figsize=(1, 1))

    def step(i: int) -> None:
        pyplot.plot([i, i + 1], [0, 1], "r-")

    # when
    holders, _ = hunt_in(step)
    pyplot.close("all")
    # then
    assert holders[0].name == "Axes._children"
    assert [line.text for line in holders[0].lines] == ['pyplot.plot([i, i + 1], [0, 1], "r-")']


def test_finalizers_of_what_lives_for_ever_are_held_by_their_registry() -> None:
    # given: a cache of tbmem's own has the registry's class as a key
    plain.length_function(weakref.finalize)
    model = torch.nn.Linear(2, 2)

    def step(i: int) -> None:
        weakref.finalize(model, print, torch.ones(1000))

    # when
    holders, _ = hunt_in(step)
    for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        each.detach()
    # then
    assert holders[0].name == "finalize._registry"
    assert [line.text for line in holders[0].lines] == ["weakref.finalize(model, print, torch.ones(1000))"]
