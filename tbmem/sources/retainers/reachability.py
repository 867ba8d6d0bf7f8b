"""Traversal of every object of a program that a user could name, with the path to each; holds what it has found."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from traceback import walk_stack
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tbmem.interruption import raise_interruption
from tbmem.sources.program import introspection as plain
from tbmem.sources.program import ownership


class ReferenceKind(Enum):
    """How one object is reached from the one before."""

    LOCAL = "local"
    CLOSED = "closed"  # a variable of an enclosing function
    GLOBAL = "global"
    DEFAULT = "default"  # a default value of an argument
    ATTRIBUTE = "attribute"
    CLASS_ATTRIBUTE = "class attribute"
    KEY = "key"
    ITEM = "item"
    INSIDE = "inside"  # held in C, without a name


@dataclass(slots=True, eq=False, repr=False)
class Reference:
    """An object and the path to it."""

    value: Any
    owner: Reference | RootScope
    kind: ReferenceKind
    label: Any
    _key: tuple[Any, ...] | None = None

    def path(self) -> list[Reference]:
        """The references from the variable to this one."""
        path: list[Reference] = [self]
        while isinstance(path[-1].owner, Reference):
            path.append(path[-1].owner)
        return path[::-1]

    @property
    def holder(self) -> Any:
        """The object that refers to it; ``None`` where a variable does."""
        return self.owner.value if isinstance(self.owner, Reference) else None

    @property
    def scope(self) -> RootScope:
        """Scope of the variable that the path begins at."""
        owner = self.owner
        return owner.scope if isinstance(owner, Reference) else owner

    def key(self) -> tuple[Any, ...]:
        """Key that the same path has at a later observation; holds no object of the user's."""
        if self._key is None:
            label = self.label
            plain_label = label if type(label) in PLAIN_LABELS else f"{type(label).__name__} {id(label)}"
            self._key = (self.owner.key(), self.kind.value, plain_label)
        return self._key


PLAIN_LABELS = (str, int, float, bool, bytes)  # can be written down without holding an object of the user's


@dataclass(slots=True, eq=False, repr=False)
class RootScope:
    """A function, module or class in which variables live: its code, or the name of its module."""

    code: CodeType | None = None
    module: str = ""
    number: int = 0
    is_aside: bool = False  # of a suspended generator or another thread: each step may have left one behind

    def key(self) -> tuple[Any, ...]:
        """Key that the same scope has at a later observation."""
        if self.code is None:
            return (self.module,)
        return (self.code.co_filename, self.code.co_firstlineno, self.code.co_name, self.number)


_SIMPLE: frozenset[type] = frozenset(
    (int, float, complex, bool, type(None), type(...), type(NotImplemented), CodeType, BuiltinFunctionType, ModuleType)
    + (torch.dtype, torch.device, torch.layout, torch.Size, range, slice, str, bytes, bytearray)
)
_LONG_TEXT = 1024  # characters or bytes from which a text is noted
_MANY_ATTRIBUTES = 24  # attributes from which an object's dict counts as a container: each step may add one
_MAX_DEPTH = 14


Namespaces = Mapping[str, dict[str, Any]]
"""Values by name, by the path of the file in which they have that name."""


