"""Lengths of containers and numbers of objects that Python's collector knows, over several observations."""

from __future__ import annotations

import atexit
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType, GeneratorType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import BackwardCFunction

from tbmem.interruption import SuppressedErrors
from tbmem.model.evidence import Contents, Holder, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_our_class, is_user_class, is_user_file
from tbmem.sources.program.tracked_objects import objects_of, subclasses
from tbmem.sources.retainers.reachability import PLAIN_TENSORS

_GENERATORS = (GeneratorType, CoroutineType, AsyncGeneratorType)
_TENSORS = 50_000  # tensors that are looked at one by one
EXIT_CALLBACKS = "atexit"  # key of the functions that are called when the program ends
_ENOUGH = 4  # new elements between two observations from which a rate is computed


@dataclass(slots=True)
class Series:
    """One size at several observations, each with its step."""

    points: list[tuple[int, int]] = field(default_factory=list)

    def changes(self) -> list[tuple[int, int]]:
        """Each later observation's step, and how much larger the size was than before."""
        pairs = zip(self.points, self.points[1:], strict=False)
        return [(step, after - before) for (_, before), (step, after) in pairs]

    @property
    def is_growing(self) -> bool:
        """Larger at two observations at least and smaller at none."""
        changes = [change for _, change in self.changes()]
        return sum(change > 0 for change in changes) >= 2 and min(changes) >= 0

    @property
    def per_step(self) -> float:
        """Growth per step: since the observation before last where that is enough, else over all."""
        (first, before), (last, after) = self.points[-2:]
        if after - before < _ENOUGH:
            first, before = self.points[0]
        return (after - before) / max(last - first, 1)

    @property
    def growth(self) -> int:
        """Growth over all observations."""
        return self.points[-1][1] - self.points[0][1]

    @property
    def since(self) -> int:
        """Step of the first observation at which it was larger than before."""
        return next((step for step, change in self.changes() if change > 0), self.points[-1][0])

    def holder(self, kind: HolderKind, name: str, type_: str, size: int, contents: Contents) -> Holder:
        """A holder that has grown so; its last size is the number of its elements, of ``size`` bytes each."""
        return Holder(
            kind=kind,
            name=name,
            type=type_,
            length=self.points[-1][1],
            per_step=self.per_step,
            contents=contents,
            bytes_per_element=size,
            grows_since=self.since,
        )


class ObjectTable:
    """What the collector knows of kinds that can grow, by type. For the length of one observation only."""

    def __init__(self) -> None:
        # before the table is made: its lists would be among the objects that they hold
        found = objects_of(_wanted_kinds())
        self.by_kind: dict[type, list[Any]] = {kind: [] for kind in dict.fromkeys(map(type, found))}
        for one in found:
            self.by_kind[type(one)].append(one)

    def containers(self) -> list[tuple[type, list[Any]]]:
        """Kinds of containers that can grow, and all there are of each."""
        return [(kind, found) for kind, found in self.by_kind.items() if plain.length_function(kind) is not None]

    def generators(self) -> list[Any]:
        """Live generators and coroutines."""
        return [one for kind in _GENERATORS for one in self.by_kind.get(kind, ())]

    def tensors(self) -> list[torch.Tensor]:
        """Plain tensors and parameters."""
        return [one for kind in PLAIN_TENSORS for one in self.by_kind.get(kind, ())][:_TENSORS]

    def leaves_with_graphs(self) -> list[torch.Tensor]:
        """Leaf tensors whose gradient has a graph of its own."""
        leaves = [one for one in self.tensors() if one.requires_grad and one.is_leaf]
        return [one for one in leaves if one.grad is not None and one.grad.grad_fn is not None]

    def contexts(self) -> list[type]:
        """Types of autograd nodes that users' functions have created."""
        return [kind for kind in self.by_kind if BackwardCFunction in plain.mro(kind)]

    def closures(self) -> dict[CodeType, list[Any]]:
        """Users' functions of which there are closures, and all there are of each."""
        found: dict[CodeType, list[Any]] = {}
        for one in self.by_kind.get(FunctionType, ()):
            if one.__closure__ is not None and is_user_file(one.__code__.co_filename):
                found.setdefault(one.__code__, []).append(one)
        return found

    def user_classes(self) -> list[type]:
        """Classes of the user's of which there are objects, autograd's nodes left out."""
        return [kind for kind in self.by_kind if BackwardCFunction not in plain.mro(kind) and _is_countable(kind)]


