"""Whether nothing but the collector will ever free an object, and through which attributes it leads back to itself."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

from tbmem.sources.program import introspection as plain

_LARGEST = 4000
_OUTSIDE = (ModuleType, CodeType, BuiltinFunctionType, FrameType)


def circle(address: int) -> set[str] | None:
    """The attributes that keep an object alive by leading back to it; ``None`` where something else holds it.

    All that the object leads to is gathered, and the references inside are compared with the number that each object
    has: one with more of them is held from outside, and so is all that it leads to.

    Args:
        address: Of the object; an address, because every reference of the caller's would count as a holder.
    """
    group = [one for one in gc.get_objects() if id(one) == address]
    if not group or not _gather(group):
        return None
    inside: Counter[int] = Counter()
    for member in group:
        inside.update(map(id, gc.get_referents(member)))
    del member
    held = [i for i, number in enumerate(_references(group)) if number - _OURS > inside[id(group[i])]]
    if _leads_to(group, held, address):
        return None
    return _circular_attributes(group[0])


def _gather(group: list[Any]) -> bool:
    """Add all that the first member leads to, without what is there anyway; ``False`` where that is too much."""
    outside = {id(module.__dict__) for module in list(sys.modules.values()) if type(module) is ModuleType}
    found = {id(group[0])}
    for member in group:
        for one in gc.get_referents(member):
            if id(one) in found or id(one) in outside or not gc.is_tracked(one) or _is_outside(one):
                continue
            found.add(id(one))
            group.append(one)
            if len(group) > _LARGEST:
                return False
    return True


def _is_outside(one: Any) -> bool:
    return type(one) in _OUTSIDE or type in plain.mro(type(one))


def _references(group: list[Any]) -> list[int]:
    return [sys.getrefcount(member) for member in group]


_OURS = _references([object()])[0]
"""References that counting itself makes: the list, the variable, the argument."""


def _leads_to(group: list[Any], held: list[int], address: int) -> bool:
    """Whether one of the members that are held from outside leads to an address."""
    members = {id(member) for member in group}
    queue = [group[i] for i in held]
    seen = {id(one) for one in queue}
    while queue:
        one = queue.pop()
        if id(one) == address:
            return True
        for other in gc.get_referents(one):
            if id(other) in members and id(other) not in seen:
                seen.add(id(other))
                queue.append(other)
    return False


def _circular_attributes(one: Any) -> set[str]:
    """Attributes of an object through which it leads back to itself, directly or past a few others."""
    return {name for name, value in (plain.instance_dict(one) or {}).items() if _returns(value, one)}


def _returns(value: Any, one: Any) -> bool:
    near = [value]
    for _ in range(4):
        if any(each is one for each in near):
            return True
        near = [each for each in gc.get_referents(*near) if gc.is_tracked(each) and not _is_outside(each)][:200]
    return False
