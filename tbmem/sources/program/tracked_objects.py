"""Objects that Python's collector tracks, listed without holding one that another thread is still making.

``tuple(generator)`` and functions of C like it fill a tuple in place, which the collector tracks from the first moment.
Python refuses that as soon as anybody else refers to the tuple, with ``SystemError: ... bad argument to internal
function`` in a thread of the program's; and ``gc.get_objects()`` and ``gc.get_referrers()`` return such tuples too.
Here their lists come and go inside of one call of ``list.extend``, over iterators that are all in C. No other thread
runs meanwhile, and no line of Python: no finalizer of a collection, no ``__hash__``, ``__eq__`` or ``__class__`` of the
program's, no audit hook (``id()`` would call them). What stays are the objects that were asked for, by type: never a
plain tuple or frozenset, but for tuples that something finished refers to, as those are finished themselves.

That holds under the global interpreter lock. Without it nothing is listed: all results are empty.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, compress, cycle, islice, repeat, starmap
from operator import methodcaller
from typing import Any

from tbmem.sources.gc_pause import gc_paused

_Lists = Iterator[list[Any]]
_NESTED = 2  # levels of tuples in tuples that are looked through
_MOST_COMPARED = 64
"""Classes up to which comparing each reference with them is faster than listing all types: torch has 22 of tensors."""
_subclasses = type.__dict__["__subclasses__"]
_identity: Callable[[Any], int] = object.__hash__  # of one object only while that lives, as ``id``


class _Found(list[Any]):
    """A list of results: of a type that nobody asks for, so that it does not hold itself."""


_TUPLES = frozenset((_identity(tuple),))
_LEFT_OUT = _TUPLES | {_identity(frozenset), _identity(_Found)}
"""Types whose objects C fills only as long as nobody else refers to them, and that of the results."""


def can_list() -> bool:
    """Whether objects can be listed without disturbing other threads: this interpreter has its global lock."""
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return has_lock()


def subclasses(base: type) -> list[type]:
    """A class and all classes that are derived from it, directly or not."""
    found = {id(base): base}
    left = [base]
    while left:
        new = {id(kind): kind for kind in _subclasses(left.pop()) if id(kind) not in found}
        found.update(new)
        left.extend(new.values())
    return list(found.values())


def objects_of(kinds: Iterable[type]) -> list[Any]:
    """All objects whose type is one of ``kinds`` itself; never plain tuples and frozensets."""
    wanted = _wanted(kinds)
    return _collected(lambda: chain.from_iterable(_selected(_all_objects(), wanted)))


def live_objects(*bases: type) -> list[list[Any]]:
    """All objects, for each of some base classes those of it and of classes derived from it."""
    # by the type: isinstance() would make a lazy object load what it stands for
    kinds = [subclasses(base) for base in bases]
    found = objects_of(chain.from_iterable(kinds))
    identities = list(map(_identity, map(type, found)))
    return [list(compress(found, map(_wanted(each).__contains__, identities))) for each in kinds]


def instances(base: type) -> list[Any]:
    """All objects of a class in Python and of classes derived from it, in a third of the time of ``live_objects``.

    Each refers to its class, and the collector compares what objects refer to faster than their types can be listed
    (CPython's ``subtype_traverse``), unless it is compared with many. What is written in C need not do so.
    """
    kinds = tuple(subclasses(base))
    if len(kinds) > _MOST_COMPARED:
        return objects_of(kinds)
    wanted = _wanted(kinds)
    return _collected(lambda: chain.from_iterable(_selected(_uncollected(starmap(gc.get_referrers, (kinds,))), wanted)))


def object_at(address: int, kind: int) -> Any:
    """The object with an ``id`` and a type of the ``id`` ``kind``; ``None`` where there is none."""
    kinds = [each for each in subclasses(object) if id(each) == kind]
    return next((one for one in objects_of(kinds) if id(one) == address), None)


def referrers(objects: list[Any]) -> list[Any]:
    """What refers to objects; a tuple only if something finished, which is then returned as well, refers to it."""
    arguments = tuple(objects)
    finished = _wanted(subclasses(object))

    def pipeline() -> Iterator[Any]:
        return _holders(_uncollected(starmap(gc.get_referrers, (arguments,))), finished, _NESTED)

    holders = {id(one): one for one in _collected(pipeline)}
    inside = chain.from_iterable(map(gc.get_referents, holders.values()))
    tuples = {id(one): one for one in inside if type(one) is tuple and one is not arguments}
    return [*holders.values(), *_leading_to(set(map(id, objects)), tuples, _NESTED).values()]


def _leading_to(wanted: set[int], tuples: dict[int, Any], levels: int) -> dict[int, Any]:
    """Those of some tuples, and of the tuples in them, that hold a wanted object or a tuple that does."""
    found = {key: one for key, one in tuples.items() if not wanted.isdisjoint(map(id, one))}
    if levels > 1:
        inner = {id(part): part for one in tuples.values() for part in one if type(part) is tuple}
        below = _leading_to(wanted, inner, levels - 1) if inner else {}
        found |= below
        found.update((key, one) for key, one in tuples.items() if not below.keys().isdisjoint(map(id, one)))
    return found


def _wanted(kinds: Iterable[type]) -> frozenset[int]:
    return frozenset(map(_identity, kinds)) - _LEFT_OUT


def _collected(pipeline: Callable[[], Iterator[Any]]) -> list[Any]:
    """The result of a pipeline of iterators in C, taken in one call."""
    found = _Found()
    if can_list():
        with gc_paused():
            found.extend(pipeline())
    return found


def _all_objects() -> _Lists:
    return _uncollected(map(gc.get_objects, (None,)))


def _uncollected(lists: _Lists) -> _Lists:
    """The lists, made after the collector was switched off: another thread may have switched it on again."""
    return chain(filter(None, map(methodcaller("__call__"), (gc.disable,))), lists)


def _selected(lists: _Lists, *wanted: frozenset[int]) -> Iterator[Iterator[Any]]:
    """The objects of the first kinds in a list, then those of the second, and so on; and those in the next list.

    Each list is read twice for each selection: for the objects, and for their types. It is gone as soon as what follows
    its last selection is asked for. No iterator from before may keep it (``tee`` and ``zip`` would): it is in the list.
    """
    again = chain.from_iterable(map(repeat, lists, repeat(2 * len(wanted))))
    identities = map(partial(map, _identity), map(partial(map, type), again))
    are_wanted = map(map, cycle([kinds.__contains__ for kinds in wanted]), identities)
    return map(compress, again, are_wanted)


def _holders(lists: _Lists, finished: frozenset[int], levels: int) -> Iterator[Any]:
    """Finished objects among referrers, and those that refer to the tuples among them."""
    if not levels:
        return chain.from_iterable(_selected(lists, finished))
    selected = map(tuple, _selected(lists, finished, _TUPLES))
    both = chain.from_iterable(map(tuple, (selected,)))  # all of it at once: the list is gone when the next one is made
    above = starmap(gc.get_referrers, filter(None, both))
    return chain(chain.from_iterable(islice(both, 1)), _holders(above, finished, levels - 1))
