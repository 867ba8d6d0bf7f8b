"""Names of objects as the user would write them, and handles for finding their lines."""

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
from tbmem.sources.retainers.reachability import PLAIN_LABELS, Reference, ReferenceKind, RootScope

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
    """Names references; remembers the sources that it has read."""

    def __init__(self, sources: SourceCode) -> None:
        self._sources = sources

    def name(self, reference: Reference) -> Name:
        """What a reference is called."""
        references = _visible(reference.path())
        start = _anchor(references)
        first = references[start]
        path = tuple(_component(each) for each in references[start + 1 :])
        if first.kind in (ReferenceKind.ATTRIBUTE, ReferenceKind.CLASS_ATTRIBUTE, ReferenceKind.KEY) and isinstance(
            first.owner, Reference
        ):
            return self._of_class(first, path)
        return self._of_scope(first, path, reference.scope)

    def _of_class(self, first: Reference, path: tuple[tuple[str, Any], ...]) -> Name:
        owner = _owner_object(first)
        kind = _definer(owner, str(first.label)) if first.kind is ReferenceKind.CLASS_ATTRIBUTE else type(owner)
        text = f"{plain_name(kind.__qualname__)}.{first.label}{_suffix(path)}"
        return Name(text, Handle(str(first.label), True, path, self._sources.files_of(kind)))

    def _of_scope(self, first: Reference, path: tuple[tuple[str, Any], ...], scope: RootScope) -> Name:
        label = str(first.label)
        expression = f"{label}{_suffix(path)}"
        quoted = expression if path else f"'{label}'"
        if first.kind is ReferenceKind.GLOBAL:
            filename = scope.module or (scope.code.co_filename if scope.code is not None else "")
            handle = Handle(label, False, path, (filename,))
            text = f"module-level {{kind}} {quoted} in {os.path.basename(filename)}"
            return Name(text, handle, is_user_file(filename))
        if scope.code is None and not isinstance(first.owner, Reference):
            return Name("{kind} without a name", Handle(), False)
        function, filename, line = self._function_of(first, scope, label)
        default = "a default of " if first.kind is ReferenceKind.DEFAULT else ""
        text = f"{{kind}} {quoted} in {default}{function}()"
        return Name(text, Handle(label, False, path, (filename,), line), is_user_file(filename))

    def _function_of(self, first: Reference, scope: RootScope, label: str) -> tuple[str, str, int]:
        """Name, file and first line of the function in which a variable lives."""
        owner = first.owner.value if isinstance(first.owner, Reference) else None
        if type(owner) is FunctionType:
            name, code = plain_name(owner.__qualname__), owner.__code__
        elif scope.code is not None:
            name, code = qualified_name(scope.code), scope.code
        else:
            return "?", "", 0
        if first.kind is not ReferenceKind.CLOSED:
            return name, code.co_filename, code.co_firstlineno
        binding = self._sources.binding_function(code.co_filename, code.co_firstlineno, code.co_name, label)
        if binding is not None:
            return binding[0], code.co_filename, binding[1]
        return name.rpartition(".")[0] or name, code.co_filename, 0


def full_name(name: Name, noun: str) -> str:
    """The name with its noun put in."""
    return name.text.replace("{kind}", noun)


def _visible(path: list[Reference]) -> list[Reference]:
    """The path without what a user does not write: ``model._modules['0']`` is ``model[0]``, a wrapper's own dict."""
    visible: list[Reference] = []
    for reference in path:
        before = reference.owner.value if isinstance(reference.owner, Reference) else None
        label = reference.label
        if reference.kind is ReferenceKind.INSIDE and visible:
            continue
        if reference.kind is ReferenceKind.CLOSED and not label and visible:
            continue
        if visible and reference.kind is ReferenceKind.ATTRIBUTE and _is_table(before, label):
            continue
        if label in ("__self__", "__func__", "__wrapped__", "func") and visible:
            continue
        visible.append(reference)
    return visible


def _is_table(owner: Any, label: Any) -> bool:
    kinds = plain.mro(type(owner))
    if torch.nn.Module in kinds:
        return label in _MODULE_TABLES
    return any(_INNER.get(base) == label for base in kinds)


def _anchor(path: list[Reference]) -> int:
    """Where the name begins: the last variable, or the last attribute of an object of the user's own class."""
    for i in range(len(path) - 1, 0, -1):
        reference = path[i]
        if reference.kind in (
            ReferenceKind.CLOSED,
            ReferenceKind.LOCAL,
            ReferenceKind.GLOBAL,
            ReferenceKind.DEFAULT,
            ReferenceKind.CLASS_ATTRIBUTE,
        ):
            return i
        is_attribute = reference.kind is ReferenceKind.ATTRIBUTE or (
            reference.kind is ReferenceKind.KEY and _is_module_child(reference.owner)
        )
        if is_attribute and is_user_class(type(_owner_object(reference))):
            return i
    return 0


def _owner_object(reference: Reference) -> Any:
    """The object whose attribute a reference is; for a module's child, the module."""
    owner = reference.owner
    if isinstance(owner, Reference) and _is_module_child(owner) and isinstance(owner.owner, Reference):
        return owner.owner.value
    return owner.value if isinstance(owner, Reference) else None


def _is_module_child(table: Reference | RootScope) -> bool:
    """Whether what is behind a reference is a module's child: that reference is the table of its children."""
    return isinstance(table, Reference) and table.kind is ReferenceKind.ATTRIBUTE and table.label in _MODULE_TABLES


def _definer(kind: type, name: str) -> type:
    return next((base for base in plain.mro(kind) if name in plain.class_attributes(base)), kind)


def _component(reference: Reference) -> tuple[str, Any]:
    label = reference.label
    if reference.kind in (
        ReferenceKind.ATTRIBUTE,
        ReferenceKind.CLASS_ATTRIBUTE,
        ReferenceKind.CLOSED,
        ReferenceKind.DEFAULT,
    ):
        return ("attr", str(label))
    if reference.kind is ReferenceKind.KEY and _is_module_child(reference.owner):
        return ("item", label) if str(label).isdigit() else ("attr", str(label))
    if reference.kind is ReferenceKind.ITEM and label is None:
        return ("key", None)
    return ("key", label if type(label) in PLAIN_LABELS else None)


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


def kind_of(reference: Reference) -> HolderKind:
    """What kind of holder a container is."""
    if type(_shown(reference)) in (plain.Cycle, plain.Tee):
        return HolderKind.ITERATOR
    if is_hook_table(reference):
        return HolderKind.HOOKS
    kinds = plain.mro(type(reference.value))
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


def is_hook_table(reference: Reference) -> bool:
    """Whether a dict is the table of a module's, a tensor's or an optimizer's hooks."""
    return (
        reference.kind is ReferenceKind.ATTRIBUTE
        and str(reference.label).endswith("_hooks")
        and dict in plain.mro(type(reference.value))
    )


def _shown(reference: Reference) -> Any:
    """The object that the name is for: the iterator, not the list hidden in it."""
    return _visible(reference.path())[-1].value


def type_name(reference: Reference) -> str:
    """A type's own name where it tells more than the kind."""
    kind = type(_shown(reference))
    return "" if kind in (list, dict, set, deque, plain.LruCache) else _spoken(kind)


def noun(reference: Reference) -> str:
    """What a thing is called in front of its name."""
    return _spoken(type(_shown(reference)))


def _spoken(kind: type) -> str:
    return {"_tee": "tee", "_lru_cache_wrapper": "lru_cache", "Parameter": "parameter"}.get(
        kind.__name__, "tensor" if kind is torch.Tensor else kind.__name__
    )
