"""Bytes that objects alone keep alive: tensors, graphs, arrays and plain Python."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from tbmem.model.category import Category
from tbmem.model.evidence import Contents
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_our_class
from tbmem.sources.retainers.reachability import PLAIN_TENSORS
from tbmem.sources.torch_state import autograd_graph as graphs
from tbmem.sources.torch_state.storages import tensor_notes

TENSOR_BYTES = 400
"""A tensor without its data: its Python object, TensorImpl and StorageImpl. Measured with glibc's mallinfo2 over
20 000 kept scalars, torch 2.13: 465 bytes with 64 bytes of data and its alignment."""
NODE_BYTES = 500
"""A node of a graph whose saved tensors are gone. Measured likewise over 5 000 losses kept after ``backward()``: 480 to
590 bytes a node for chains of 2 to 43 nodes."""
SAVED_BYTES = 300
"""What a node's saved tensor costs besides its data: a TensorImpl without a Python object. Measured likewise: chains
of ``mul``, which save one scalar each, cost 1 090 bytes a node with its 64 bytes of data."""
_DEEPEST = 8
_OBJECTS = 3000
_NOT_PART = (ModuleType, CodeType, type)
_VIEW = 4
"""A storage this much larger than its tensor is kept by a view."""


class Elsewhere:
    """What would be there without the holders that are looked for: the model, the data, the loop's variables."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.objects: set[int] = set()
        self.storages: set[int] = set()
        for one in objects:
            self.objects.add(id(one))
            if torch.Tensor in plain.mro(type(one)):
                self.storages.update(address for address, _ in _storages(one))


class Scale:
    """Weighs objects one after the other; what was on it before weighs nothing."""

    def __init__(
        self, seconds: float, elsewhere: Elsewhere | None = None, born: Container[tuple[int, int]] = ()
    ) -> None:
        """Nothing was weighed yet.

        Args:
            seconds: Time for all objects together.
            elsewhere: What is held by something else as well and weighs nothing.
            born: Tensors that were there long before, by address of object and data; they weigh nothing either.
        """
        self._born = born
        self.old = 0
        """Tensors met that were there long before."""
        self.seen: set[int] = set() if elsewhere is None else set(elsewhere.objects)
        self.storages: set[int] = set() if elsewhere is None else set(elsewhere.storages)
        self.kinds: Counter[Contents] = Counter()
        self.types: set[type] = set()
        self._graph = graphs.Graph(20_000, seconds)
        self._ends = time.thread_time() + seconds
        self._kept: list[Any] = []

    @property
    def is_late(self) -> bool:
        """Whether the time is over: the last weight is too small then."""
        return time.thread_time() > self._ends or not self._graph.complete

    def weigh(self, thing: Any) -> int:
        """Bytes that are alive because of an object and were not weighed before."""
        total = 0
        budget = _OBJECTS
        queue: deque[tuple[Any, int]] = deque([(thing, 0)])
        while queue and budget and not self.is_late:
            one, depth = queue.popleft()
            if id(one) in self.seen or self._is_elsewhere(one):
                continue
            self.seen.add(id(one))
            self._kept.append(one)  # an address is only known while its object lives
            budget -= 1
            self.types.add(type(one))
            total += self._own_bytes(one)
            if depth < _DEEPEST:
                queue.extend((other, depth + 1) for other in _parts(one))
        return total

    def graph(self, root: Any, newer_than: int = -1) -> tuple[int, int]:
        """Nodes and bytes of a graph that were not weighed before."""
        nodes = self._graph.add(root, newer_than)
        for leaf in graphs.leaves(self._graph.nodes):
            if type(leaf) is torch.nn.Parameter:
                self.storages.update(address for address, _ in _storages(leaf))
        total = NODE_BYTES * len(nodes)
        for node in nodes:
            for kept in graphs.saved(node):
                total += self._saved_bytes(kept)
            if plain.is_a(node, torch.autograd.function.BackwardCFunction):
                total += self.weigh(node)
        return len(nodes), total

    def _saved_bytes(self, kept: Any) -> int:
        if not plain.is_a(kept, torch.Tensor):
            return self.weigh(kept)
        new = self._data_bytes(kept)
        return new + SAVED_BYTES if new else 0

    def _data_bytes(self, tensor: torch.Tensor) -> int:
        total = 0
        for address, size in _storages(tensor):
            if address not in self.storages:
                self.storages.add(address)
                total += max(64, size)
        return total

    def _own_bytes(self, one: Any) -> int:
        kinds = plain.mro(type(one))
        if torch.Tensor in kinds:
            return self._tensor_bytes(one)
        if np.ndarray in kinds:
            return int(np.ndarray.__sizeof__(one))
        if torch.nn.Module in kinds:
            self.kinds[Contents.MODULES] += 1
        return _sizeof(one, kinds)

    def _tensor_bytes(self, tensor: torch.Tensor) -> int:
        if type(tensor) in PLAIN_TENSORS and (id(tensor), address_of(tensor)) in self._born:
            self.old += 1
            return 0
        data = self._data_bytes(tensor)
        whole = sum(size for _, size in _storages(tensor))
        node = tensor.grad_fn if type(tensor) in PLAIN_TENSORS else None
        if node is not None:
            _, graph = self.graph(node)
            self.kinds[Contents.GRAPHS] += 1
            return TENSOR_BYTES + data + graph
        is_view = data > 4096 and whole > _VIEW * tensor.numel() * tensor.element_size()
        self.kinds[Contents.VIEWS if is_view else Contents.TENSORS] += 1
        return TENSOR_BYTES + data

    def _is_elsewhere(self, one: Any) -> bool:
        """Whether an object would be there anyway: a class, a module, a function of a module, a small number."""
        kind = type(one)
        if one is None or kind in _NOT_PART or type in plain.mro(kind) or is_our_class(kind):
            return True
        if kind is int:
            return -6 < int(one) < 257
        if kind is FunctionType:
            return one.__closure__ is None
        if kind is BuiltinFunctionType:  # a method of an object in C has that object as its self
            return one.__self__ is None or type(one.__self__) is ModuleType
        return kind is FrameType and _is_running(one)

    def contents(self) -> Contents:
        """What most of the weighed objects hold: one graph outweighs tensors, one tensor outweighs plain objects."""
        for kind in (Contents.MODULES, Contents.GRAPHS, Contents.VIEWS, Contents.TENSORS):
            if self.kinds[kind]:
                return kind
        return Contents.OBJECTS