class Traversal:
    """One traversal over what can be named; breadth first, so that the shortest name wins.

    It starts at the frames of all threads, the user's first, at suspended generators and at the user's modules. The
    seconds are of processor time, so that a busy machine sees as much as an idle one. ``named``: what has a name in a
    file of the user's, but is in no variable, such as a test's fixtures; by the file's path.
    """

    def __init__(
        self,
        limit: int,
        seconds: float,
        frame: FrameType | None,
        generators: Iterable[Any] = (),
        named: Namespaces | None = None,
    ) -> None:
        self.references: dict[int, Reference] = {}  # by ``id`` of the object
        self.complete = True
        self._namespaces: set[int] = set()
        self._queue: deque[tuple[Reference, int]] = deque()
        self._limit = limit
        self._deadline = time.thread_time() + seconds
        users, tidy = list(ownership.user_frames(frame)), ownership.nobody_traces()
        self._add_frames(users, tidy)
        self._add_modules()
        for path, values in (named or {}).items():
            self._add_globals(RootScope(module=path), values)
        for generator in generators:
            self._add_generator(generator, tidy)
        self._drain()
        self._add_other_threads()
        self._add_frames([each for each in ownership.stack_of(frame) if each not in users], tidy)
        self._drain()

    def user_files(self) -> list[str]:
        """The user's files in which the functions and classes that were met are defined."""
        values = [reference.value for reference in self.references.values()]
        for kind in filter(ownership.is_user_class, set(map(type, values))):
            values += plain.class_attributes(kind).values()
        names = dict.fromkeys(value.__code__.co_filename for value in values if type(value) is FunctionType)
        return [name for name in names if ownership.is_user_file(name)]

    def _add(self, value: Any, owner: Reference | RootScope, kind: ReferenceKind, label: Any, depth: int = 0) -> None:
        """Note one object, unless it has been seen or is of no interest."""
        type_ = type(value)
        is_long = type_ in (str, bytes, bytearray) and len(value) >= _LONG_TEXT
        if id(value) in self.references or (type_ in _SIMPLE and not is_long):
            return
        self.references[id(value)] = reference = Reference(value, owner, kind, label)
        if depth < _MAX_DEPTH and type_ not in _SIMPLE:
            self._queue.append((reference, depth))

    def _drain(self) -> None:
        while self._queue:
            reference, depth = self._queue.popleft()
            if len(self.references) >= self._limit or (depth > 1 and time.thread_time() > self._deadline):
                self.complete = False
                self._queue.clear()
                return
            value = reference.value
            if type(value) is FunctionType and ownership.is_user_file(value.__code__.co_filename):
                self._add_globals(RootScope(module=value.__code__.co_filename), value.__globals__)
            try:
                for referent, kind, label in _referents(value):
                    self._add(referent, reference, kind, label, depth + 1)
            except (RuntimeError, TypeError) as error:  # changed by another thread meanwhile; a class that has no hash
                raise_interruption(error)
                continue

    def _add_frames(self, frames: Iterable[FrameType], tidy: bool, *, is_aside: bool = False) -> None:
        numbers: dict[CodeType, int] = {}
        for frame in frames:
            code = frame.f_code
            numbers[code] = numbers.get(code, -1) + 1
            if not ownership.has_fast_locals(frame):
                self._add_globals(RootScope(code), frame.f_globals)
                continue
            scope = RootScope(code, number=numbers[code], is_aside=is_aside)
            for name, value in ownership.locals_of(frame, tidy).items():
                kind = ReferenceKind.CLOSED if name in code.co_freevars else ReferenceKind.LOCAL
                self._add(value, scope, kind, name)

    def _add_globals(self, scope: RootScope, namespace: dict[str, Any]) -> None:
        items = list(namespace.items()) if id(namespace) not in self._namespaces else ()
        self._namespaces.add(id(namespace))
        for name, value in items:
            if not (name.startswith("__") and name.endswith("__")):
                self._add(value, scope, ReferenceKind.GLOBAL, name)

    def _add_modules(self) -> None:
        for name, module in list(sys.modules.items()):
            if type(module) is ModuleType:
                filename = module.__dict__.get("__file__")
                if name == "__main__" or (type(filename) is str and ownership.is_user_file(filename)):
                    self._add_globals(RootScope(module=filename or name), module.__dict__)

    def _add_generator(self, generator: Any, tidy: bool) -> None:
        attributes = ("gi_frame", "cr_frame", "ag_frame")
        frame = next((getattr(generator, name) for name in attributes if hasattr(generator, name)), None)
        if frame is not None and ownership.is_user_file(frame.f_code.co_filename) and frame.f_back is None:
            self._add_frames([frame], tidy, is_aside=True)

    def _add_other_threads(self) -> None:
        if threading.gettrace() is not None or threading.getprofile() is not None:
            return
        for top in ownership.frames_of_other_threads():
            frames = [frame for frame, _ in walk_stack(top)]
            if all(frame.f_trace is None and not ownership.is_ours(frame.f_code.co_filename) for frame in frames):
                self._add_frames(ownership.user_frames(top), True, is_aside=True)


_Edge = tuple[Any, ReferenceKind, Any]  # a referent, and the kind and the label of the reference to it


