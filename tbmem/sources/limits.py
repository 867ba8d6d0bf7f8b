"""A container's place and its source go in; the length at which the user's own code stops it comes out.

``if len(self.memory) < self.capacity: self.memory.append(x)`` is a bound as good as ``deque(maxlen=...)``, and the
usual one in replay buffers and caches that are written by hand.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from tbmem.sources import plain
from tbmem.sources.places import Place, Step
from tbmem.sources.sourcecode import Handle, LengthCheck, SourceCode


def written_bound(place: Place, handle: Handle, sources: SourceCode) -> int | None:
    """The largest length that the source allows; ``None`` where nothing bounds it, or not by a number known now.

    Args:
        place: A container, and the way to it.
        handle: What the source calls it.
        sources: Files that were read so far.
    """
    kinds = plain.mro(type(place.value))
    length = plain.length_function(type(place.value))
    if not handle.root or length is None:
        return None
    bounds = [_value(check, place) for check in sources.length_checks(handle, list in kinds)]
    known = [bound for bound in bounds if bound is not None and bound >= length(place.value)]
    return max(known) if known and len(known) == len(bounds) else None


def _value(check: LengthCheck, place: Place) -> int | None:
    """What a container's length is compared with, now."""
    limit = check.limit
    if isinstance(limit, ast.Constant):
        found: Any = limit.value
    elif isinstance(limit, ast.Attribute):
        is_beside = isinstance(check.container, ast.Attribute) and _same(limit.value, check.container.value)
        found = _attribute(place, limit.attr) if is_beside else None
    elif isinstance(limit, ast.Name):
        found = next((names[limit.id] for names in _variables(place, check.file) if limit.id in names), None)
    else:
        return None
    return found if type(found) is int else None


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)


def _attribute(place: Place, name: str) -> Any:
    """What stands beside a container, in the object whose attribute it is or in that one's class."""
    if place.step not in (Step.ATTRIBUTE, Step.CLASS_ATTRIBUTE) or not isinstance(place.owner, Place):
        return None
    owner = place.owner.value
    kinds = plain.mro(owner if type in plain.mro(type(owner)) else type(owner))
    spaces = [plain.instance_dict(owner) or {}, *(plain.class_attributes(kind) for kind in kinds)]
    return next((names[name] for names in spaces if name in names), None)


def _variables(place: Place, filename: str) -> Iterator[dict[str, Any]]:
    """Variables beside the container's: those of its closure, then those of the file's module."""
    owner = place.owner.value if isinstance(place.owner, Place) else None
    if type(owner) is FunctionType:
        cells = zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=False)
        yield {name: plain.cell_value(cell) for name, cell in cells}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and module.__dict__.get("__file__") == filename:
            yield module.__dict__
