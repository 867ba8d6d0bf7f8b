"""Introspection of any object that runs no Python code of its class, as ``len()`` and ``isinstance()`` would."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeVar, cast

from tbmem.interruption import raise_interruption

_maxlen = deque.__dict__["maxlen"].__get__
LruCache: type = functools._lru_cache_wrapper
_CACHE_ENTRY = "_lru_list_elem"  # type of the entries of an lru_cache with a bound
Cycle: type = itertools.cycle
Tee: type = type(itertools.tee(())[0])

mro = cast(Callable[[type], tuple[type, ...]], type.__dict__["__mro__"].__get__)
"""Returns the classes that a class is made of, itself first."""
_namespace = type.__dict__["__dict__"].__get__
_local_attribute = next(
    base.__dict__["__getattribute__"] for base in threading.local.__mro__ if "__getattribute__" in base.__dict__
)

Length = Callable[[Any], int]
LARGE = 200  # elements above which only the ends of a container are looked at
HEAD = 4
TAIL = 16
_Function = TypeVar("_Function", bound=Callable[..., Any])
_CACHES: list[Any] = []


def remembered(function: _Function) -> _Function:
    """Decorator that caches a function of a class, until ``forget``."""
    cached = functools.cache(function)
    _CACHES.append(cached)
    return cast(_Function, cached)


def forget() -> None:
    """Clear the caches of ``remembered``, which would keep classes alive that nobody else needs."""
    for cached in _CACHES:
        cached.cache_clear()


def is_a(value: Any, kind: type) -> bool:
    """``isinstance`` by the type alone: ``__class__`` of the object is not read."""
    return kind in mro(type(value))


def class_attributes(kind: type) -> dict[str, Any]:
    """A copy of a class's own namespace."""
    return dict(_namespace(kind))


def module_of(kind: type) -> str:
    """Name of the module that a class says it is from; empty where it does not say."""
    is_pythons = kind.__flags__ & (1 << 9)
    name = _namespace(kind).get("__module__") if is_pythons else type.__dict__["__module__"].__get__(kind)
    return name if type(name) is str else ""


@remembered
def length_function(kind: type) -> Length | None:
    """How elements of a kind of container are counted; ``None`` for what is no container that can grow."""
    return next((_LENGTHS[base] for base in mro(kind) if base in _LENGTHS), None)


def wrapped_function(cache: Any) -> FunctionType | None:
    """The function whose results an ``lru_cache`` keeps."""
    wrapped = (instance_dict(cache) or {}).get("__wrapped__")
    return wrapped if type(wrapped) is FunctionType else None


def tee_elements(branch: Any) -> Iterator[Any]:
    """What a branch of ``tee`` keeps, oldest first; 20,000 elements at most."""
    limit = 20_000
    links = [one for one in gc.get_referents(branch) if type(one).__name__ == "_tee_dataobject"]
    while links and limit > 0:
        elements = [one for one in gc.get_referents(links.pop()) if type(one) is not type]
        for one in elements[1:]:  # the first is the iterator that the elements come from
            if type(one).__name__ == "_tee_dataobject":
                links.append(one)
            else:
                limit -= 1
                yield one


_PLAIN: tuple[Any, ...] = (list, dict, set, deque)
_LENGTHS: dict[type, Length] = {
    **{kind: kind.__len__ for kind in _PLAIN},
    LruCache: lambda cache: int(LruCache.cache_info(cache).currsize),  # type: ignore[attr-defined]
    Tee: lambda branch: sum(1 for _ in tee_elements(branch)),
}
CONTAINERS = tuple(_LENGTHS)
"""The kinds that can grow; classes derived from them can, too."""