def _referents(value: Any) -> Iterable[_Edge]:
    kind = type(value)
    bases = plain.mro(kind)
    if dict in bases:
        yield from _items(value)
    elif list in bases or tuple in bases:
        yield from _elements(value, list if list in bases else tuple)
    elif deque in bases or set in bases or frozenset in bases:
        yield from ((each, ReferenceKind.ITEM, None) for each in plain.newest_of(value, plain.TAIL))
    elif kind is FunctionType:
        yield from _of_function(value)
    elif type in bases:
        attributes = plain.class_attributes(value) if ownership.is_user_class(value) else {}
        yield from ((each, ReferenceKind.CLASS_ATTRIBUTE, name) for name, each in attributes.items())
        return
    elif kind in _OF_KIND:
        yield from _OF_KIND[kind](value)
    if ownership.is_our_class(kind) or ownership.is_shell_class(kind):
        return
    if torch.Tensor in bases:
        yield from _of_tensor(value, kind)
        return
    yield from _attributes(value, kind)
    if BaseException in bases or (kind not in _KNOWN and plain.module_of(kind) in _IN_C):
        yield from _inside(*(each for each in gc.get_referents(value) if type(each) is not type))


_IN_C = ("itertools", "builtins")
_KNOWN = frozenset((list, tuple, dict, set, frozenset, FunctionType, MethodType, staticmethod, classmethod, property))


def _inside(*values: Any) -> Iterator[_Edge]:
    return ((each, ReferenceKind.INSIDE, None) for each in values)


def _items(value: dict[Any, Any]) -> Iterator[_Edge]:
    for key, element in plain.some_items(value):
        yield element, ReferenceKind.KEY, key
        if type(key) not in _SIMPLE:
            yield key, ReferenceKind.INSIDE, None


def _elements(value: Any, base: Any) -> Iterator[_Edge]:
    names = plain.fields_of(value)
    is_long = not names and base.__len__(value) > plain.LARGE
    elements = base.__getitem__(value, slice(plain.HEAD if is_long else None))
    if names:
        yield from ((each, ReferenceKind.ATTRIBUTE, name) for name, each in zip(names, elements, strict=False))
        return
    yield from ((each, ReferenceKind.ITEM, i) for i, each in enumerate(elements))
    if is_long:
        newest = base.__getitem__(value, slice(-plain.TAIL, None))
        yield from ((each, ReferenceKind.ITEM, i - plain.TAIL) for i, each in enumerate(newest))


def _attributes(value: Any, kind: type) -> Iterator[_Edge]:
    names = plain.instance_dict(value)
    if names is not None:
        yield from ((each, ReferenceKind.ATTRIBUTE, name) for name, each in plain.some_items(names))
        if len(names) > _MANY_ATTRIBUTES:
            yield names, ReferenceKind.ATTRIBUTE, "__dict__"
    if kind.__flags__ & (1 << 9) or kind is partial:
        yield from ((each, ReferenceKind.ATTRIBUTE, name) for name, each in plain.slot_values(value))


def _of_function(value: FunctionType) -> Iterator[_Edge]:
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        yield plain.cell_value(cell), ReferenceKind.CLOSED, name
    code, defaults = value.__code__, value.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for name, default in (*zip(names, defaults, strict=False), *(value.__kwdefaults__ or {}).items()):
        yield default, ReferenceKind.DEFAULT, name


PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)  # reading them runs no subclass's Python


def _of_tensor(value: torch.Tensor, kind: type) -> Iterator[_Edge]:
    if any(type(each) is dict for each in gc.get_referents(value)):  # reading a dict that is not there makes one
        yield from _attributes(value, kind)
    if kind in PLAIN_TENSORS and value.is_leaf and value.requires_grad:
        for name in ("grad", "_backward_hooks", "_post_accumulate_grad_hooks"):
            yield getattr(value, name, None), ReferenceKind.ATTRIBUTE, name


def _of_method(value: MethodType) -> Iterator[_Edge]:
    yield value.__self__, ReferenceKind.ATTRIBUTE, "__self__"
    yield value.__func__, ReferenceKind.ATTRIBUTE, "__func__"


def _of_cache(value: Any) -> Iterator[_Edge]:
    for key, result in plain.cache_entries(value)[-plain.TAIL :]:
        yield from _inside(result, key)


_OF_KIND: dict[type, Any] = {
    MethodType: _of_method,
    CellType: lambda cell: ((plain.cell_value(cell), ReferenceKind.CLOSED, ""),),
    plain.LruCache: _of_cache,
    staticmethod: lambda method: _inside(method.__func__),
    classmethod: lambda method: _inside(method.__func__),
    property: lambda descriptor: _inside(descriptor.fget, descriptor.fset),
}