def _wanted_kinds() -> Iterator[type]:
    containers = chain.from_iterable(map(subclasses, plain.CONTAINERS))
    counted = filter(_is_countable, filter(_has_hash, subclasses(object)))
    return chain(filter(_has_hash, containers), counted, _GENERATORS, PLAIN_TENSORS, (FunctionType,))


def _has_hash(kind: type) -> bool:
    """Whether a class can be a key, for all that its own class may define."""
    with SuppressedErrors():
        hash(kind)
        return True
    return False


def _is_countable(kind: type) -> bool:
    kinds = plain.mro(kind)
    return type not in kinds and not is_our_class(kind) and (BackwardCFunction in kinds or is_user_class(kind))


Lengths = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


class ObjectCounts:
    """Which containers in length, and which classes in number, have grown; keeps numbers and names of types only."""

    def __init__(self) -> None:
        self.looks = 0
        self._last_step = 0
        self._lengths: dict[int, Lengths] = {}
        self._containers: dict[int, Series] = {}
        self._classes: dict[Hashable, Series] = {}

    def look(self, step: int, objects: ObjectTable) -> None:
        """One more observation."""
        before, self._lengths = self._lengths, {id(kind): _lengths(kind, every) for kind, every in objects.containers()}
        grown: dict[int, Series] = {}
        for kind in before.keys() & self._lengths.keys():
            self._compare(step, before[kind], self._lengths[kind], grown)
        self._containers = grown
        kinds = (*objects.user_classes(), *objects.contexts())
        counted: dict[Hashable, int] = {class_key(kind): len(objects.by_kind[kind]) for kind in kinds}
        counted["leaves"] = len(objects.leaves_with_graphs())
        counted[EXIT_CALLBACKS] = atexit._ncallbacks()
        counted.update((closure_key(code), len(closures)) for code, closures in objects.closures().items())
        self._classes = {key: self._classes.get(key) or Series() for key in counted}
        for key, series in self._classes.items():
            series.points.append((step, counted[key]))
        self._last_step = step
        self.looks += 1

    def _compare(self, step: int, before: Lengths, now: Lengths, grown: dict[int, Series]) -> None:
        """Continue the series of what has grown at this observation or at an earlier one."""
        addresses, old, new = np.intersect1d(before[0], now[0], assume_unique=True, return_indices=True)
        sizes, last = now[1][new], before[1][old]
        # ``isin`` does the same, but imports numpy.ma at its first call: 2 MiB, in the step that is looked at
        watched = np.sort(np.fromiter(self._containers, np.int64, len(self._containers)))
        known = np.searchsorted(watched, addresses, "right") > np.searchsorted(watched, addresses)
        for i in np.flatnonzero((sizes > last) | known).tolist():
            address = int(addresses[i])
            series = self._containers.get(address)
            if series is None:
                series = Series([(self._last_step, int(last[i]))])
            elif sizes[i] < last[i]:
                continue
            series.points.append((step, int(sizes[i])))
            grown[address] = series

    def growing_containers(self) -> dict[int, Series]:
        """Series of the containers that are growing, by address."""
        return {address: series for address, series in self._containers.items() if series.is_growing}

    def growing_classes(self) -> dict[Hashable, Series]:
        """Series of the classes whose objects become more.

        By keys of their own those of leaf tensors with a graph (``'leaves'``), closures and callbacks of ``atexit``.
        """
        return {key: series for key, series in self._classes.items() if series.is_growing}


def closure_key(code: CodeType) -> Hashable:
    """Key of the closures of a function that does not hold it."""
    return ("closures", id(code), code.co_name)


def class_key(kind: type) -> Hashable:
    """Key of a class that does not hold it."""
    return (id(kind), kind.__name__)


def _lengths(kind: type, containers: list[Any]) -> Lengths:
    length = plain.length_function(kind)
    assert length is not None  # nosec B101  # for the type checker
    count = len(containers)
    return np.fromiter(map(id, containers), np.int64, count), np.fromiter(map(length, containers), np.int64, count)
