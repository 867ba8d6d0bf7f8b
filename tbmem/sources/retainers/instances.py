"""Search for classes with more and more objects that no container explains."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import plain_name
from tbmem.sources.program.syntax import SourceCode, called, creates_graph
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.candidates import MEASURED, OLDER, Bench, Candidate, not_under
from tbmem.sources.retainers.object_counts import Census, Objects, Series, class_key
from tbmem.sources.retainers.reachability import Walk
from tbmem.sources.retainers.reference_cycles import circle
from tbmem.sources.retainers.retained_size import Elsewhere

_TRIED = 3
"""Objects of a class of which one must be garbage."""


def add_contexts(bench: Bench, census: Census, objects: Objects) -> None:
    """Note users' autograd functions whose nodes hold their own output."""
    growing = census.growing_classes()
    for kind in objects.contexts():
        series = growing.get(class_key(kind))
        nodes = objects.by_kind[kind]
        names = sorted({name for node in nodes[:MEASURED] for name in _own_outputs(node)}) if series else []
        if series is None or not names:
            continue
        function = plain.class_attributes(kind).get("_forward_cls", kind)
        spoken = plain_name(function.__qualname__)
        holder = _holder(bench, HolderKind.CONTEXT, f"ctx.{names[0]} of {spoken}", kind.__name__, nodes, series)
        candidate = Candidate(class_key(kind), replace(holder, contents=Contents.GRAPHS))
        files = bench.sources.files_of(function)
        candidate.read = partial(_context_lines, bench.sources, files, spoken, names)
        bench.keep(candidate)


def _own_outputs(node: Any) -> list[str]:
    """Attributes of a node that hold a tensor which this node has made."""
    return [
        name
        for name, value in (plain.instance_dict(node) or {}).items()
        if plain.is_a(value, torch.Tensor) and value.grad_fn is node
    ]


def _context_lines(sources: SourceCode, files: tuple[str, ...], spoken: str, names: list[str]) -> list[CodeLine]:
    """The lines that set an attribute of ``ctx``, of the function itself where it is known."""
    lines = sources.attribute_lines(files, names)
    return [line for line in lines if spoken in line.function.rpartition(".")[0]] or lines


def add_leaves(bench: Bench, census: Census, objects: Objects, walk: Walk) -> None:
    """Note leaf tensors without a name whose gradient has a graph that leads back to them."""
    series = census.growing_classes().get("leaves")
    leaves = [one for one in objects.leaves_with_graphs() if id(one) not in walk.found] if series else []
    if series is None or len(leaves) < series.growth / 2:
        return
    text = "leaf tensors whose gradient has a graph that leads back to them"
    holder = _holder(bench, HolderKind.CONTEXT, text, "create_graph", leaves, series)
    files, sources = bench.files, bench.sources
    candidate = Candidate("leaves", replace(holder, contents=Contents.GRAPHS))
    candidate.read = lambda: sources.calls(files, creates_graph)
    bench.keep(candidate)


class Instances:
    """Users' classes with more and more objects, noted by address: whether they are garbage is for ``judge``."""

    def __init__(self, bench: Bench, census: Census, objects: Objects, walk: Walk, collects: bool) -> None:
        self._collects = collects
        self._bench = bench
        self._noted: list[tuple[Candidate, tuple[int, ...], str]] = []
        growing = census.growing_classes()
        for kind in objects.user_classes():
            series, ones = growing.get(class_key(kind)), objects.by_kind.get(kind, [])
            if series is not None and ones and kind not in bench.explained:
                self._note(kind, ones, series, walk)

    def _note(self, kind: type, ones: list[Any], series: Series, walk: Walk) -> None:
        bench = self._bench
        text = f"{plain_name(kind.__qualname__)} objects"
        places = [walk.found[id(one)] for one in ones if id(one) in walk.found]
        named = min(places, key=lambda place: len(place.way()), default=None)
        bench.elsewhere = Elsewhere(not_under(walk, {id(one) for one in ones}))
        way = naming.full_name(bench.namer.name(named), naming.noun(named)) if named is not None else ""
        candidate = Candidate(class_key(kind), _holder(bench, HolderKind.OBJECTS, text, kind.__name__, ones, series))
        files = tuple(dict.fromkeys((*bench.sources.files_of(kind), *bench.files)))
        candidate.read = partial(_class_lines, bench.sources, files, kind.__name__, set())
        self._noted.append((candidate, tuple(id(one) for one in ones[OLDER:][:_TRIED] or ones), way))

    def judge(self) -> None:
        """Tell garbage from objects that something holds; nobody may hold a reference to the objects meanwhile."""
        for candidate, addresses, way in self._noted:
            circles = [found for found in map(circle, addresses) if found is not None]
            if circles:
                state = "on: it may still free them" if self._collects else "off: nothing frees them"
                self._bench.notes.append(f"{candidate.holder.name} are circles; Python's collector is {state}.")
                candidate.holder = replace(candidate.holder, kind=HolderKind.GARBAGE)
                bench, names = self._bench, set().union(*circles)
                candidate.read = partial(_class_lines, bench.sources, bench.files, candidate.holder.type, names)
            elif way:
                candidate.holder = replace(candidate.holder, name=f"{candidate.holder.name}, reached from {way}")
            self._bench.keep(candidate)


def _class_lines(sources: SourceCode, files: tuple[str, ...], spoken: str, names: set[str]) -> list[CodeLine]:
    """The lines that make objects of a class, and those that close a circle."""
    return [*sources.calls(files, lambda call: called(call) == spoken), *sources.attribute_lines(files, names)]


def _holder(bench: Bench, kind: HolderKind, name: str, spoken: str, ones: list[Any], series: Series) -> Holder:
    """A holder that is a class; some of its objects are weighed after some others."""
    scale = bench.scale(with_born=False)
    scale.seen.update(map(id, ones))  # each by itself: one may lead to all the others
    weights = []
    for one in (*ones[:OLDER], *(ones[OLDER:][:MEASURED] or ones)):
        scale.seen.discard(id(one))
        weights.append(scale.weigh(one))
        if scale.is_late:
            break
    weights = weights[OLDER:] or weights
    return Holder(
        kind=kind,
        name=name,
        type=spoken,
        length=series.points[-1][1],
        per_step=series.per_step,
        contents=scale.contents(),
        bytes_per_element=sum(weights) // max(len(weights), 1),
        grows_since=series.since,
    )
