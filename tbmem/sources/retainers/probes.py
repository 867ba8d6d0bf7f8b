"""Probes that tell whether a container or a variable has grown since the last call.

What is watched is held, and let go of as soon as nobody else holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from types import FrameType, FunctionType
from typing import Any, Protocol

import torch

from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import local_of
from tbmem.sources.retainers.reachability import Place, Step


class Probe(Protocol):
    """One thing that is watched."""

    def grew(self, frame: FrameType) -> int:
        """How much it has grown since the last call, 0 for not at all."""

    def release(self) -> None:
        """Let go of every object."""


class Spot:
    """Where a value stands: a variable of a frame, or what an owner holds under a name. Lets go of a lonely owner."""

    def __init__(self, owner: Any, read: Callable[[Any, FrameType], Any]) -> None:
        """Nothing is read yet.

        Args:
            owner: A dict, a cell, an object; ``None`` for variables of frames.
            read: The value in an owner, or in a frame; ``None`` where it cannot be known there.
        """
        self._owner = owner
        self._read: Callable[[Any, FrameType], Any] | None = read

    def value(self, frame: FrameType) -> Any:
        """What stands there now; ``None`` where it cannot be known."""
        owner = self._owner
        if owner is not None and sys.getrefcount(owner) <= _ONLY_OURS:
            self.release()
        return self._read(self._owner, frame) if self._read is not None else None

    def release(self) -> None:
        """Let go of the owner."""
        self._owner = self._read = None


def spot_of(place: Place) -> Spot:
    """Where a place is, to be read in whatever frame is running."""
    label, owner = place.label, place.owner
    if not isinstance(owner, Place):
        code, filename = owner.code, owner.module
        if code is not None and place.step is not Step.GLOBAL:
            return Spot(None, lambda _, frame: local_of(frame, label) if frame.f_code is code else None)
        filename = code.co_filename if code is not None else filename
        return Spot(None, lambda _, frame: frame.f_globals.get(label) if frame.f_code.co_filename == filename else None)
    held = owner.value
    kinds = plain.mro(type(held))
    if tuple in kinds:
        outer = spot_of(owner)
        at = plain.fields_of(held).index(label) if place.step is Step.ATTRIBUTE else label
        return Spot(None, lambda _, frame: _item(outer.value(frame), at))
    if dict in kinds and place.step is Step.KEY:
        return Spot(held, lambda held, _: dict.get(held, label))
    if list in kinds and place.step is Step.ITEM:
        return Spot(held, lambda held, _: _item(held, label))
    if place.step is Step.CLOSED and type(held) is FunctionType:
        cell = dict(zip(held.__code__.co_freevars, held.__closure__ or (), strict=False)).get(label)
        return Spot(cell, lambda cell, _: plain.cell_value(cell) if cell is not None else None)
    return Spot(held, lambda held, _: _attribute(held, label) if held is not None else None)


def _item(value: Any, label: Any) -> Any:
    try:
        return (list if plain.is_a(value, list) else tuple).__getitem__(value, label)
    except (IndexError, TypeError):
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
    """Watches the length of a container; lets go of it as soon as nobody else holds it."""

    def __init__(self, container: Any, length: Callable[[Any], int], spot: Spot | None = None) -> None:
        """The length now is the one to begin with.

        Args:
            container: What is watched.
            length: Counts its elements.
            spot: Where to look for another one that has taken its place (``kept = kept + [x]``).
        """
        self._container = container
        self._length = length
        self._spot = spot
        self.first = self.last = length(container)
        self.is_gone = False

    def grew(self, frame: FrameType) -> int:
        """New elements since the last call."""
        more = self.check()
        if self._container is None and self._spot is not None:
            self._follow(self._spot.value(frame))
            more += self.check()
        return more

    def check(self) -> int:
        """New elements since the last call; notes when the container was given up."""
        container = self._container
        if container is None:
            return 0
        size = self._length(container)
        more = max(size - self.last, 0)
        self.last = size
        if sys.getrefcount(container) <= _ONLY_OURS:
            self._container = None
            self.is_gone = True
            return 0
        return more

    def _follow(self, other: Any) -> None:
        """Go on with the container that has taken the place, if it is not a fresh start."""
        if other is not None and self._length(other) >= self.last:
            self._container = other
            self.is_gone = False

    def release(self) -> None:
        """Let go of the container."""
        self._container = None
        if self._spot is not None:
            self._spot.release()


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

    def __init__(self, spot: Spot, mark: Callable[[Any], Hashable], value: Any) -> None:
        self._spot = spot
        self._mark = mark
        self._last = mark(value)

    def grew(self, frame: FrameType) -> int:
        """1 when there is another value than at the last call."""
        value = self._spot.value(frame)
        if value is None:
            return 0
        mark = self._mark(value)
        changed = mark != self._last
        self._last = mark
        return int(changed)

    def release(self) -> None:
        """Let go of the owner."""
        self._spot.release()
