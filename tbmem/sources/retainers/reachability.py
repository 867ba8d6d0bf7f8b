"""Every object of a program that a user could name, with the way there.

The way is walked from variables downwards: a local, a global or a closure's variable, then attributes, keys and
elements. Objects of this module hold what they have found: drop them before the training goes on.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from traceback import walk_stack
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch

from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import (
    frames_of_other_threads,
    has_fast_locals,
    is_our_class,
    is_ours,
    is_user_class,
    is_user_file,
    locals_of,
    nobody_traces,
    stack_of,
    user_frames,
)


class Step(Enum):
    """How one object is reached from the one before."""

    LOCAL = "local"
    CLOSED = "closed"
    """A variable of a function around this one."""
    GLOBAL = "global"
    DEFAULT = "default"
    """A default value of an argument."""
    ATTRIBUTE = "attribute"
    CLASS_ATTRIBUTE = "class attribute"
    KEY = "key"
    ITEM = "item"
    INSIDE = "inside"
    """Held in C, without a name."""


class Place:
    """An object and the way to it."""

    __slots__ = ("_key", "label", "owner", "step", "value")

    def __init__(self, value: Any, owner: Place | Scope, step: Step, label: Any) -> None:
        self.value = value
        self.owner = owner
        self.step = step
        self.label = label
        self._key: tuple[Any, ...] | None = None

    def way(self) -> list[Place]:
        """The places from the variable to this one."""
        found: list[Place] = [self]
        owner = self.owner
        while isinstance(owner, Place):
            found.append(owner)
            owner = owner.owner
        return found[::-1]

    @property
    def scope(self) -> Scope:
        """Where the variable stands."""
        owner = self.owner
        return owner.scope if isinstance(owner, Place) else owner

    def key(self) -> tuple[Any, ...]:
        """The same way in a later look has the same key; holds no object of the user's."""
        if self._key is None:
            self._key = (self.owner.key(), self.step.value, _plain_label(self.label))
        return self._key


def _plain_label(label: Any) -> Any:
    return label if type(label) in (str, int, float, bool, bytes) else f"{type(label).__name__} {id(label)}"


class Scope:
    """A function, module or class in which variables stand: its code, or the name of its module."""

    __slots__ = ("code", "is_aside", "module", "number")

    def __init__(
        self, code: CodeType | None = None, module: str = "", number: int = 0, *, is_aside: bool = False
    ) -> None:
        self.code = code
        self.module = module
        self.number = number
        self.is_aside = is_aside
        """Whether the loop can do without it: a suspended generator's or another thread's frame, of which each step
        may have left one behind."""

    def key(self) -> tuple[Any, ...]:
        """The same in a later look."""
        if self.code is None:
            return (self.module,)
        return (self.code.co_filename, self.code.co_firstlineno, self.code.co_name, self.number)


_SIMPLE: frozenset[type] = frozenset(
    (int, float, complex, bool, type(None), type(...), type(NotImplemented), CodeType, BuiltinFunctionType, ModuleType)
    + (torch.dtype, torch.device, torch.layout, torch.Size, range, slice, str, bytes, bytearray)
)
_MANY = plain.LARGE
_MANY_ATTRIBUTES = 24
"""From here on an object's attributes are watched as a container: each step may add one."""
_DEEPEST = 14
_GENERATORS = (GeneratorType, CoroutineType, AsyncGeneratorType)


