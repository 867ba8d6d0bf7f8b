"""Search for classes with more and more objects that no container explains, and for reference cycles among them."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

import torch

from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import plain_name
from tbmem.sources.program.syntax import SourceCode, called, creates_graph
from tbmem.sources.program.tracked_objects import object_at
from tbmem.sources.retainers.candidates import MEASURED, OLDER, Candidate, SearchContext, mean_of_new, not_under
from tbmem.sources.retainers.object_counts import ObjectCounts, ObjectTable, Series, class_key
from tbmem.sources.retainers.reachability import Traversal
from tbmem.sources.retainers.retained_size import BaselineObjects

_TRIED = 3  # objects of a class of which one must be garbage
_LARGEST_GROUP = 4000
Noted = list[tuple[Candidate, int, tuple[int, ...], str]]  # class, ids of it and of a few objects, name of the first
_NOT_FOLLOWED = (ModuleType, CodeType, BuiltinFunctionType, FrameType)


def add_contexts(context: SearchContext, counts: ObjectCounts, objects: ObjectTable) -> None:
    """Note users' autograd functions whose nodes hold their own output."""
    growing = counts.growing_classes()
    for kind in objects.contexts():
        series = growing.get(class_key(kind))
        nodes = objects.by_kind[kind]
        # attributes of a node that hold a tensor which this node has computed
        attributes = [(node, *item) for node in nodes[:MEASURED] for item in (plain.instance_dict(node) or {}).items()]
        own = {name for node, name, value in attributes if plain.is_a(value, torch.Tensor) and value.grad_fn is node}
        names = sorted(own) if series is not None else []
        if series is None or not names:
            continue
        function = plain.class_attributes(kind).get("_forward_cls", kind)
        function_name = plain_name(function.__qualname__)
        text = f"ctx.{names[0]} of {function_name}"
        holder = holder_of(context, HolderKind.CONTEXT, text, kind.__name__, nodes, series)
        files = context.sources.files_of(function)
        lines = context.sources.attribute_lines(files, names)
        lines = [line for line in lines if function_name in line.function.rpartition(".")[0]] or lines
        candidate = Candidate(class_key(kind), replace(holder, contents=Contents.GRAPHS), read=partial(tuple, lines))
        context.add(candidate)


def add_leaves(context: SearchContext, counts: ObjectCounts, objects: ObjectTable, traversal: Traversal) -> None:
    """Note leaf tensors without a name whose gradient has a graph that leads back to them."""
    series = counts.growing_classes().get("leaves")
    leaves = [one for one in objects.leaves_with_graphs() if id(one) not in traversal.references] if series else []
    if series is None or len(leaves) < series.growth / 2:
        return
    text = "leaf tensors whose gradient has a graph that leads back to them"
    holder = holder_of(context, HolderKind.CONTEXT, text, "create_graph", leaves, series)
    read = partial(context.sources.calls, context.files, creates_graph)
    context.add(Candidate("leaves", replace(holder, contents=Contents.GRAPHS), read=read))


def noted_classes(context: SearchContext, counts: ObjectCounts, objects: ObjectTable, traversal: Traversal) -> Noted:
    """Users' classes with more and more objects, for ``add_classes``; holds none of the objects."""
    growing = counts.growing_classes()
    noted = []
    for kind in objects.user_classes():
        series, instances = growing.get(class_key(kind)), objects.by_kind[kind]
        if series is None or kind in context.explained:
            continue
        references = [traversal.references[id(one)] for one in instances if id(one) in traversal.references]
        named = min(references, key=lambda reference: len(reference.path()), default=None)
        context.baseline = BaselineObjects(not_under(traversal, {id(one) for one in instances}))
        text = f"{plain_name(kind.__qualname__)} objects"
        holder = holder_of(context, HolderKind.OBJECTS, text, kind.__name__, instances, series)
        files = tuple(dict.fromkeys((*context.sources.files_of(kind), *context.files)))
        read = partial(_class_lines, context.sources, files, kind.__name__)
        addresses = tuple(id(one) for one in instances[OLDER:][:_TRIED] or instances)
        path = context.name(named).text if named is not None else ""
        noted.append((Candidate(class_key(kind), holder, read=read), id(kind), addresses, path))
    return noted


