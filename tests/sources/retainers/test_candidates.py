"""The context of a search: what elements weigh, what is merged, and what counts as there before."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

from tbmem.model.evidence import Contents, Holder, HolderKind
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.retainers.candidates import Candidate, SearchContext, mean_of_new, not_under
from tbmem.sources.retainers.object_counts import Series
from tbmem.sources.retainers.reachability import Traversal
from tbmem.units import KIB

SERIES = Series([(20, 14), (26, 20), (32, 26)])
"""One element in each step."""


def _context(initial: set[tuple[int, int]] | None = None) -> SearchContext:
    return SearchContext(SourceCode(), initial or set(), None)


def _holder(name: str, per_step: float, size: int, kind: HolderKind = HolderKind.LIST) -> Holder:
    return Holder(kind=kind, name=name, length=10, per_step=per_step, bytes_per_element=size)


def test_elements_weigh_what_each_of_them_adds() -> None:
    # given tensors of 4 KiB
    kept = [torch.zeros(KIB) for _ in range(26)]
    # when
    size, contents = _context().element_size(kept, SERIES)
    # then
    assert 4 * KIB <= size < 5 * KIB
    assert contents is Contents.TENSORS


def test_what_the_elements_share_weighs_nothing_more() -> None:
    # given records of their own list of 100 places, which share 1 MiB
    shared = torch.zeros(256 * KIB)
    kept = [[shared, *range(100)] for _ in range(26)]
    # when
    size, _ = _context().element_size(kept, SERIES)
    # then
    assert 800 <= size < 8 * KIB


def test_tensors_that_were_there_before_weigh_nothing() -> None:
    # given a list of parameters that were seen at the first observation
    kept = [torch.zeros(KIB) for _ in range(26)]
    initial = {(id(one), one.data_ptr()) for one in kept}
    # when
    size, _ = _context(initial).element_size(kept, SERIES)
    # then
    assert size < KIB


def test_holders_of_one_name_are_one_and_the_largest_comes_first() -> None:
    # given two lists of one name, with 1 and 3 new elements of 100 and 300 bytes, and a dict of that name
    context = _context()
    for number, holder in enumerate(
        [
            _holder("Tracker.seen", 1.0, 100),
            _holder("Tracker.seen", 3.0, 300),
            _holder("Tracker.seen", 1.0, 10, HolderKind.DICT),
            _holder("cache", 2.0, 5000),
        ]
    ):
        context.add(Candidate(number, holder))
    # when
    holders = [each.holder for each in context.sorted()]
    # then the bytes per step of both are kept: 100 + 900
    assert [(each.name, each.kind) for each in holders] == [
        ("cache", HolderKind.LIST),
        ("Tracker.seen", HolderKind.LIST),
        ("Tracker.seen", HolderKind.DICT),
    ]
    assert (holders[1].per_step, holders[1].length, holders[1].bytes_per_element) == (4.0, 20, 250)
    assert holders[1].bytes_per_step == 1000


def test_the_mean_is_that_of_the_new_elements() -> None:
    # given what three older ones took with them for the first time
    assert mean_of_new([9000, 50, 40, 100, 200]) == 150
    assert mean_of_new([10, 20]) == 15
    assert mean_of_new([]) == 0


def test_what_lies_in_something_that_grows_is_not_there_before() -> None:
    # given
    growing: list[Any] = [{"record": [1.5]}]
    model = {"weight": [2.5]}
    # when
    traversal = Traversal(60_000, 60.0, sys._getframe())
    before = set(map(id, not_under(traversal, {id(growing)})))
    # then
    assert id(model["weight"]) in before
    assert id(growing) not in before
    assert not before & {id(growing[0]), id(growing[0]["record"])}


def test_a_probe_is_kept_by_its_candidates_key() -> None:
    context = _context()
    probe: Any = partial(print)

    context.add(Candidate("with", _holder("a", 1.0, 1)), probe)
    context.add(Candidate("without", _holder("b", 1.0, 1)))

    assert context.probes == {"with": probe}


def test_the_type_of_elements_is_named_where_they_are_no_tensors_and_have_one() -> None:
    # given
    class Transition:
        """A user's record."""

    tensor = torch.zeros(1)
    # when
    of = _context().element_type
    # then
    assert of([(tensor, tensor) for _ in range(9)]) == "tuple"
    assert of([Transition() for _ in range(9)]) == "Transition"
    assert of({step: [tensor] for step in range(9)}) == "list"
    assert of([tensor] * 9) == ""
    assert of([tensor, (tensor,)] * 9) == ""
    assert of([]) == ""
