"""Names of objects as the user would write them, and handles for finding their lines."""

from __future__ import annotations

import os
from collections import UserDict, UserList, deque
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
import torch

from tbmem.model.evidence import HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_user_class, is_user_file, plain_name, qualified_name
from tbmem.sources.program.syntax import Handle, SourceCode, notebook_cell
from tbmem.sources.retainers.reachability import PLAIN_LABELS, Reference, ReferenceKind, RootScope

_WRAPPERS = (WeakKeyDictionary, WeakValueDictionary, WeakSet, UserDict, UserList)  # their elements are in ``data``
_MODULE_TABLES = ("_modules", "_parameters", "_buffers")
_INVISIBLE = ("__self__", "__func__", "__wrapped__", "func")
_PARTS = (ReferenceKind.ATTRIBUTE, ReferenceKind.KEY, ReferenceKind.ITEM, ReferenceKind.INSIDE)  # others are variables


class Name(NamedTuple):
    """What the user would call an object, and the handle for searching the source."""

    text: str
    handle: Handle = Handle()
    is_users: bool = True  # whether the user's own code has a name for it; a library's cache is not


def name_of(reference: Reference, sources: SourceCode, noun: str = "") -> Name:
    """What a reference is called; the type of the object stands for a noun that is not given."""
    references = _visible(reference.path())
    start = _anchor(references)
    first = references[start]
    path = tuple(_component(each) for each in references[start + 1 :])
    if first.kind in (ReferenceKind.ATTRIBUTE, ReferenceKind.CLASS_ATTRIBUTE, ReferenceKind.KEY):
        owner, label = _owner_object(first), str(first.label)
        kind = type(owner)
        if first.kind is ReferenceKind.CLASS_ATTRIBUTE:  # its class is the one that defines it
            kind = next((base for base in plain.mro(owner) if label in plain.class_attributes(base)), owner)
        handle = Handle(label, True, path, sources.files_of(kind))
        return Name(f"{plain_name(kind.__qualname__)}.{label}{_suffix(path)}", handle, is_user_class(kind))
    return _name_of_variable(first, path, reference.scope, noun or _spoken(type(references[-1].value)), sources)


def _name_of_variable(
    first: Reference, path: tuple[tuple[str, Any], ...], scope: RootScope, noun: str, sources: SourceCode
) -> Name:
    label = str(first.label)
    quoted = f"{label}{_suffix(path)}" if path else f"'{label}'"
    if first.kind is ReferenceKind.GLOBAL:
        filename = scope.module or (scope.code.co_filename if scope.code is not None else "")
        module = "__main__" if notebook_cell(filename) else os.path.basename(filename)
        files = (module == "__main__" and sources.notebook_cells) or (filename,)
        text = f"module-level {noun} {quoted} in {module}"
        return Name(text, Handle(label, False, path, files), is_user_file(filename))
    if scope.code is None and not isinstance(first.owner, Reference):
        return Name(f"{noun} without a name", is_users=False)
    function, filename, line = _function_of(first, scope, label, sources)
    default = "a default of " if first.kind is ReferenceKind.DEFAULT else ""
    text = f"{noun} {quoted} in {default}{function}()"
    return Name(text, Handle(label, False, path, (filename,), line), is_user_file(filename))


def _function_of(first: Reference, scope: RootScope, label: str, sources: SourceCode) -> tuple[str, str, int]:
    """Name, file and first line of the function in which a variable lives."""
    if type(first.holder) is FunctionType:
        name, code = plain_name(first.holder.__qualname__), first.holder.__code__
    elif scope.code is not None:
        name, code = qualified_name(scope.code), scope.code
    else:
        return "?", "", 0
    if first.kind is not ReferenceKind.CLOSED:
        return name, code.co_filename, code.co_firstlineno
    binding = sources.binding_function(code.co_filename, code.co_firstlineno, code.co_name, label)
    if binding is not None:
        return binding[0], code.co_filename, binding[1]
    return name.rpartition(".")[0] or name, code.co_filename, 0


