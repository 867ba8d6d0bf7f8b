"""Retained size of objects: bytes of tensors, graphs, arrays and plain Python that they alone keep alive."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from traceback import walk_stack
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from tbmem.interruption import raise_interruption
from tbmem.model.category import Category
from tbmem.model.evidence import Contents
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_our_class
from tbmem.sources.retainers.reachability import PLAIN_TENSORS
from tbmem.sources.torch_state import autograd_graph
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
_MAX_DEPTH = 8
_MAX_OBJECTS = 3000
_LEAVES = frozenset((float, int, str, bytes, complex))
"""Types whose objects hold no others."""
_MOST_LEAVES = 1000
"""Of more in one object some are counted: a list of numbers has thousands."""
_NOT_PART = (ModuleType, CodeType, type)
_COUNTED = ("builtins", "array", "collections", "ctypes", "_ctypes", "io", "_io", "mmap", "numpy", "torch")
"""Packages whose objects tell their buffers by ``getsizeof``, or show memory that is another's."""
_VIEW = 4  # a storage this much larger than its tensor is kept by a view


class BaselineObjects:
    """What would exist without the retainers in question: the model, the data, the loop's variables."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.objects: set[int] = set()
        self.storages: set[int] = set()
        for each in objects:
            self.objects.add(id(each))
            if torch.Tensor in plain.mro(type(each)):
                self.storages.update(address for address, _ in _storages(each))


class RetainedSize:
    """Measures the bytes that objects retain, one after the other; what was met before counts nothing.

    Nor does the baseline, which something else holds as well, nor ``initial``: tensors that existed long before, by
    address of object and data. The seconds are processor time for all objects together.
    """

    def __init__(
        self, seconds: float, baseline: BaselineObjects | None = None, initial: Container[tuple[int, int]] = ()
    ) -> None:
        baseline = baseline or BaselineObjects(())
        self._initial = initial
        self.initial_met = 0  # initial tensors that were met
        self.seen: set[int] = set(baseline.objects)
        self.types: set[type] = set()
        self._storages: set[int] = set(baseline.storages)
        self._contents: Counter[Contents] = Counter()
        self._graph = autograd_graph.Graph(20_000, seconds)
        self._deadline = time.thread_time() + seconds
        self._kept: list[Any] = []

    @property
    def is_late(self) -> bool:
        """Whether the time is over: the last size is too small then."""
        return time.thread_time() > self._deadline or not self._graph.complete

    def measure_all(self, objects: Iterable[Any]) -> int:
        """Sum of ``measure`` over some objects."""
        return sum(self.measure(each) for each in objects)

    def measure(self, root: Any) -> int:
        """Bytes that are alive because of an object and were not counted before."""
        total = 0
        budget = _MAX_OBJECTS
        queue: deque[tuple[Any, int]] = deque([(root, 0)])
        while queue and budget and not self.is_late:
            each, depth = queue.popleft()
            if id(each) in self.seen or _exists_anyway(each):
                continue
            self.seen.add(id(each))
            self._kept.append(each)  # an address is only known while its object lives
            budget -= 1
            self.types.add(type(each))
            total += self._own_bytes(each)
            if depth < _MAX_DEPTH and type(each) not in _LEAVES:
                parts = _parts(each)
                total += self._leaf_bytes(parts)
                queue.extend((part, depth + 1) for part in parts if type(part) not in _LEAVES)
        return total

    def _leaf_bytes(self, parts: Sequence[Any]) -> int:
        """Bytes of the numbers and texts among an object's parts; of many some, evenly chosen, stand for all."""
        # odd, since those of a dict are keys and values in turn
        total, apart = 0, len(parts) // _MOST_LEAVES | 1
        for each in parts[::apart]:
            kind = type(each)
            if kind in _LEAVES and id(each) not in self.seen and not (kind is int and _is_cached(each)):
                self.seen.add(id(each))
                self._kept.append(each)
                self.types.add(kind)
                total += each.__sizeof__()
        return total * apart

    def graph(self, root: Any, newer_than: int = -1) -> tuple[int, int]:
        """Nodes and bytes of a graph that were not counted before."""
        nodes = self._graph.add(root, newer_than)
        total = NODE_BYTES * len(nodes)
        for leaf in [*autograd_graph.leaves(self._graph.nodes)]:
            if type(leaf) is torch.nn.Parameter:
                self._storages.update(address for address, _ in _storages(leaf))
            else:
                total += self.measure(leaf)  # an input that requires gradients: the graph holds both
        for node in nodes:
            for saved in autograd_graph.saved(node):
                if plain.is_a(saved, torch.Tensor):
                    size = self._data_bytes(saved)
                    total += size + SAVED_BYTES if size else 0
                else:
                    total += self.measure(saved)
            if plain.is_a(node, torch.autograd.function.BackwardCFunction):
                total += self.measure(node)
        return len(nodes), total

    def _data_bytes(self, tensor: torch.Tensor) -> int:
        total = 0
        for address, size in _storages(tensor):
            if address not in self._storages:
                self._storages.add(address)
                total += max(64, size)
        return total

    def _own_bytes(self, one: Any) -> int:
        bases = plain.mro(type(one))
        if torch.Tensor in bases:
            return self._tensor_bytes(one)
        if torch.nn.Module in bases:
            self._contents[Contents.MODULES] += 1
        return _sizeof(one, bases)

    def _tensor_bytes(self, tensor: torch.Tensor) -> int:
        is_plain = type(tensor) in PLAIN_TENSORS
        if is_plain and (id(tensor), address_of(tensor)) in self._initial:
            self.initial_met += 1
            return 0
        data = self._data_bytes(tensor)
        graph = self.graph(tensor.grad_fn)[1] if is_plain and tensor.grad_fn is not None else 0
        is_view = data > 4096 and tensor_bytes(tensor) > _VIEW * tensor.numel() * tensor.element_size()
        # to drop a graph that is less than the data would change little; a view keeps its storage through both
        if graph and (is_view or graph > data):
            self._contents[Contents.GRAPHS] += 1
        else:
            self._contents[Contents.VIEWS if is_view else Contents.TENSORS] += 1
        return TENSOR_BYTES + data + graph

    def contents(self) -> Contents:
        """What most of the measured objects hold: one graph outweighs tensors, one tensor outweighs plain objects."""
        order = (Contents.MODULES, Contents.GRAPHS, Contents.VIEWS, Contents.TENSORS)
        return next((contents for contents in order if self._contents[contents]), Contents.OBJECTS)


