"""Probes of containers and variables that grow; what is watched is released as soon as nobody else holds it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from types import FrameType, FunctionType
from typing import Any

import torch

from tbmem.interruption import raise_interruption
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import local_of
from tbmem.sources.retainers.reachability import Reference, ReferenceKind
from tbmem.sources.retainers.retained_size import tensor_bytes
from tbmem.sources.torch_state import autograd_graph

_EMPTIED = 0.5
"""Share of its first elements that a container may have kept when it counts as emptied: what drops its oldest elements
one by one (a window, a replay buffer) keeps more in a step."""


class ValueReader:
    """Reads a value in its owner (a dict, a cell, an object), or in a frame where the owner is ``None``."""

    def __init__(self, owner: Any, read: Callable[[Any, FrameType], Any]) -> None:
        self._owner = owner
        self._read: Callable[[Any, FrameType], Any] | None = read

    def value(self, frame: FrameType) -> Any:
        """The value now; ``None`` where it cannot be known."""
        owner = self._owner
        if owner is not None and sys.getrefcount(owner) <= _ONLY_OURS:
            self.release()
        return self._read(self._owner, frame) if self._read is not None else None

    def release(self) -> None:
        """Release the owner."""
        self._owner = self._read = None


def reader_of(reference: Reference) -> ValueReader:
    """A reader of a reference's value, for whatever frame is running."""
    label, owner = reference.label, reference.owner
    if not isinstance(owner, Reference):
        code = owner.code
        if code is not None and reference.kind is not ReferenceKind.GLOBAL:
            return ValueReader(None, lambda _, frame: local_of(frame, label) if frame.f_code is code else None)
        filename = code.co_filename if code is not None else owner.module
        return ValueReader(
            None, lambda _, frame: frame.f_globals.get(label) if frame.f_code.co_filename == filename else None
        )
    held = owner.value
    kinds = plain.mro(type(held))
    if tuple in kinds:
        outer = reader_of(owner)
        at = plain.fields_of(held).index(label) if reference.kind is ReferenceKind.ATTRIBUTE else label
        return ValueReader(None, lambda _, frame: _item(outer.value(frame), at))
    if dict in kinds and reference.kind is ReferenceKind.KEY:
        return ValueReader(held, lambda held, _: dict.get(held, label))
    if list in kinds and reference.kind is ReferenceKind.ITEM:
        return ValueReader(held, lambda held, _: _item(held, label))
    if reference.kind is ReferenceKind.CLOSED and type(held) is FunctionType:
        cell = dict(zip(held.__code__.co_freevars, held.__closure__ or (), strict=False)).get(label)
        return ValueReader(cell, lambda cell, _: plain.cell_value(cell) if cell is not None else None)
    return ValueReader(held, lambda held, _: _attribute(held, label) if held is not None else None)


def _item(value: Any, label: Any) -> Any:
    try:
        return (list if plain.is_a(value, list) else tuple).__getitem__(value, label)
    except (IndexError, TypeError) as error:
        raise_interruption(error)
        return None


def _attribute(held: Any, label: str) -> Any:
    if plain.is_a(held, torch.Tensor) and label == "grad":
        return held.grad
    if type in plain.mro(type(held)):
        return plain.class_attributes(held).get(label)
    names = plain.instance_dict(held)
    if names is not None and label in names:
        return names[label]
    return dict(plain.slot_values(held)).get(label)


class SizeProbe:
    """Watches the length of a container, and then of what has replaced it (``kept = kept + [x]``)."""

    def __init__(self, container: Any, length: Callable[[Any], int], reader: ValueReader | None = None) -> None:
        self._container = container
        self._length = length
        self._reader = reader
        self.first = self.last = self.lowest = length(container)
        self.is_gone = False

    def grew(self, frame: FrameType) -> int:
        """New elements since the last call."""
        more = self.check()
        successor = self._reader.value(frame) if self._container is None and self._reader is not None else None
        if successor is not None and self._length(successor) >= self.last:  # not a fresh start
            self._container = successor
            self.is_gone = False
            del successor  # it would count as a holder
            more += self.check()
        return more

    def check(self) -> int:
        """New elements since the last call; notes when the container was released."""
        container = self._container
        if container is None:
            return 0
        before, self.last = self.last, self._length(container)
        self.lowest = min(self.lowest, self.last)
        if sys.getrefcount(container) <= _ONLY_OURS:
            self._container = None
            self.is_gone = True
            return 0
        return max(self.last - before, 0)

    @property
    def was_emptied(self) -> bool:
        """Whether most of what the container had at first was dropped at some time."""
        return self.lowest <= _EMPTIED * self.first

    def release(self) -> None:
        """Release the container."""
        self._container = None
        if self._reader is not None:
            self._reader.release()


def _references_of_a_probe() -> int:
    """What ``getrefcount`` says in a probe when nothing else holds what it holds."""

    class Counted(SizeProbe):
        def check(self) -> int:
            container = self._container
            return sys.getrefcount(container)

    return Counted([], lambda _: 0).check()


_ONLY_OURS = _references_of_a_probe()


class ValueProbe:
    """Watches a variable, a key or an attribute: its value is replaced by another one."""

    def __init__(self, reader: ValueReader, value: Any) -> None:
        self._reader = reader
        self._last = _identity(value)

    def grew(self, frame: FrameType) -> int:
        """1 when there is another value than at the last call."""
        value = self._reader.value(frame)
        if value is None:
            return 0
        before, self._last = self._last, _identity(value)
        return int(before != self._last)

    def release(self) -> None:
        """Release the owner."""
        self._reader.release()


def _identity(value: Any) -> Hashable:
    """Distinguishes values; a tensor that was changed in place has another node and the same address."""
    if plain.is_a(value, torch.Tensor):
        number = autograd_graph.number_of(value.grad_fn) if value.grad_fn is not None else 0
        return id(value), number, tensor_bytes(value)
    return id(value)


Probe = SizeProbe | ValueProbe
"""Watches one thing: ``grew`` says how much it has grown since the last call, ``release`` lets go of every object."""