def some_items(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Items of a dict; of a large one only the oldest and the newest."""
    if dict.__len__(mapping) <= LARGE:
        return list(dict.items(mapping))
    return [*itertools.islice(dict.items(mapping), HEAD), *newest_items(mapping, TAIL)]


def newest_of(container: Any, count: int) -> list[Any]:
    """The elements that were added last, oldest of them first (for a dict, its values; for a set, any).

    Raises:
        RuntimeError: Another thread changed it in between.
    """
    kinds = mro(type(container))
    if list in kinds:
        return list.__getitem__(container, slice(-count, None))
    if dict in kinds:
        return [value for _, value in newest_items(container, count)]
    if deque in kinds:
        return list(itertools.islice(deque.__reversed__(container), count))[::-1]
    if set in kinds:
        return list(itertools.islice(set.__iter__(container), count))
    if LruCache in kinds:
        return cache_entries(container)[-count:]
    if Tee in kinds:
        return list(tee_elements(container))[-count:]
    return []


def newest_items(mapping: dict[Any, Any], count: int) -> list[tuple[Any, Any]]:
    """The items of a dict that were added last, oldest of them first."""
    return list(itertools.islice(reversed(dict.items(mapping)), count))[::-1]


def is_cache_entry(value: Any) -> bool:
    """Whether it is what the dict of an ``lru_cache`` with a bound has as its values."""
    kind = type(value)
    return type(kind) is type and kind.__name__ == _CACHE_ENTRY


def cache_entries(cache: Any) -> list[tuple[Any, Any]]:
    """Keys and results of an ``lru_cache``, least recently used first."""
    # with a bound it shows the collector key, result and a type for each entry; without one a plain dict
    referents = gc.get_referents(cache)[1:]
    pairs = []
    for key, result, kind in zip(referents[::3], referents[1::3], referents[2::3], strict=False):
        if type(kind) is not type or kind.__name__ != _CACHE_ENTRY:
            break
        pairs.append((key, result))
    return pairs or (list(referents[0].items()) if referents and type(referents[0]) is dict else [])


def bound_of(container: Any) -> int | None:
    """``maxlen`` of a deque, ``maxsize`` of an ``lru_cache``; ``None`` without a bound."""
    kinds = mro(type(container))
    bound = _maxlen(container) if deque in kinds else None
    if LruCache in kinds:
        bound = LruCache.cache_info(container).maxsize  # type: ignore[attr-defined]
    return None if bound is None else int(bound)


@remembered
def _dict_descriptor(kind: type) -> Callable[[Any], Any] | None:
    """What reads ``__dict__`` of instances of a class, unless the class has put something of its own there."""
    for base in mro(kind):
        if base is threading.local:
            return lambda one: _local_attribute(one, "__dict__")
        entry = _namespace(base).get("__dict__")
        if entry is not None:
            return entry.__get__ if type(entry) in (GetSetDescriptorType, MemberDescriptorType) else None
    return None


@remembered
def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    entries = [entry for base in mro(kind) for entry in dict(_namespace(base)).items()]
    return tuple((name, entry) for name, entry in entries if type(entry) is MemberDescriptorType)


def instance_dict(one: Any) -> dict[str, Any] | None:
    """The dict behind an object's attributes; ``None`` where it has none."""
    read = _dict_descriptor(type(one))
    if read is None:
        return None
    try:
        found = read(one)
    except Exception as error:
        raise_interruption(error)
        return None
    return found if dict in mro(type(found)) else None


def slot_values(one: Any) -> list[tuple[str, Any]]:
    """Attributes of an object that stand in ``__slots__`` (or in C), those that are set."""
    found = []
    for name, entry in _slots(type(one)):
        try:
            found.append((name, entry.__get__(one)))
        except Exception as error:  # nosec B112  # an unset slot, or code of the object itself, may raise anything
            raise_interruption(error)
            continue
    return found


def fields_of(value: Any) -> tuple[str, ...]:
    """Names of a named tuple's elements; empty for anything else."""
    kind = type(value)
    if kind is tuple or tuple not in mro(kind):
        return ()
    names = next((_namespace(base)["_fields"] for base in mro(kind) if "_fields" in _namespace(base)), ())
    return names if type(names) is tuple else ()


def cell_value(cell: CellType) -> Any:
    """What a closure's variable holds; ``None`` while it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
