"""Search for containers that grow: with names, bytes and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tbmem.model.evidence import CodeLine, Contents, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_ours, is_user_file, plain_name
from tbmem.sources.program.syntax import Handle, SourceCode, called, definition_line
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.candidates import MEASURED, OLDER, Bench, Candidate
from tbmem.sources.retainers.length_bounds import written_bound
from tbmem.sources.retainers.naming import Name
from tbmem.sources.retainers.object_counts import Census, Objects, Series
from tbmem.sources.retainers.probes import SizeProbe, spot_of
from tbmem.sources.retainers.reachability import Place, Walk
from tbmem.sources.retainers.referrers import OURS, ways_to
from tbmem.sources.retainers.retained_size import Scale, elements_of, entry_bytes
from tbmem.sources.retainers.variable_history import Slots, inner_length

_NAMELESS = 12
"""Containers without a name for which is searched upwards."""
_EXPLAINED = 0.8
_MANY_ALIKE = 8
"""Containers in one other, of which each has its even share of the growth, from which on the other is the holder."""
_SMALL = 256
"""Bytes per step below which what a library holds is of no interest."""


def grown_containers(census: Census, objects: Objects, walk: Walk) -> list[tuple[Place, Series]]:
    """Containers that the census has seen growing, with the way to each."""
    growing = census.growing_containers()
    found: dict[int, Any] = {}
    for _, ones in objects.containers():
        found.update({id(one): one for one in ones if id(one) in growing})
    places = {key: walk.found[key] for key in found if key in walk.found}
    nameless = sorted(
        (one for key, one in found.items() if key not in places), key=lambda one: -growing[id(one)].growth
    )
    if nameless:
        del nameless[_NAMELESS:]
        places.update(ways_to(nameless, walk, [found, *objects.by_kind.values()]))
    return [(place, growing[key]) for key, place in places.items() if not _is_inner(place) and not _is_ours(place)]


def _is_ours(place: Place) -> bool:
    """Whether a container is the monitor's own."""
    wrapped = plain.wrapped_function(place.value) if type(place.value) is plain.LruCache else None
    return place.scope.module == OURS or (wrapped is not None and is_ours(wrapped.__code__.co_filename))


def _is_inner(place: Place) -> bool:
    """Whether a container is the dict inside an ``lru_cache``, which is counted itself."""
    return isinstance(place.owner, Place) and type(place.owner.value) is plain.LruCache


def add_container(bench: Bench, place: Place, series: Series) -> None:
    """Note one container that grows."""
    value = place.value
    length = plain.length_function(type(value))
    if length is None or length(value) < series.points[-1][1]:
        return
    kind = naming.kind_of(place)
    name = _name(bench, place, kind)
    each, contents = weigh_elements(bench, value, series)
    own = _bound(place)
    read = written_bound(place, name.handle, bench.sources) if own is None and name.is_users else None
    holder = replace(
        bench.holder(place, name, series, bytes_per_element=each, contents=contents),
        length=length(value),
        bound=own if own is not None else read,
        hits=plain.cache_hits(value) if kind is HolderKind.LRU_CACHE else None,
        contents=Contents.HOOKS if kind is HolderKind.HOOKS else contents,
    )
    if not name.is_users and holder.bytes_per_step < _SMALL:
        return
    candidate = Candidate(id(value), holder, name.handle, only_read=kind in _ONLY_READ, bound_is_read=read is not None)
    candidate.read = _reader(bench, place, candidate) if name.is_users else _making_reader(bench, place, candidate)
    bench.keep(candidate, SizeProbe(value, length, spot_of(place)))


_ONLY_READ = (HolderKind.LRU_CACHE, HolderKind.ITERATOR)


def _name(bench: Bench, place: Place, kind: HolderKind) -> Name:
    if kind is HolderKind.LRU_CACHE:
        wrapped = plain.wrapped_function(place.value)
        if wrapped is not None:
            text = f"lru_cache of {plain_name(wrapped.__qualname__)}()"
            return Name(text, Handle(), is_user_file(wrapped.__code__.co_filename))
    if kind is HolderKind.HOOKS and isinstance(place.owner, Place):
        owner = bench.namer.name(place.owner)
        what = str(place.label).strip("_").replace("_", " ")
        return Name(f"{what} of {naming.full_name(owner, naming.noun(place.owner))}", owner.handle, owner.is_users)
    return bench.namer.name(place)


def _reader(bench: Bench, place: Place, candidate: Candidate) -> Callable[[], Iterable[CodeLine]]:
    """Looks for the lines in the source; holds no object."""
    kind, handle, files, sources = candidate.holder.kind, candidate.handle, bench.files, bench.sources
    if kind is HolderKind.LRU_CACHE:
        wrapped = plain.wrapped_function(place.value)
        lines = () if wrapped is None else (definition_line(wrapped, sources),)
        return lambda: lines
    if kind is HolderKind.ITERATOR:
        spoken = candidate.holder.type
        return lambda: _lines_of_iterator(sources, handle, files, spoken)
    return lambda: sources.adding_lines(handle, files)


def _making_reader(bench: Bench, place: Place, candidate: Candidate) -> Callable[[], Iterable[CodeLine]]:
    """For a library's own table: looks for the user's lines that make what stands in it (a ``Thread``)."""
    otherwise = _reader(bench, place, candidate)
    kinds = [type(one) for one in plain.newest_of(place.value, 1)]
    spoken = {kind.__name__ for kind in kinds if plain.module_of(kind).partition(".")[0] not in ("builtins", "torch")}
    files, sources = bench.files, bench.sources
    if not spoken:
        return otherwise
    return lambda: sources.calls(files, lambda call: called(call) in spoken) or otherwise()


