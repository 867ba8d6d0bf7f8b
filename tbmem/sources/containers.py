"""Containers that have grown go in; holders with names, bytes and bounds come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources import naming, plain
from tbmem.sources.candidates import MEASURED, OLDER, Bench, Candidate
from tbmem.sources.census import Census, Objects, Series
from tbmem.sources.lines import SizeProbe
from tbmem.sources.naming import Name
from tbmem.sources.places import Place, Walk
from tbmem.sources.sourcecode import Handle, SourceCode, called, definition_line
from tbmem.sources.upward import ways_to
from tbmem.sources.usercode import is_user_file, plain_name
from tbmem.sources.weights import Scale, elements_of, entry_bytes

_NAMELESS = 12
"""Containers without a name for which is searched upwards."""
_SMALL = 1024
"""Bytes per step below which what a library holds is of no interest."""


def grown_containers(census: Census, objects: Objects, walk: Walk) -> list[tuple[Place, Series]]:
    """Containers that the census has seen growing, with the way to each.

    Args:
        census: Over the looks so far.
        objects: What the collector knows now.
        walk: What can be named now.
    """
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
    return [(place, growing[key]) for key, place in places.items() if not _is_inner(place)]


def _is_inner(place: Place) -> bool:
    """Whether a container is the dict inside an ``lru_cache``, which is counted itself."""
    return isinstance(place.owner, Place) and type(place.owner.value) is plain.LruCache


def add_container(bench: Bench, place: Place, series: Series) -> None:
    """Note one container that grows.

    Args:
        bench: Where to.
        place: The container and the way to it.
        series: Its lengths so far.
    """
    value = place.value
    length = plain.length_function(type(value))
    if length is None or length(value) < series.points[-1][1]:
        return
    kind = naming.kind_of(place)
    name = _name(bench, place, kind)
    each, contents = weigh_elements(bench, value, series)
    holder = Holder(
        kind=kind,
        name=naming.full_name(name, naming.noun(place)),
        type=naming.type_name(place),
        length=length(value),
        per_step=series.per_step,
        bound=_bound(place),
        hits=plain.cache_hits(value) if kind is HolderKind.LRU_CACHE else None,
        contents=Contents.HOOKS if kind is HolderKind.HOOKS else contents,
        bytes_per_element=each,
        grows_since=series.since,
    )
    if not name.is_users and holder.bytes_per_step < _SMALL:
        return
    candidate = Candidate(id(value), holder, name.handle, only_read=kind in _ONLY_READ)
    candidate.read = _reader(bench, place, candidate)
    bench.keep(candidate, SizeProbe(value, length))


_ONLY_READ = (HolderKind.LRU_CACHE, HolderKind.ITERATOR)


def _name(bench: Bench, place: Place, kind: HolderKind) -> Name:
    if kind is HolderKind.LRU_CACHE:
        wrapped = (plain.instance_dict(place.value) or {}).get("__wrapped__")
        code = getattr(wrapped, "__code__", None)
        if type(code) is CodeType:
            text = f"lru_cache of {plain_name(wrapped.__qualname__)}()"
            return Name(text, Handle(), is_user_file(code.co_filename))
    if kind is HolderKind.HOOKS and isinstance(place.owner, Place):
        owner = bench.namer.name(place.owner)
        what = str(place.label).strip("_").replace("_", " ")
        return Name(f"{what} of {naming.full_name(owner, naming.noun(place.owner))}", owner.handle, owner.is_users)
    return bench.namer.name(place)


def _reader(bench: Bench, place: Place, candidate: Candidate) -> Callable[[], Iterable[CodeLine]]:
    """Looks for the lines in the source; holds no object."""
    kind, handle, files, sources = candidate.holder.kind, candidate.handle, bench.files, bench.sources
    if kind is HolderKind.LRU_CACHE:
        line = definition_line((plain.instance_dict(place.value) or {}).get("__wrapped__"), sources)
        return lambda: () if line is None else (line,)
    if kind is HolderKind.ITERATOR:
        spoken = candidate.holder.type
        return lambda: _lines_of_iterator(sources, handle, files, spoken)
    return lambda: sources.adding_lines(handle, files)


def _lines_of_iterator(sources: SourceCode, handle: Handle, files: tuple[str, ...], spoken: str) -> list[CodeLine]:
    """Where the variable that holds an iterator was set, or else where one is made."""
    lines = [line for line, _ in sources.assignments(handle, files)] if handle.root else []
    if lines:
        return [line for line in lines if spoken in line.text] or lines
    return [line for one in files for line in sources.calls(one, lambda call: called(call) == spoken)]


def _bound(place: Place) -> int | None:
    """``maxlen``, ``maxsize``; that of a ``queue.Queue`` for the deque in it."""
    if isinstance(place.owner, Place) and plain.module_of(type(place.owner.value)) == "queue":
        size = (plain.instance_dict(place.owner.value) or {}).get("maxsize")
        return size if type(size) is int and size > 0 else None
    return plain.bound_of(place.value)


def weigh_elements(bench: Bench, container: Any, series: Series) -> tuple[int, Contents]:
    """Bytes of one of the newest elements, and what they hold.

    Args:
        bench: With the scale.
        container: Whose elements.
        series: Its lengths so far: only what was added meanwhile is weighed.
    """
    scale = bench.scale()
    new = min(MEASURED, max(series.growth, 1))
    recent = min(math.ceil(series.per_step), 16)  # the loop's own variables may still hold these
    try:
        elements = elements_of(container, new + recent + OLDER)
    except RuntimeError:
        bench.notes.append("A container changed while it was weighed.")
        return 0, Contents.OBJECTS
    if len(elements) > recent + 1:
        del elements[len(elements) - recent :]
    measured = elements[-new:]
    for parts in elements[: -len(measured)]:
        _weigh_all(scale, parts)
    total = count = 0
    for parts in measured:
        weight = _weigh_all(scale, parts)
        if count and scale.is_late:
            break
        total += weight
        count += 1
    bench.explained |= scale.types
    return total // max(count, 1) + entry_bytes(container), scale.contents()


def _weigh_all(scale: Scale, parts: Iterable[Any]) -> int:
    return sum(scale.weigh(part) for part in parts)