class Walk:
    """One walk over what can be named; breadth first, so that the shortest name wins."""

    def __init__(self, limit: int, seconds: float) -> None:
        """Nothing is walked yet.

        Args:
            limit: Objects at most.
            seconds: Processor time at most, so that a busy machine sees as much as an idle one.
        """
        self.found: dict[int, Place] = {}
        self.complete = True
        self._namespaces: set[int] = set()
        self._queue: deque[tuple[Place, int]] = deque()
        self._limit = limit
        self._ends = time.thread_time() + seconds

    def from_frames(self, frame: FrameType | None, generators: Iterable[Any] = ()) -> None:
        """Walk from the frames of all threads, user's first, from suspended generators and from users' modules."""
        mine = list(stack_of(frame))
        users = list(user_frames(frame))
        tidy = nobody_traces()
        self._add_frames(users, tidy)
        self._add_modules()
        for one in generators:
            self._add_generator(one, tidy)
        self._drain()
        self._add_other_threads()
        self._add_frames([one for one in mine if one not in users], tidy)
        self._drain()

    def user_files(self) -> list[str]:
        """Users' files in which the functions and classes are written that were met."""
        codes = [place.value.__code__ for place in self.found.values() if type(place.value) is FunctionType]
        kinds = {type(place.value) for place in self.found.values()}
        classes = [code for kind in kinds if is_user_class(kind) for code in _codes(kind)]
        names = dict.fromkeys(code.co_filename for code in (*codes, *classes))
        return [name for name in names if is_user_file(name)]

    def add(self, value: Any, owner: Place | Scope, step: Step, label: Any, depth: int = 0) -> Place | None:
        """Note one object, unless it has been seen or is of no interest; its place where it was noted."""
        kind = type(value)
        if id(value) in self.found or (kind in _SIMPLE and not self._is_long(value)):
            return None
        place = Place(value, owner, step, label)
        self.found[id(value)] = place
        if depth < _DEEPEST and kind not in _SIMPLE:
            self._queue.append((place, depth))
        return place

    @staticmethod
    def _is_long(value: Any) -> bool:
        return type(value) in (str, bytes, bytearray) and len(value) >= 1024

    def _drain(self) -> None:
        while self._queue:
            place, depth = self._queue.popleft()
            if len(self.found) >= self._limit or (depth > 1 and time.thread_time() > self._ends):
                self.complete = False
                self._queue.clear()
                return
            if type(place.value) is FunctionType and is_user_file(place.value.__code__.co_filename):
                self._add_globals(Scope(module=place.value.__code__.co_filename), place.value.__globals__)
            try:
                for value, step, label in _referred(place.value):
                    self.add(value, place, step, label, depth + 1)
            except (RuntimeError, TypeError):  # changed by another thread meanwhile; a class that has no hash
                continue

    def _add_frames(self, frames: Iterable[FrameType], tidy: bool, *, is_aside: bool = False) -> None:
        numbers: dict[CodeType, int] = {}
        for frame in frames:
            code = frame.f_code
            numbers[code] = numbers.get(code, -1) + 1
            if has_fast_locals(frame):
                self._add_variables(Scope(code, number=numbers[code], is_aside=is_aside), locals_of(frame, tidy))
            else:
                self._add_globals(Scope(code), frame.f_globals)

    def _add_variables(self, scope: Scope, variables: dict[str, Any]) -> None:
        free = scope.code.co_freevars if scope.code is not None else ()
        for name, value in variables.items():
            self.add(value, scope, Step.CLOSED if name in free else Step.LOCAL, name)

    def _add_globals(self, scope: Scope, names: dict[str, Any]) -> None:
        if id(names) in self._namespaces:
            return
        self._namespaces.add(id(names))
        for name, value in list(names.items()):
            if not (name.startswith("__") and name.endswith("__")):
                self.add(value, scope, Step.GLOBAL, name)

    def _add_modules(self) -> None:
        for name, module in list(sys.modules.items()):
            if type(module) is ModuleType:
                filename = module.__dict__.get("__file__")
                if name == "__main__" or (type(filename) is str and is_user_file(filename)):
                    self._add_globals(Scope(module=filename or name), module.__dict__)

    def _add_generator(self, one: Any, tidy: bool) -> None:
        frame = getattr(one, "gi_frame", None) or getattr(one, "cr_frame", None) or getattr(one, "ag_frame", None)
        if frame is not None and is_user_file(frame.f_code.co_filename) and frame.f_back is None:
            self._add_frames([frame], tidy, is_aside=True)

    def _add_other_threads(self) -> None:
        if threading.gettrace() is not None or threading.getprofile() is not None:
            return
        for top in frames_of_other_threads():
            frames = [one for one, _ in walk_stack(top)]
            if all(one.f_trace is None and not is_ours(one.f_code.co_filename) for one in frames):
                self._add_frames(user_frames(top), True, is_aside=True)


def _codes(kind: type) -> list[CodeType]:
    return [one.__code__ for one in plain.class_attributes(kind).values() if type(one) is FunctionType]


Reference = tuple[Any, Step, Any]


