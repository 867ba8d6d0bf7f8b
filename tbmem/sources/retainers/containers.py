"""Search for containers that grow: names, bytes and bounds, and the referrers of those that no variable leads to."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import BuiltinMethodType, FrameType, MethodType, ModuleType
from typing import Any

from tbmem.interruption import raise_interruption
from tbmem.model.evidence import CodeLine, Contents, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_our_class, is_our_module, is_ours, is_user_file, plain_name
from tbmem.sources.program.syntax import Handle, SourceCode, called, definition_line
from tbmem.sources.program.tracked_objects import referrers
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.candidates import CHANGED, Candidate, LineSearch, SearchContext, mean_of_new
from tbmem.sources.retainers.length_bounds import written_bound
from tbmem.sources.retainers.naming import Name
from tbmem.sources.retainers.object_counts import ObjectCounts, ObjectTable, Series
from tbmem.sources.retainers.probes import SizeProbe, reader_of
from tbmem.sources.retainers.reachability import Reference, ReferenceKind, RootScope, Traversal
from tbmem.sources.retainers.retained_size import elements_of, entry_bytes
from tbmem.sources.retainers.variables import VariableHistories, inner_length

_NAMELESS = 12  # containers without a name whose referrers are searched
_EXPLAINED = 0.8
_MANY_ALIKE = 8  # containers inside another one with even shares of the growth: the other is the holder then
_SMALL = 256  # bytes per step below which what a library holds is of no interest
_OURS = "tbmem"  # module of the scope of what belongs to tbmem
_MOST_NEW = 1000  # new elements of a container that are looked for among those that grow
_SHARED_STORAGES = "torch.multiprocessing.reductions"
"""Module of the cache of storages that other processes share with this one, which clears itself now and then."""
_LEVELS = 5
_WIDEST = 400  # referrers that are followed in one level
_METHODS = (MethodType, BuiltinMethodType)
_ONLY_READ = (HolderKind.LRU_CACHE, HolderKind.ITERATOR)
Grown = tuple[Reference, Series]


def grown_containers(counts: ObjectCounts, objects: ObjectTable, traversal: Traversal) -> list[Grown]:
    """Containers that have become longer, with the path to each."""
    growing = counts.growing_containers()
    containers: dict[int, Any] = {}
    for _, instances in objects.containers():
        containers.update({id(one): one for one in instances if id(one) in growing})
    references = {key: traversal.references[key] for key in containers if key in traversal.references}
    # of equal ones the longest: a list of buffers that each gain as much is the oldest of them
    nameless = sorted(
        (one for key, one in containers.items() if key not in references),
        key=lambda one: (-growing[id(one)].growth, -growing[id(one)].points[-1][1]),
    )
    if nameless:
        del nameless[_NAMELESS:]
        references.update(_paths_to(nameless, traversal, [containers, *objects.by_kind.values()]))
    own = [each for each in references.values() if not (_is_of_cache(each) or _is_known(each))]
    # modules that are imported when they are first used come once
    new = _new_elements(containers, growing)
    kept = [each for each in own if each.value is not sys.modules and id(each.value) not in new]
    return [(each, growing[id(each.value)]) for each in kept]


def _is_of_cache(reference: Reference) -> bool:
    """Whether it is the dict inside an ``lru_cache``, which is counted with the cache.

    Its values tell it where the cache is not found: after ``gc.freeze``, referrers that were frozen are not.
    """
    if type(reference.holder) is plain.LruCache:
        return True
    try:
        return type(reference.value) is dict and any(map(plain.is_cache_entry, plain.newest_of(reference.value, 1)))
    except RuntimeError:  # another thread has changed it
        return False


def _new_elements(containers: Mapping[int, Any], growing: Mapping[int, Series]) -> set[int]:
    """Addresses of what was put into containers that grow since these have been observed.

    Others had their addresses before: the list of each episode, in a buffer of episodes, also where a variable holds
    the last one.
    """
    new: set[int] = set()
    for key, one in containers.items():
        try:
            new.update(map(id, plain.newest_of(one, min(growing[key].growth, _MOST_NEW))))
        except RuntimeError as error:  # another thread has changed it
            raise_interruption(error)
    return new


def _is_known(reference: Reference) -> bool:
    """Whether it belongs to tbmem, or to torch, which bounds it."""
    wrapped = plain.wrapped_function(reference.value) if type(reference.value) is plain.LruCache else None
    is_known = reference.scope.module == _OURS or plain.module_of(type(reference.value)) == _SHARED_STORAGES
    return is_known or (wrapped is not None and is_ours(wrapped.__code__.co_filename))


def add_container(context: SearchContext, reference: Reference, series: Series, *, is_emptied: bool = False) -> None:
    """Note one container that grows; ``is_emptied``: it keeps no element from one observation to the next."""
    value = reference.value
    length = plain.length_function(type(value))
    if length is None or length(value) < series.points[-1][1]:
        return
    kind = naming.kind_of(reference)
    name = _name(context, reference, kind)
    size, contents = context.element_size(value, series)
    bound = _bound(reference)
    read = written_bound(reference, name.handle, context.sources) if bound is None and name.is_users else None
    contents = Contents.HOOKS if kind is HolderKind.HOOKS else contents
    holder = series.holder(kind, name.text, naming.type_name(reference), size, contents)
    holder = replace(
        holder,
        length=length(value),
        bound=bound if bound is not None else read,
        is_emptied=is_emptied,
        element_type=context.element_type(value),
    )
    if kind is HolderKind.LRU_CACHE:
        holder = replace(holder, hits=plain.LruCache.cache_info(value).hits)  # type: ignore[attr-defined]
    if not name.is_users and holder.bytes_per_step < _SMALL:
        return
    candidate = Candidate(id(value), holder, name.handle, only_read=kind in _ONLY_READ, bound_is_read=read is not None)
    candidate.read = _line_search(context, reference, candidate, name.is_users)
    context.add(candidate, SizeProbe(value, length, reader_of(reference)))


def _name(context: SearchContext, reference: Reference, kind: HolderKind) -> Name:
    wrapped = plain.wrapped_function(reference.value) if kind is HolderKind.LRU_CACHE else None
    if wrapped is not None:
        text = f"lru_cache of {plain_name(wrapped.__qualname__)}()"
        return Name(text, is_users=is_user_file(wrapped.__code__.co_filename))
    if kind is HolderKind.HOOKS and isinstance(reference.owner, Reference):
        owner = context.name(reference.owner)
        label = str(reference.label).strip("_").replace("_", " ")
        return owner._replace(text=f"{label} of {owner.text}")
    return context.name(reference)


def _line_search(context: SearchContext, reference: Reference, candidate: Candidate, is_users: bool) -> LineSearch:
    """Looks for the lines in the source; holds no object."""
    kind, handle, files, sources = candidate.holder.kind, candidate.handle, context.files, context.sources
    read: LineSearch = partial(sources.adding_lines, handle, files)
    if kind is HolderKind.LRU_CACHE:
        wrapped = plain.wrapped_function(reference.value)
        read = partial(list, [] if wrapped is None else [definition_line(wrapped, sources)])
    elif kind is HolderKind.ITERATOR:
        read = partial(_lines_of_iterator, sources, handle, files, candidate.holder.type)
    if is_users:
        return read
    # for a library's own table the user's lines that create its elements (a ``Thread``)
    kinds = map(type, plain.newest_of(reference.value, 1))
    names = {one.__name__ for one in kinds if plain.module_of(one).partition(".")[0] not in ("builtins", "torch")}
    return (lambda: sources.calls(files, lambda call: called(call) in names) or read()) if names else read


def _lines_of_iterator(sources: SourceCode, handle: Handle, files: tuple[str, ...], class_name: str) -> list[CodeLine]:
    """Where the variable that holds an iterator was set, or else where one is created."""
    lines = [line for line, _ in sources.assignments(handle, files)] if handle.root else []
    if lines:
        return [line for line in lines if class_name in line.text] or lines
    return sources.calls(files, lambda call: called(call) == class_name)


def _bound(reference: Reference) -> int | None:
    """``maxlen``, ``maxsize``; that of a ``queue.Queue`` for the deque in it."""
    if plain.module_of(type(reference.holder)) == "queue":
        size = (plain.instance_dict(reference.holder) or {}).get("maxsize")
        return size if type(size) is int and size > 0 else None
    return plain.bound_of(reference.value)


def with_grown_inside(
    containers: list[Grown], histories: VariableHistories, traversal: Traversal
) -> tuple[list[Grown], list[Grown]]:
    """The containers that are in none of those in which many become longer, each too little by itself; and those.

    Lists by class get an element now and then; a list for each layer gets one number a step.
    """
    growing = {id(reference.value) for reference, _ in containers}

    def can_hold(value: Any) -> bool:
        bases = plain.mro(type(value))
        return (dict in bases or list in bases or tuple in bases) and id(value) not in growing

    grown = histories.references(traversal, lambda history: history.inner.is_growing, can_hold)
    # with what their elements hold: a list of dicts has as many more, and is in an object's dict by itself
    known = [(reference, series.per_step + histories.inner_rate(reference)) for reference, series in containers]
    filling = []
    for reference, history in reversed(grown):  # what is deeper first
        rate = history.inner.per_step
        below = [other_rate for other, other_rate in known if _is_below(other, reference)]
        if sum(below) < _EXPLAINED * rate or max(below) <= rate / _MANY_ALIKE:
            filling.append((reference, history.inner))
            known.append((reference, rate))
    return [each for each in containers if not any(_is_below(each[0], above) for above, _ in filling)], filling


def _is_below(reference: Reference, above: Reference) -> bool:
    # what lies in an object's ``__dict__`` is found as its attributes
    return any(each is above or plain.instance_dict(each.value) is above.value for each in reference.path()[:-1])


def add_filling(context: SearchContext, reference: Reference, series: Series) -> None:
    """Note one container with others in it that become longer."""
    name = context.name(reference)
    retained = context.retained_size(with_initial=False)
    sizes: list[int] = []
    try:
        for inner in (part for parts in elements_of(reference.value, plain.LARGE) for part in parts):
            if plain.length_function(type(inner)) is not None:
                sizes.extend(retained.measure_all(parts) + entry_bytes(inner) for parts in elements_of(inner, 1))
    except RuntimeError as error:
        raise_interruption(error)
        context.notes.append(CHANGED)
    kind, text = naming.kind_of(reference), f"{name.text}, in its elements"
    size, contents = mean_of_new(sizes), retained.contents()
    holder = series.holder(kind, text, naming.type_name(reference), size, contents)
    holder = replace(holder, length=inner_length(reference.value))
    if not name.is_users and holder.bytes_per_step < _SMALL:
        return
    context.explained |= retained.types
    handle = replace(name.handle, path=(*name.handle.path, ("key", None)))
    read = partial(context.sources.adding_lines, handle, context.files)
    candidate = Candidate(("inside", id(reference.value)), holder, handle, read)
    context.add(candidate, SizeProbe(reference.value, inner_length))


def _paths_to(objects: list[Any], traversal: Traversal, ours: Iterable[Any]) -> dict[int, Reference]:
    """A path to each object, found through its referrers but for ``ours``; costs a pass over the heap per level."""
    search = _ReferrerSearch(traversal, {id(each) for each in ours} | {id(objects)})
    frontier = {id(each): each for each in objects}
    for _ in range(_LEVELS):
        frontier = search.level(frontier) if frontier else frontier
    return {id(each): search.reference(each, ()) for each in objects}


class _ReferrerSearch:
    def __init__(self, traversal: Traversal, ours: set[int]) -> None:
        self._named = traversal.references
        self._ours = ours
        self._held_by_us: set[int] = set()
        self._holders: dict[int, tuple[Any, ReferenceKind, Any]] = {}
        self._modules = {id(one.__dict__): one for one in list(sys.modules.values()) if type(one) is ModuleType}

    def level(self, frontier: dict[int, Any]) -> dict[int, Any]:
        """Find what holds the objects of a level; returns those to look at next."""
        following: dict[int, Any] = {}
        objects = list(frontier.values())
        found = referrers(objects)
        # a name first: a class is also referred to by each of its objects, and by caches with classes as keys. Methods
        # last: an element that keeps its container's ``remove`` does not hold the container
        found.sort(key=lambda one: (type(one) in _METHODS, id(one) not in self._modules and id(one) not in self._named))
        self._ours |= {id(objects), id(found), id(frontier), id(following), id(self._holders)}
        for holder in found[:_WIDEST]:
            if id(holder) in self._ours or type(holder) in (Reference, FrameType):
                continue
            if is_our_class(type(holder)):
                self._held_by_us.update(id(one) for one in gc.get_referents(holder) if id(one) in frontier)
                continue
            for one in gc.get_referents(holder):
                if id(one) in frontier and id(one) not in self._holders and holder is not one:
                    self._holders[id(one)] = entry = (holder, *_edge(holder, one))
                    self._ours.add(id(entry))
                    if id(holder) not in self._named and id(holder) not in self._modules:
                        following[id(holder)] = holder
        del objects, found
        return {key: one for key, one in following.items() if key not in self._holders}

    def reference(self, one: Any, seen: tuple[int, ...]) -> Reference:
        """The path to an object, from a variable or from the first thing whose holder is not known."""
        named = self._named.get(id(one))
        if named is not None:
            return named
        entry = self._holders.get(id(one))
        if id(one) in self._held_by_us or entry is None or id(one) in seen:
            scope = RootScope(module=_OURS if id(one) in self._held_by_us else "")
            return Reference(one, scope, ReferenceKind.INSIDE, None)
        holder, kind, label = entry
        module = self._modules.get(id(holder))
        if module is not None:
            filename = module.__dict__.get("__file__")
            name = filename if type(filename) is str else module.__name__
            scope = RootScope(module=_OURS if is_our_module(module.__name__) else name)
            return Reference(one, scope, ReferenceKind.GLOBAL, label)
        owner = self._holders.get(id(holder), (None,))[0]
        if kind is ReferenceKind.KEY and owner is not None and plain.instance_dict(owner) is holder:
            return Reference(one, self.reference(owner, (*seen, id(one))), ReferenceKind.ATTRIBUTE, label)
        if kind is ReferenceKind.KEY and _is_class_attribute(owner, label, one):
            return Reference(one, self.reference(owner, (*seen, id(one))), ReferenceKind.CLASS_ATTRIBUTE, label)
        return Reference(one, self.reference(holder, (*seen, id(one))), kind, label)


def _is_class_attribute(owner: Any, label: Any, one: Any) -> bool:
    return plain.is_a(owner, type) and plain.class_attributes(owner).get(label) is one


def _edge(holder: Any, one: Any) -> tuple[ReferenceKind, Any]:
    bases = plain.mro(type(holder))
    if dict in bases:
        return ReferenceKind.KEY, next((key for key, value in list(dict.items(holder)) if value is one), None)
    if list in bases or tuple in bases:
        return ReferenceKind.ITEM, None
    pairs = [*(plain.instance_dict(holder) or {}).items(), *plain.slot_values(holder)]
    label = next((name for name, value in pairs if value is one), None)
    return (ReferenceKind.INSIDE, None) if label is None else (ReferenceKind.ATTRIBUTE, label)
