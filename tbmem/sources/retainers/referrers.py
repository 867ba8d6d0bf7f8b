"""Search upwards, through referrers, for what holds objects that no variable leads to."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import FrameType, ModuleType
from typing import Any

from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_our_class, is_our_module
from tbmem.sources.retainers.reachability import Place, Scope, Step, Walk

OURS = "tbmem"
"""Module of the scope of what belongs to the monitor."""
_LEVELS = 5
_WIDEST = 400
"""Referrers that are followed in one level."""


def ways_to(objects: list[Any], walk: Walk, ours: Iterable[Any]) -> dict[int, Place]:
    """A place for each object.

    Args:
        objects: A few objects; each level costs a pass over everything that the collector knows.
        walk: What can be named.
        ours: Lists and dicts of our own that hold the objects as well.
    """
    search = _Search(walk, {id(one) for one in ours} | {id(objects)})
    frontier = {id(one): one for one in objects}
    for _ in range(_LEVELS):
        if not frontier:
            break
        frontier = search.level(frontier)
    return {id(one): search.place(one, ()) for one in objects}


class _Search:
    def __init__(self, walk: Walk, ours: set[int]) -> None:
        self._walk = walk
        self._ours = ours
        self._monitors: set[int] = set()
        self._holders: dict[int, tuple[Any, Step, Any]] = {}
        self._modules = {id(one.__dict__): one for one in list(sys.modules.values()) if type(one) is ModuleType}

    def level(self, frontier: dict[int, Any]) -> dict[int, Any]:
        """Find who holds the objects of a level; those that must be looked at next."""
        following: dict[int, Any] = {}
        objects = list(frontier.values())
        referrers = gc.get_referrers(*objects)
        self._ours |= {id(objects), id(referrers), id(frontier), id(following), id(self._holders)}
        for holder in referrers[:_WIDEST]:
            if id(holder) in self._ours or type(holder) in (Place, FrameType):
                continue
            if is_our_class(type(holder)):
                self._monitors.update(id(one) for one in gc.get_referents(holder) if id(one) in frontier)
                continue
            for one in gc.get_referents(holder):
                if id(one) in frontier and id(one) not in self._holders and holder is not one:
                    self._holders[id(one)] = held = (holder, *_step(holder, one))
                    self._ours.add(id(held))
                    if id(holder) not in self._walk.found and id(holder) not in self._modules:
                        following[id(holder)] = holder
        del objects, referrers
        return {key: one for key, one in following.items() if key not in self._holders}

    def place(self, one: Any, seen: tuple[int, ...]) -> Place:
        """The way to an object, from a variable or from the first thing whose holder is not known."""
        known = self._walk.found.get(id(one))
        if known is not None:
            return known
        if id(one) in self._monitors:
            return Place(one, Scope(module=OURS), Step.INSIDE, None)
        held = self._holders.get(id(one))
        if held is None or id(one) in seen:
            return Place(one, Scope(), Step.INSIDE, None)
        holder, step, label = held
        module = self._modules.get(id(holder))
        if module is not None:
            if is_our_module(module.__name__):
                return Place(one, Scope(module=OURS), Step.GLOBAL, label)
            filename = module.__dict__.get("__file__")
            return Place(one, Scope(module=filename if type(filename) is str else module.__name__), Step.GLOBAL, label)
        owner = self._holders.get(id(holder), (None,))[0]
        if step is Step.KEY and owner is not None and plain.instance_dict(owner) is holder:
            return Place(one, self.place(owner, (*seen, id(one))), Step.ATTRIBUTE, label)
        return Place(one, self.place(holder, (*seen, id(one))), step, label)


def _step(holder: Any, one: Any) -> tuple[Step, Any]:
    kinds = plain.mro(type(holder))
    if dict in kinds:
        return Step.KEY, next((key for key, value in list(dict.items(holder)) if value is one), None)
    if list in kinds or tuple in kinds:
        return Step.ITEM, None
    names = plain.instance_dict(holder)
    pairs = [*(names.items() if names is not None else ()), *plain.slot_values(holder)]
    label = next((name for name, value in pairs if value is one), None)
    return (Step.INSIDE, None) if label is None else (Step.ATTRIBUTE, label)