def _lines_of_iterator(sources: SourceCode, handle: Handle, files: tuple[str, ...], spoken: str) -> list[CodeLine]:
    """Where the variable that holds an iterator was set, or else where one is made."""
    lines = [line for line, _ in sources.assignments(handle, files)] if handle.root else []
    if lines:
        return [line for line in lines if spoken in line.text] or lines
    return sources.calls(files, lambda call: called(call) == spoken)


def _bound(place: Place) -> int | None:
    """``maxlen``, ``maxsize``; that of a ``queue.Queue`` for the deque in it."""
    if isinstance(place.owner, Place) and plain.module_of(type(place.owner.value)) == "queue":
        size = (plain.instance_dict(place.owner.value) or {}).get("maxsize")
        return size if type(size) is int and size > 0 else None
    return plain.bound_of(place.value)


def grown_inside(slots: Slots, walk: Walk, containers: list[tuple[Place, Series]]) -> list[tuple[Place, Series]]:
    """Containers in which many others become longer, each too seldom or too little to count by itself.

    Lists by class get an element now and then; a list for each layer gets one number a step.
    """
    filling = slots.filling()
    growing = {id(place.value) for place, _ in containers}
    places = [
        place
        for place in (walk.found.values() if filling else ())
        if _can_hold(place.value) and id(place.value) not in growing
    ]
    found = [(place, filling[place.key()].inner) for place in places if place.key() in filling]
    known = [(place, series.per_step) for place, series in containers]
    chosen = []
    for place, series in reversed(found):  # what is deeper first
        below = [rate for other, rate in known if _is_below(other, place)]
        if sum(below) < _EXPLAINED * series.per_step or max(below) <= series.per_step / _MANY_ALIKE:
            chosen.append((place, series))
            known.append((place, series.per_step))
    return chosen


def _can_hold(value: Any) -> bool:
    kinds = plain.mro(type(value))
    return dict in kinds or list in kinds or tuple in kinds


def _is_below(place: Place, above: Place) -> bool:
    return any(one is above for one in place.way()[:-1])


def without_those_below(
    containers: list[tuple[Place, Series]], filling: list[tuple[Place, Series]]
) -> list[tuple[Place, Series]]:
    """Containers that are not a part of one that was found filling."""
    return [
        (place, series)
        for place, series in containers
        if not any(place is above or _is_below(place, above) for above, _ in filling)
    ]


def add_filling(bench: Bench, place: Place, series: Series) -> None:
    """Note one container with others in it that become longer."""
    name = bench.namer.name(place)
    scale = bench.scale(with_born=False)
    weights: list[int] = []
    try:
        for inner in (one for parts in elements_of(place.value, plain.LARGE) for one in parts):
            if plain.length_function(type(inner)) is None:
                continue
            weights.extend(_weigh_all(scale, parts) + entry_bytes(inner) for parts in elements_of(inner, 1))
    except RuntimeError:
        bench.notes.append("A container changed while it was weighed.")
    measured = weights[OLDER:] or weights
    each = sum(measured) // max(len(measured), 1)
    holder = bench.holder(place, name, series, bytes_per_element=each, contents=scale.contents())
    holder = replace(holder, name=f"{holder.name}, in its elements", length=inner_length(place.value))
    if not name.is_users and holder.bytes_per_step < _SMALL:
        return
    bench.explained |= scale.types
    handle, files, sources = replace(name.handle, path=(*name.handle.path, ("key", None))), bench.files, bench.sources
    candidate = Candidate(("inside", id(place.value)), holder, handle)
    candidate.read = lambda: sources.adding_lines(handle, files)
    bench.keep(candidate, SizeProbe(place.value, inner_length))


def weigh_elements(bench: Bench, container: Any, series: Series) -> tuple[int, Contents]:
    """Bytes of one of the newest elements, and what they hold."""
    is_ordered = set not in plain.mro(type(container))
    scale = bench.scale(with_born=is_ordered)
    scale.seen.add(id(container))
    recent = min(math.ceil(series.per_step), 16)  # the loop's own variables may still hold these
    new = max(min(MEASURED, series.growth - recent), 1)
    try:
        elements = elements_of(container, new + recent + OLDER)
    except RuntimeError:
        bench.notes.append("A container changed while it was weighed.")
        return 0, Contents.OBJECTS
    if len(elements) > recent + 1 and is_ordered:
        del elements[len(elements) - recent :]
    measured = elements[-new:]
    for parts in elements[: -len(measured)]:
        _weigh_all(scale, parts)
    weights: list[tuple[int, bool]] = []
    for parts in measured:
        before = scale.old
        weight = _weigh_all(scale, parts)
        if weights and scale.is_late:
            break
        weights.append((weight, scale.old > before))
    bench.explained |= scale.types
    return _each(weights) + entry_bytes(container), scale.contents()


def _each(weights: list[tuple[int, bool]]) -> int:
    """Mean weight; single elements with an old tensor in them are a new tensor at an old one's address."""
    new = [weight for weight, is_old in weights if not is_old]
    chosen = new if 2 * len(new) > len(weights) else [weight for weight, _ in weights]
    return sum(chosen) // max(len(chosen), 1)


def _weigh_all(scale: Scale, parts: Iterable[Any]) -> int:
    return sum(scale.weigh(part) for part in parts)