def add_classes(context: SearchContext, classes: Noted, collects: bool) -> None:
    """Add what was noted, garbage marked as such; nobody may hold a reference to the objects meanwhile."""
    for candidate, kind, addresses, path in classes:
        holder = candidate.holder
        found = (cycle_attributes(address, kind) for address in addresses)
        cycles = [names for names in found if names is not None]
        if cycles:
            state = "on: it may still free them" if collects else "off: nothing frees them"
            context.notes.append(f"{holder.name} are circles; Python's collector is {state}.")
            candidate.holder = replace(holder, kind=HolderKind.GARBAGE)
            names = set().union(*cycles)
            candidate.read = partial(_class_lines, context.sources, context.files, holder.type, names)
        elif path:
            candidate.holder = replace(holder, name=f"{holder.name}, reached from {path}")
        context.add(candidate)


def _class_lines(sources: SourceCode, files: tuple[str, ...], kind: str, names: Iterable[str] = ()) -> list[CodeLine]:
    """The lines that create objects of a class, and those that close a cycle."""
    creating = sources.calls(files, lambda call: called(call) == kind)
    return [*creating, *sources.attribute_lines(files, names)]


def holder_of(
    context: SearchContext, kind: HolderKind, name: str, class_name: str, instances: list[Any], series: Series
) -> Holder:
    """A holder that is a class; some of its objects are measured after some others."""
    retained = context.retained_size(with_initial=False)
    retained.seen.update(map(id, instances))  # each by itself: one may lead to all the others
    sizes = []
    for one in (*instances[:OLDER], *(instances[OLDER:][:MEASURED] or instances)):
        retained.seen.discard(id(one))
        sizes.append(retained.measure(one))
        if retained.is_late:
            break
    return series.holder(kind, name, class_name, mean_of_new(sizes), retained.contents())


def cycle_attributes(address: int, kind: int) -> set[str] | None:
    """The attributes that keep an object alive by leading back to it; ``None`` where something else holds it.

    All that the object leads to is gathered, and the references inside are compared with the number that each object
    has: one with more of them is held from outside, and so is all that it leads to. The object is given by its
    ``id`` and that of its class: every reference of the caller's would count as a holder.
    """
    group = [object_at(address, kind)]
    if group[0] is None or not _gather(group):
        return None
    inside: Counter[int] = Counter()
    for member in group:
        inside.update(map(id, gc.get_referents(member)))
    del member
    held = [i for i, number in enumerate(_reference_counts(group)) if number - _OUR_REFERENCES > inside[id(group[i])]]
    if _leads_to(group, held, address):
        return None
    attributes = plain.instance_dict(group[0]) or {}
    return {name for name, value in attributes.items() if _returns(value, group[0])}


def _gather(group: list[Any]) -> bool:
    """Add all that the first member leads to, without what exists anyway; ``False`` where that is too much."""
    namespaces = {id(module.__dict__) for module in list(sys.modules.values()) if type(module) is ModuleType}
    members = {id(group[0])}
    for member in group:
        for one in gc.get_referents(member):
            if id(one) in members or id(one) in namespaces or not gc.is_tracked(one) or _is_not_followed(one):
                continue
            members.add(id(one))
            group.append(one)
            if len(group) > _LARGEST_GROUP:
                return False
    return True


def _is_not_followed(one: Any) -> bool:
    return type(one) in _NOT_FOLLOWED or type in plain.mro(type(one))


def _reference_counts(group: list[Any]) -> list[int]:
    return [sys.getrefcount(member) for member in group]


_OUR_REFERENCES = _reference_counts([object()])[0]  # the list's, the variable's, the argument's


def _leads_to(group: list[Any], held: list[int], address: int) -> bool:
    unseen = {id(member) for member in group}
    queue = [group[i] for i in held]
    while queue and address in unseen:
        one = queue.pop()
        if id(one) in unseen:
            unseen.remove(id(one))
            queue += gc.get_referents(one)
    return address not in unseen


def _returns(value: Any, one: Any) -> bool:
    """Whether a value leads back to an object, directly or past a few others."""
    near = [value]
    for _ in range(4):
        if any(each is one for each in near):
            return True
        near = [each for each in gc.get_referents(*near) if gc.is_tracked(each) and not _is_not_followed(each)][:200]
    return False