def _exists_anyway(one: Any) -> bool:
    """Whether nobody keeps an object alive in particular: a class, a module, a module's function, a small number."""
    kind = type(one)
    if one is None or kind in _NOT_PART or type in plain.mro(kind) or is_our_class(kind):
        return True
    if kind is int:
        return _is_cached(one)
    if kind is FunctionType:
        return one.__closure__ is None and one.__defaults__ is None and one.__kwdefaults__ is None
    if kind is BuiltinFunctionType:  # a method of an object in C has that object as its self
        return one.__self__ is None or type(one.__self__) is ModuleType
    return kind is FrameType and any(frame is one for frame, _ in walk_stack(sys._getframe()))


def _is_cached(number: int) -> bool:
    """Whether Python has one object for all of a number's uses."""
    return -6 < number < 257


def elements_of(container: Any, count: int) -> list[tuple[Any, ...]]:
    """The elements that were added last, oldest of them first, each with its key where that may be large.

    Raises:
        RuntimeError: Another thread changed the container in between.
    """
    if dict in plain.mro(type(container)):
        return plain.newest_items(container, count)
    newest = plain.newest_of(container, count)
    return newest if type(container) is plain.LruCache else [(each,) for each in newest]


def entry_bytes(container: Any) -> int:
    """What a container itself takes for each element."""
    if type(container) is plain.LruCache:
        return 150
    length = plain.length_function(type(container))
    size = length(container) if length is not None else 0
    return _sizeof(container, plain.mro(type(container))) // size if size else 8


def _storages(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Address and bytes of the memory behind a tensor."""
    try:
        if type(tensor) in PLAIN_TENSORS and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            storages = [(storage.data_ptr(), storage.nbytes())]
        else:
            storages = [(note.address, note.bytes) for note in tensor_notes(tensor, Category.UNKNOWN, "")]
    except Exception as error:  # a tensor that cannot be inspected
        raise_interruption(error)
        return []
    return [(address, size) for address, size in storages if address and size]


def address_of(tensor: torch.Tensor) -> int:
    """Address of a tensor's data; 0 for one without."""
    try:
        return tensor.data_ptr()
    except RuntimeError as error:
        raise_interruption(error)
        return 0


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's whole storage."""
    return sum(size for _, size in _storages(tensor))


def _parts(one: Any) -> list[Any]:
    """What an object is made of, dicts of attributes included."""
    kinds = plain.mro(type(one))
    if np.ndarray in kinds:
        return [one.base] if type(one) is np.ndarray and one.base is not None else []
    if torch.Tensor in kinds:
        return [one.grad] if type(one) in PLAIN_TENSORS and one.is_leaf and one.grad is not None else []
    if type(one) is FunctionType:
        cells = [plain.cell_value(cell) for cell in one.__closure__ or ()]
        return [*cells, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
    return gc.get_referents(one)


def _sizeof(one: Any, kinds: tuple[type, ...]) -> int:
    """Bytes of one object itself, as C counts them."""
    if np.ndarray in kinds:
        return int(np.ndarray.__sizeof__(one))
    header = 16 if kinds[0].__flags__ & (1 << 14) else 0
    sized = (list, dict, set, frozenset, deque, str, bytes, bytearray, int, float)
    base = next((base for base in sized if base in kinds), object if kinds[0].__flags__ & (1 << 9) else None)
    if base is not None:
        return int(base.__sizeof__(one)) + header + (_buffer_bytes(one, kinds) if base is object else 0)
    try:
        return sys.getsizeof(one) + _buffer_bytes(one, kinds)
    except Exception as error:
        raise_interruption(error)
        return 64


def _buffer_bytes(one: Any, kinds: tuple[type, ...]) -> int:
    """Bytes of a buffer that an extension's object owns besides itself (a renderer's pixels); 0 where it shows none."""
    if plain.module_of(kinds[0]).partition(".")[0] in _COUNTED:
        return 0
    if any(type(plain.class_attributes(kind).get("__buffer__")) is FunctionType for kind in kinds):
        return 0  # a method in Python: the user's code is not called
    try:
        with memoryview(one) as view:
            return view.nbytes
    except (TypeError, BufferError):
        return 0
