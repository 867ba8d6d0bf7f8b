"""Clauses about holders and sites, word for word."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tbmem.analysis.diagnosis.leak_text import (
    KNOWN_BY,
    advice_for,
    advice_for_all,
    as_dict,
    cause_of,
    cause_of_site,
    fills_up,
    held_by,
    site_as_dict,
    survives,
)
from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind, LineSource, Site
from tbmem.units import KIB

LINE = CodeLine(file="src/train.py", line=57, function="train", text="kept.append(x)")
LIST = Holder(
    kind=HolderKind.LIST,
    name="list 'kept'",
    lines=(LINE,),
    length=1204,
    per_step=2.0,
    contents=Contents.VIEWS,
    bytes_per_element=3 * KIB,
)
SITE = Site(stack=(LINE,), operator="aten::tanh", generations=6, steps=7, bytes_per_step=60.0 * KIB)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            "held by list 'kept' at train.py:57  kept.append(x)"
            " · 1 204 views as of step 60, each keeps its whole storage (3.00 KiB each, 6.00 KiB a step)",
        ),
        (
            {"type": "str", "name": "str 'log'", "per_step": 3.0 * KIB, "bytes_per_element": 1, "length": 5 * KIB},
            "held by str 'log' at train.py:57  kept.append(x) · 5.00 KiB as of step 60, it gains 3.00 KiB a step",
        ),
        (
            {"per_step": 1.0, "contents": Contents.TENSORS},
            "held by list 'kept' at train.py:57  kept.append(x) · 1 204 tensors as of step 60 (3.00 KiB each)",
        ),
        (
            {"per_step": 1.0, "contents": Contents.GRAPHS, "element_type": "tuple"},
            "held by list 'kept' at train.py:57  kept.append(x)"
            " · 1 204 tuples with tensors as of step 60, each keeps its graph (3.00 KiB each)",
        ),
        (
            {"per_step": 1.0, "contents": Contents.TENSORS, "element_type": "Transition", "lines": ()},
            "held by list 'kept' · 1 204 Transition objects with tensors as of step 60 (3.00 KiB each)",
        ),
        (
            {"kind": HolderKind.GRAPH, "name": "state", "lines": ()},
            "held by state · its graph, as of step 60, is 1 204 nodes long and gains 6.00 KiB a step",
        ),
        ({"kind": HolderKind.TENSOR, "name": "all", "lines": ()}, "held by all · it gains 6.00 KiB a step"),
        (
            {"kind": HolderKind.LRU_CACHE, "name": "f", "lines": (), "contents": Contents.TENSORS, "hits": 1500},
            "held by f · 1 204 tensors as of step 60 (3.00 KiB each, 6.00 KiB a step) · 1 500 hits, without a bound",
        ),
    ],
)
def test_what_holds_memory(changes: dict[str, object], text: str) -> None:
    assert held_by(replace(LIST, **changes), [], 60) == text  # type: ignore[arg-type]


def test_at_most_three_other_holders_are_named() -> None:
    others = [replace(LIST, name=f"list {name}", lines=()) for name in "abcd"]

    assert held_by(LIST, others, 60).endswith(
        " · and by list a (gains 6.00 KiB a step), list b (gains 6.00 KiB a step), list c (gains 6.00 KiB a step)"
    )


def test_a_bounded_holder_is_full_at_a_step() -> None:
    # given 12 of 40 elements, two more in each step
    holder = replace(LIST, name="deque 'buffer'", lines=(), length=12, bound=40)

    text = "deque 'buffer' fills: 12 of 40 as of step 1 000, full by about step 1 014, at 120.00 KiB"
    assert fills_up(holder, 1000) == text


def test_a_site_is_its_line_or_its_operator() -> None:
    alive = "what 6 of 7 watched steps allocated there is still alive, 60.00 KiB a step"

    assert survives(SITE, [LIST]) == (
        f"allocated at train.py:57  kept.append(x) · {alive}"
        " · grows along with it: list 'kept' at train.py:57  kept.append(x)"
    )
    nothing = "no Python object that holds it was found"
    backward = replace(SITE, stack=(), in_backward=True)
    assert survives(backward, []) == f"allocated by aten::tanh (in the backward pass) · {alive} · {nothing}"
    assert survives(replace(SITE, stack=(), operator=""), []) == f"allocated by an operator · {alive} · {nothing}"
    assert cause_of_site(backward) != cause_of_site(SITE)


@pytest.mark.parametrize("kind", HolderKind)
@pytest.mark.parametrize("contents", Contents)
def test_every_holder_has_a_cause_and_advice(kind: HolderKind, contents: Contents) -> None:
    holder = replace(LIST, kind=kind, contents=contents, hits=3)

    assert cause_of(holder)
    assert advice_for(holder, on_accelerator=False)
    assert KNOWN_BY.keys() == set(LineSource)


def test_a_kind_says_more_than_its_contents() -> None:
    hooks = replace(LIST, kind=HolderKind.HOOKS)
    cache = replace(LIST, kind=HolderKind.LRU_CACHE)

    assert "register the hook once" in advice_for(hooks, on_accelerator=False)
    # what a cache that is of use holds is the cause; one without a hit is a cause itself
    assert cause_of(replace(cache, hits=1)) == cause_of(LIST) == "a view that keeps a large storage"
    assert cause_of(replace(cache, hits=0)) == "an unbounded cache without a hit"


def test_holders_and_sites_are_plain_json() -> None:
    holder = json.loads(json.dumps(as_dict(replace(LIST, per_step=1 / 3, known_by=LineSource.SEEN))))
    site = json.loads(json.dumps(site_as_dict(SITE)))

    assert (holder["kind"], holder["contents"], holder["per_step"], holder["bytes_per_step"]) == (
        *("list", "views"),
        *(0.333, 1024),
    )
    assert (holder["line"]["line"], holder["line_known_by"]) == (57, "seen")
    assert as_dict(replace(LIST, lines=()))["line_known_by"] is None
    assert (site["watched_steps"], site["stack"][0]["text"]) == (7, "kept.append(x)")


def test_tensors_on_a_device_may_be_moved_to_the_cpu_and_those_on_the_cpu_not() -> None:
    # given
    kept = replace(LIST, contents=Contents.TENSORS)
    # then
    assert "move them to the CPU" in advice_for(kept, on_accelerator=True)
    assert "move" not in advice_for(kept, on_accelerator=False)


def test_of_a_tuple_with_a_graph_the_rest_is_kept_too() -> None:
    kept = replace(LIST, contents=Contents.GRAPHS)
    assert advice_for(kept, on_accelerator=False) == "keep it without its graph: .detach() or .item()"
    assert "of the rest only what is needed" in advice_for(replace(kept, element_type="tuple"), on_accelerator=False)


def test_what_several_objects_hold_needs_what_each_of_them_needs() -> None:
    # given
    graphs = replace(LIST, name="Log.outputs", contents=Contents.GRAPHS)
    copies = [replace(LIST, name=name, contents=Contents.TENSORS) for name in ("Log.seen", "Log.also")]
    # when / then
    assert advice_for_all((graphs,), on_accelerator=False) == "keep it without its graph: .detach() or .item()"
    assert advice_for_all((graphs, graphs), on_accelerator=False) == "keep it without its graph: .detach() or .item()"
    assert re.fullmatch(
        r"Log\.outputs: keep it without its graph: \.detach\(\) or \.item\(\); Log\.seen: keep only what is needed.*",
        advice_for_all((graphs, *copies), on_accelerator=False),
    )


@pytest.mark.parametrize(
    ("registry", "cause", "cure"),
    [
        ("Gcf.figs", "figures that are never closed", "plt.close(fig)"),
        ("Axes._children", "lines that are added to the same plot", "plt.cla()"),
    ],
)
def test_the_registry_of_a_package_has_a_cure_of_its_own(registry: str, cause: str, cure: str) -> None:
    # given pyplot's table of open figures, or what is drawn into one of them
    holder = replace(LIST, name=registry, contents=Contents.OBJECTS)
    # then
    assert cause_of(holder) == cause
    assert cure in advice_for(holder, on_accelerator=False)


def test_functions_are_counted_as_what_they_are() -> None:
    # given
    callbacks = replace(LIST, kind=HolderKind.CALLBACKS, name="atexit's callbacks", length=26)
    # then
    assert "26 callbacks as of step 60 (" in held_by(callbacks, [], 60)