def _referred(value: Any) -> Iterable[Reference]:
    """What an object refers to, with the names for it."""
    kind = type(value)
    kinds = plain.mro(kind)
    if dict in kinds:
        yield from _items(value)
    elif list in kinds or tuple in kinds:
        yield from _elements(value, list.__len__(value) if list in kinds else tuple.__len__(value))
    elif deque in kinds or set in kinds or frozenset in kinds:
        yield from ((one, Step.ITEM, None) for one in plain.newest_of(value, plain.TAIL))
    elif kind is FunctionType:
        yield from _of_function(value)
    elif type in kinds:
        if is_user_class(value):
            yield from ((one, Step.CLASS_ATTRIBUTE, name) for name, one in plain.class_attributes(value).items())
        return
    elif kind in _OF_KIND:
        yield from _OF_KIND[kind](value)
    if is_our_class(kind):
        return
    if torch.Tensor in kinds:
        yield from _of_tensor(value, kind)
        return
    yield from _attributes(value, kind)
    if BaseException in kinds or (kind not in _KNOWN and plain.module_of(kind) in _IN_C):
        yield from ((one, Step.INSIDE, None) for one in gc.get_referents(value) if type(one) is not type)


_IN_C = ("itertools", "builtins")
_KNOWN = frozenset((list, tuple, dict, set, frozenset, FunctionType, MethodType, staticmethod, classmethod, property))


def _items(value: dict[Any, Any]) -> Iterator[Reference]:
    for key, one in plain.some_items(value):
        yield one, Step.KEY, key
        if type(key) not in _SIMPLE:
            yield key, Step.INSIDE, None


def _elements(value: Any, size: int) -> Iterator[Reference]:
    get = list.__getitem__ if list in plain.mro(type(value)) else tuple.__getitem__
    names = plain.fields_of(value)
    if names:
        yield from ((one, Step.ATTRIBUTE, name) for name, one in zip(names, get(value, slice(None)), strict=False))
    elif size <= _MANY:
        yield from ((one, Step.ITEM, i) for i, one in enumerate(get(value, slice(None))))
    else:
        yield from ((one, Step.ITEM, i) for i, one in enumerate(get(value, slice(plain.HEAD))))
        yield from ((one, Step.ITEM, i - plain.TAIL) for i, one in enumerate(get(value, slice(-plain.TAIL, None))))


def _attributes(value: Any, kind: type) -> Iterator[Reference]:
    names = plain.instance_dict(value)
    if names is not None:
        for name, one in plain.some_items(names):
            yield one, Step.ATTRIBUTE, name
        if len(names) > _MANY_ATTRIBUTES:
            yield names, Step.ATTRIBUTE, "__dict__"
    if kind.__flags__ & (1 << 9) or kind is partial:
        for name, one in plain.slot_values(value):
            yield one, Step.ATTRIBUTE, name


def _of_function(value: FunctionType) -> Iterator[Reference]:
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        yield plain.cell_value(cell), Step.CLOSED, name
    code = value.__code__
    defaults = value.__defaults__ or ()
    for name, one in zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=False):
        yield one, Step.DEFAULT, name
    for name, one in (value.__kwdefaults__ or {}).items():
        yield one, Step.DEFAULT, name


PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""Tensors that can be asked without running a subclass's Python."""


def _of_tensor(value: torch.Tensor, kind: type) -> Iterator[Reference]:
    if any(type(one) is dict for one in gc.get_referents(value)):  # asking for a dict that is not there makes one
        yield from _attributes(value, kind)
    if kind in PLAIN_TENSORS and value.is_leaf and value.requires_grad:
        yield value.grad, Step.ATTRIBUTE, "grad"
        yield getattr(value, "_backward_hooks", None), Step.ATTRIBUTE, "_backward_hooks"
        yield (
            getattr(value, "_post_accumulate_grad_hooks", None),
            Step.ATTRIBUTE,
            "_post_accumulate_grad_hooks",
        )


def _of_method(value: MethodType) -> Iterator[Reference]:
    yield value.__self__, Step.ATTRIBUTE, "__self__"
    yield value.__func__, Step.ATTRIBUTE, "__func__"


def _of_cache(value: Any) -> Iterator[Reference]:
    for key, answer in plain.cache_entries(value)[-plain.TAIL :]:
        yield answer, Step.INSIDE, None
        yield key, Step.INSIDE, None


_OF_KIND: dict[type, Any] = {
    MethodType: _of_method,
    CellType: lambda cell: ((plain.cell_value(cell), Step.CLOSED, ""),),
    plain.LruCache: _of_cache,
    staticmethod: lambda one: ((one.__func__, Step.INSIDE, None),),
    classmethod: lambda one: ((one.__func__, Step.INSIDE, None),),
    property: lambda one: ((one.fget, Step.INSIDE, None), (one.fset, Step.INSIDE, None)),
}
