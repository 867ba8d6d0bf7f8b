"""Names of objects as the user would write them, and where to look for their lines."""

from __future__ import annotations

import os
from collections import UserDict, UserList, deque
from dataclasses import dataclass
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
import torch

from tbmem.model.evidence import HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_user_class, is_user_file, plain_name, qualified_name
from tbmem.sources.program.syntax import Handle, SourceCode
from tbmem.sources.retainers.reachability import Place, Scope, Step

_INNER: dict[type, str] = {
    WeakKeyDictionary: "data",
    WeakValueDictionary: "data",
    WeakSet: "data",
    UserDict: "data",
    UserList: "data",
}
_MODULE_TABLES = ("_modules", "_parameters", "_buffers")


@dataclass(frozen=True)
class Name:
    """A name, and the handle for searching the source."""

    text: str
    handle: Handle
    is_users: bool = True
    """Whether the user's own code has a name for it; a library's cache is not."""


class Namer:
    """Names places; remembers the sources that it has read."""

    def __init__(self, sources: SourceCode) -> None:
        self._sources = sources

    def name(self, place: Place) -> Name:
        """What a place is called."""
        way = _visible(place.way())
        start = _anchor(way)
        first = way[start]
        path = tuple(_component(one) for one in way[start + 1 :])
        if first.step in (Step.ATTRIBUTE, Step.CLASS_ATTRIBUTE, Step.KEY) and isinstance(first.owner, Place):
            return self._of_class(first, path)
        return self._of_scope(first, path, place.scope)

    def _of_class(self, first: Place, path: tuple[tuple[str, Any], ...]) -> Name:
        owner = _owner_object(first)
        kind = _definer(owner, str(first.label)) if first.step is Step.CLASS_ATTRIBUTE else type(owner)
        text = f"{plain_name(kind.__qualname__)}.{first.label}{_suffix(path)}"
        return Name(text, Handle(str(first.label), True, path, self._sources.files_of(kind)))

    def _of_scope(self, first: Place, path: tuple[tuple[str, Any], ...], scope: Scope) -> Name:
        label = str(first.label)
        expression = f"{label}{_suffix(path)}"
        quoted = expression if path else f"'{label}'"
        if first.step is Step.GLOBAL:
            filename = scope.module or (scope.code.co_filename if scope.code is not None else "")
            handle = Handle(label, False, path, (filename,))
            text = f"module-level {{kind}} {quoted} in {os.path.basename(filename)}"
            return Name(text, handle, is_user_file(filename))
        if scope.code is None and not isinstance(first.owner, Place):
            return Name("{kind} without a name", Handle(), False)
        function, filename, line = self._function_of(first, scope, label)
        default = "a default of " if first.step is Step.DEFAULT else ""
        text = f"{{kind}} {quoted} in {default}{function}()"
        return Name(text, Handle(label, False, path, (filename,), line), is_user_file(filename))

    def _function_of(self, first: Place, scope: Scope, label: str) -> tuple[str, str, int]:
        """Name, file and first line of the function in which a variable lives."""
        owner = first.owner.value if isinstance(first.owner, Place) else None
        if type(owner) is FunctionType:
            name, code = plain_name(owner.__qualname__), owner.__code__
        elif scope.code is not None:
            name, code = qualified_name(scope.code), scope.code
        else:
            return "?", "", 0
        if first.step is not Step.CLOSED:
            return name, code.co_filename, code.co_firstlineno
        found = self._sources.binding_function(code.co_filename, code.co_firstlineno, code.co_name, label)
        if found is not None:
            return found[0], code.co_filename, found[1]
        return name.rpartition(".")[0] or name, code.co_filename, 0


def full_name(name: Name, noun: str) -> str:
    """The name with the noun for what it is put in."""
    return name.text.replace("{kind}", noun)


def _visible(way: list[Place]) -> list[Place]:
    """The way without what a user does not write: ``model._modules['0']`` is ``model[0]``, a wrapper's own dict."""
    found: list[Place] = []
    for place in way:
        before = place.owner.value if isinstance(place.owner, Place) else None
        label = place.label
        if place.step is Step.INSIDE and found:
            continue
        if place.step is Step.CLOSED and not label and found:
            continue
        if found and place.step is Step.ATTRIBUTE and _is_table(before, label):
            continue
        if label in ("__self__", "__func__", "__wrapped__", "func") and found:
            continue
        found.append(place)
    return found