def _visible(path: list[Reference]) -> list[Reference]:
    """The path without what a user does not write: ``model._modules['0']`` is ``model[0]``, a wrapper's own dict."""
    visible = path[:1]
    for reference in path[1:]:
        is_hidden_variable = reference.kind is ReferenceKind.CLOSED and not reference.label
        is_table = reference.kind is ReferenceKind.ATTRIBUTE and _is_table(reference.holder, reference.label)
        is_hidden = reference.kind is ReferenceKind.INSIDE or is_hidden_variable or is_table
        if not is_hidden and reference.label not in _INVISIBLE:
            visible.append(reference)
    return visible


def _is_table(owner: Any, label: Any) -> bool:
    kinds = plain.mro(type(owner))
    if torch.nn.Module in kinds:
        return label in _MODULE_TABLES
    return label == "data" and any(base in _WRAPPERS for base in kinds)


def _anchor(path: list[Reference]) -> int:
    """Where the name begins: the last variable, or the last attribute of an object of the user's own class.

    Where the path begins at something without a name, the last attribute of an object of a package.
    """
    for i in range(len(path) - 1, 0, -1):
        reference = path[i]
        if reference.kind not in _PARTS:
            return i
        is_attribute = reference.kind is ReferenceKind.ATTRIBUTE or (
            reference.kind is ReferenceKind.KEY and _is_module_table(reference.owner)
        )
        if is_attribute and is_user_class(type(_owner_object(reference))):
            return i
    if path[0].kind is ReferenceKind.INSIDE:
        return max((i for i, each in enumerate(path) if each.kind is ReferenceKind.ATTRIBUTE), default=0)
    return 0


def _owner_object(reference: Reference) -> Any:
    """The object whose attribute a reference is; for a module's child, the module."""
    owner = reference.owner
    return owner.holder if isinstance(owner, Reference) and _is_module_table(owner) else reference.holder


def _is_module_table(owner: Reference | RootScope) -> bool:
    return isinstance(owner, Reference) and owner.kind is ReferenceKind.ATTRIBUTE and owner.label in _MODULE_TABLES


def _component(reference: Reference) -> tuple[str, Any]:
    label = reference.label
    if reference.kind is ReferenceKind.ATTRIBUTE:
        return ("attr", str(label))
    if reference.kind is ReferenceKind.KEY and _is_module_table(reference.owner):
        return ("item", label) if str(label).isdigit() else ("attr", str(label))
    return ("key", label if type(label) in PLAIN_LABELS else None)


def _suffix(path: tuple[tuple[str, Any], ...]) -> str:
    forms = {"attr": ".{0}", "item": "[{0}]", "key": "[{0!r}]"}
    return "".join("[...]" if label is None else forms[kind].format(label) for kind, label in path)


def kind_of(reference: Reference) -> HolderKind:
    """What kind of holder a container is."""
    if type(_shown(reference)) in (plain.Cycle, plain.Tee):
        return HolderKind.ITERATOR
    kinds = plain.mro(type(reference.value))
    if reference.kind is ReferenceKind.ATTRIBUTE and str(reference.label).endswith("_hooks") and dict in kinds:
        return HolderKind.HOOKS
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


def _shown(reference: Reference) -> Any:
    """The object that the name is for: the iterator, not the list hidden in it."""
    return _visible(reference.path())[-1].value


def type_name(reference: Reference) -> str:
    """A type's own name where it tells more than the kind."""
    kind = type(_shown(reference))
    return "" if kind in (list, dict, set, deque, plain.LruCache) else _spoken(kind)


def _spoken(kind: type) -> str:
    """What a thing is called in front of its name."""
    if kind is torch.Tensor:
        return "tensor"
    names = {"_tee": "tee", "_lru_cache_wrapper": "lru_cache", "Parameter": "parameter"}
    return names.get(kind.__name__, kind.__name__)