def elements_of(container: Any, count: int) -> list[tuple[Any, ...]]:
    """The elements that were added last, oldest of them first, each with its key where that may be heavy.

    Raises:
        RuntimeError: Another thread changed the container in between.
    """
    if dict in plain.mro(type(container)):
        return plain.newest_items(container, count)
    found = plain.newest_of(container, count)
    return found if type(container) is plain.LruCache else [(one,) for one in found]


def entry_bytes(container: Any) -> int:
    """What a container itself takes for each element."""
    length = plain.length_function(type(container))
    size = length(container) if length is not None else 0
    if type(container) is plain.LruCache:
        return 150
    return _sizeof(container, plain.mro(type(container))) // size if size else 8


def _is_running(frame: FrameType) -> bool:
    running: FrameType | None = sys._getframe()
    while running is not None:
        if running is frame:
            return True
        running = running.f_back
    return False


def _storages(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Address and bytes of the memory behind a tensor."""
    try:
        if type(tensor) in PLAIN_TENSORS and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            found = [(storage.data_ptr(), storage.nbytes())]
        else:
            found = [(note.address, note.bytes) for note in tensor_notes(tensor, Category.UNKNOWN, "")]
    except Exception:  # a tensor that does not let itself be looked at
        return
    yield from ((address, size) for address, size in found if address and size)


def address_of(tensor: torch.Tensor) -> int:
    """Address of a tensor's data; 0 for one without."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the memory behind a tensor, all of its storage."""
    return sum(size for _, size in _storages(tensor))


def _parts(one: Any) -> list[Any]:
    """What an object is made of, dicts of attributes included."""
    kinds = plain.mro(type(one))
    if type(one) in (str, bytes, int, float) or np.ndarray in kinds:
        return [one.base] if np.ndarray in kinds and type(one) is np.ndarray and one.base is not None else []
    if torch.Tensor in kinds:
        grad = one.grad if type(one) in PLAIN_TENSORS and one.is_leaf else None
        return [] if grad is None else [grad]
    if type(one) is FunctionType:
        return [plain.cell_value(cell) for cell in one.__closure__ or ()]
    return gc.get_referents(one)


def _sizeof(one: Any, kinds: tuple[type, ...]) -> int:
    """Bytes of one object itself, as C counts them."""
    for base in (list, dict, set, frozenset, deque, str, bytes, bytearray, int, float):
        if base in kinds:
            return int(base.__sizeof__(one)) + _header(one)
    if kinds[0].__flags__ & (1 << 9):
        return int(object.__sizeof__(one)) + _header(one)
    try:
        return sys.getsizeof(one)
    except Exception:
        return 64


def _header(one: Any) -> int:
    return 16 if type(one).__flags__ & (1 << 14) else 0
