"""Sizes of the values of variables, keys and attributes, look after look.

A value that is replaced in each step (``total = total + loss``, ``history = history + [x]``) is another object each
time: it is known by the way to it.
"""

from __future__ import annotations

import array
import ctypes
import io
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import torch

from tbmem.sources.program import introspection as plain
from tbmem.sources.retainers.object_counts import Series
from tbmem.sources.retainers.reachability import PLAIN_TENSORS, Place
from tbmem.sources.retainers.retained_size import tensor_bytes
from tbmem.sources.torch_state import autograd_graph as graphs

_SMALLEST = 256
"""Bytes below which the size of a tensor or an array is of no interest."""
_EDGE = 64
"""Bytes at either end by which the old value is recognised in the new one."""
_VARIED = 24
"""Different bytes among them at least: a mask or a range begins the same way however long it is."""


class Slot:
    """What was seen at one place. Holds numbers and a few bytes, no objects."""

    __slots__ = ("edges", "inner", "kept_edge", "links", "numbers", "series", "values")

    def __init__(self) -> None:
        self.series = Series()
        self.inner = Series()
        self.values: set[int] = set()
        self.numbers: list[tuple[int, int]] = []
        self.links = 0
        self.edges = (b"", b"")
        self.kept_edge = True

    @property
    def is_replaced(self) -> bool:
        """Whether there was another object at each look."""
        return len(self.values) > 1

    @property
    def is_chained(self) -> bool:
        """Whether the graph went back to the value of the look before, at two looks at least and always."""
        return self.links >= 2 and self.links == len(self.numbers) - 1


class Slots:
    """All places with something that could grow."""

    def __init__(self) -> None:
        self._slots: dict[Hashable, Slot] = {}

    def look(self, step: int, places: Iterable[Place]) -> None:
        """One more look; places that are gone are forgotten."""
        kept: dict[Hashable, Slot] = {}
        for place in places:
            measured = _measure(place.value)
            if measured is None:
                continue
            key = place.key()
            slot = self._slots.get(key) or Slot()
            slot.series.add(step, measured)
            slot.values.add(id(place.value))
            slot.inner.add(step, inner_length(place.value))
            if type(place.value) in PLAIN_TENSORS:
                _follow_tensor(slot, step, place.value)
            kept[key] = slot
        self._slots = kept

    def graphs(self) -> dict[Hashable, Slot]:
        """Slots whose graph goes back through all looks."""
        return {key: slot for key, slot in self._slots.items() if slot.is_chained}

    def growing(self) -> dict[Hashable, Slot]:
        """Slots whose value becomes larger."""
        return {key: slot for key, slot in self._slots.items() if slot.series.is_growing}

    def filling(self) -> dict[Hashable, Slot]:
        """Slots with containers in which other containers become longer."""
        return {key: slot for key, slot in self._slots.items() if slot.inner.is_growing}


def inner_length(value: Any, depth: int = 2) -> int:
    """Elements of the containers in a container; of a very large one, 0."""
    kind = type(value)
    size = size_function(kind) if dict in plain.mro(kind) or kind in (list, tuple) else None
    if not depth or size is None or size(value) > _MANY_INNER:
        return 0
    total = 0
    for one in list(dict.values(value)) if dict in plain.mro(kind) else value:
        length = _CONTAINERS.get(type(one))
        if length is not None:
            total += length(one) + inner_length(one, depth - 1)
    return total


_MANY_INNER = 5000
_CONTAINERS: dict[type, Callable[[Any], int]] = {
    list: list.__len__,
    dict: dict.__len__,
    set: set.__len__,
    deque: deque.__len__,
    defaultdict: dict.__len__,
}


def _follow_tensor(slot: Slot, step: int, tensor: torch.Tensor) -> None:
    node = tensor.grad_fn
    if node is None:
        slot.numbers.clear()
        slot.links = 0
    else:
        number = graphs.number_of(node)
        if slot.numbers and number > slot.numbers[-1][1] and graphs.reaches(node, slot.numbers[-1][1]):
            slot.links += 1
        elif slot.numbers:
            slot.numbers.clear()
            slot.links = 0
        slot.numbers.append((step, number))
    edges = _edges(tensor)
    first, last = slot.edges
    if slot.series.rises:
        is_kept = bool(first and edges[0]) and (edges[0] == first or edges[1] == last)
        slot.kept_edge = slot.kept_edge and is_kept
    slot.edges = edges


def _edges(tensor: torch.Tensor) -> tuple[bytes, bytes]:
    """The first and the last bytes of a tensor in this machine's memory; empty where they say nothing.

    A few bytes are read where they lie: no operator runs, and nothing waits for a device.
    """
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return b"", b""
    size = tensor.numel() * tensor.element_size()
    address = tensor.data_ptr() if size >= _SMALLEST else 0
    if not address:
        return b"", b""
    first, last = ctypes.string_at(address, _EDGE), ctypes.string_at(address + size - _EDGE, _EDGE)
    return (first if len(set(first)) >= _VARIED else b""), (last if len(set(last)) >= _VARIED else b"")


def _measure(value: Any) -> int | None:
    """The size of a value that could grow; ``None`` for one that is of no interest."""
    kind = type(value)
    if kind in PLAIN_TENSORS:
        try:
            size = tensor_bytes(value)
        except RuntimeError:
            return None
        return size if size >= _SMALLEST or value.grad_fn is not None else None
    if kind is np.ndarray:
        return value.nbytes if value.nbytes >= _SMALLEST else None
    read = size_function(kind)
    return read(value) if read is not None else None


def is_measured(value: Any) -> bool:
    """Whether a value is of a kind whose size is noted."""
    return type(value) in PLAIN_TENSORS or is_array(value) or size_function(type(value)) is not None


def is_array(value: Any) -> bool:
    """Whether a value is a numpy array."""
    return type(value) is np.ndarray


def size_function(kind: type) -> Callable[[Any], int] | None:
    """How large a value is: elements of a container, bytes of a text or of a buffer."""
    return _SIZES.get(kind) or plain.length_function(kind)


_SIZES: dict[type, Callable[[Any], int]] = {
    list: list.__len__,
    dict: dict.__len__,
    set: set.__len__,
    tuple: tuple.__len__,
    frozenset: frozenset.__len__,
    deque: deque.__len__,
    str: str.__len__,
    bytes: bytes.__len__,
    bytearray: bytearray.__len__,
    array.array: array.array.__sizeof__,
    io.BytesIO: io.BytesIO.__sizeof__,
    io.StringIO: io.StringIO.__sizeof__,
}