def _is_table(owner: Any, label: Any) -> bool:
    kinds = plain.mro(type(owner))
    if torch.nn.Module in kinds:
        return label in _MODULE_TABLES
    return any(_INNER.get(base) == label for base in kinds)


def _anchor(way: list[Place]) -> int:
    """Where the name begins: the last variable, or the last attribute of an object of the user's own class."""
    for i in range(len(way) - 1, 0, -1):
        place = way[i]
        if place.step in (Step.CLOSED, Step.LOCAL, Step.GLOBAL, Step.DEFAULT, Step.CLASS_ATTRIBUTE):
            return i
        is_attribute = place.step is Step.ATTRIBUTE or (place.step is Step.KEY and _is_module_child(place.owner))
        if is_attribute and is_user_class(type(_owner_object(place))):
            return i
    return 0


def _owner_object(place: Place) -> Any:
    """The object whose attribute a place is; for a module's child, the module."""
    owner = place.owner
    if isinstance(owner, Place) and _is_module_child(owner) and isinstance(owner.owner, Place):
        return owner.owner.value
    return owner.value if isinstance(owner, Place) else None


def _is_module_child(table: Place | Scope) -> bool:
    """Whether what is behind a place is a module's child: that place is the table of its children."""
    return isinstance(table, Place) and table.step is Step.ATTRIBUTE and table.label in _MODULE_TABLES


def _definer(kind: type, name: str) -> type:
    return next((base for base in plain.mro(kind) if name in plain.class_attributes(base)), kind)


def _component(place: Place) -> tuple[str, Any]:
    label = place.label
    if place.step in (Step.ATTRIBUTE, Step.CLASS_ATTRIBUTE, Step.CLOSED, Step.DEFAULT):
        return ("attr", str(label))
    if place.step is Step.KEY and _is_module_child(place.owner):
        return ("item", label) if str(label).isdigit() else ("attr", str(label))
    if place.step is Step.ITEM and label is None:
        return ("key", None)
    return ("key", label if type(label) in (str, int, float, bool, bytes) else None)


def _suffix(path: tuple[tuple[str, Any], ...]) -> str:
    parts = []
    for kind, label in path:
        if kind == "attr":
            parts.append(f".{label}")
        elif kind == "item":
            parts.append(f"[{label}]")
        else:
            parts.append("[...]" if label is None else f"[{label!r}]")
    return "".join(parts)


def kind_of(place: Place) -> HolderKind:
    """What kind of holder a container is."""
    if type(_shown(place)) in (plain.Cycle, plain.Tee):
        return HolderKind.ITERATOR
    if is_hook_table(place):
        return HolderKind.HOOKS
    kinds = plain.mro(type(place.value))
    return next((kind for base, kind in _KINDS if base in kinds), HolderKind.OBJECTS)


_KINDS: tuple[tuple[type, HolderKind], ...] = (
    (list, HolderKind.LIST),
    (dict, HolderKind.DICT),
    (set, HolderKind.SET),
    (deque, HolderKind.DEQUE),
    (plain.LruCache, HolderKind.LRU_CACHE),
    (torch.Tensor, HolderKind.TENSOR),
    (np.ndarray, HolderKind.TENSOR),
)


def is_hook_table(place: Place) -> bool:
    """Whether a dict is the table of a module's, a tensor's or an optimizer's hooks."""
    return place.step is Step.ATTRIBUTE and str(place.label).endswith("_hooks") and dict in plain.mro(type(place.value))


def _shown(place: Place) -> Any:
    """The object that the name is for: the iterator, not the list hidden in it."""
    return _visible(place.way())[-1].value


def type_name(place: Place) -> str:
    """A type's own name where it tells more than the kind."""
    kind = type(_shown(place))
    return "" if kind in (list, dict, set, deque, plain.LruCache) else _spoken(kind)


def noun(place: Place) -> str:
    """What a thing is called in front of its name."""
    return _spoken(type(_shown(place)))


def _spoken(kind: type) -> str:
    return {"_tee": "tee", "_lru_cache_wrapper": "lru_cache", "Parameter": "parameter"}.get(
        kind.__name__, "tensor" if kind is torch.Tensor else kind.__name__
    )
