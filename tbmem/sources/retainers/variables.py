"""Search for variables, keys and attributes whose value or whose graph grows.

A value that is replaced in each step (``total = total + loss``, ``history = history + [x]``) is another object each
time: it is identified by the path to it.
"""

from __future__ import annotations

import array
import io
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.syntax import Handle, SourceCode
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.candidates import Candidate, SearchContext
from tbmem.sources.retainers.object_counts import Series
from tbmem.sources.retainers.probes import SizeProbe, ValueProbe, reader_of
from tbmem.sources.retainers.reachability import PLAIN_TENSORS, Reference, ReferenceKind, Traversal
from tbmem.sources.retainers.retained_size import RetainedSize, tensor_bytes
from tbmem.sources.retainers.tensor_edges import edges_of
from tbmem.sources.retainers.turnover import ElementSamples
from tbmem.sources.torch_state import autograd_graph

_SMALLEST = 256  # bytes below which the size of a tensor or an array is of no interest
_GRAPHS = (20_000, 0.05)  # nodes of one reference's graph that are followed, and the seconds for that
_MANY_INNER = 5000  # elements of a container above which those of the containers in it are not counted
_CONTAINERS: tuple[Any, ...] = (list, dict, set, deque, defaultdict)
_BUFFERS: tuple[Any, ...] = (array.array, io.BytesIO, io.StringIO)
_SIZES: dict[type, Callable[[Any], int]] = {
    **{kind: kind.__len__ for kind in (*_CONTAINERS, tuple, frozenset, str, bytes, bytearray)},
    **{kind: kind.__sizeof__ for kind in _BUFFERS},
}


@dataclass(slots=True)
class VariableHistory:
    """Sizes of one variable's value at several observations. Holds numbers and a few bytes, and objects only weakly."""

    series: Series = field(default_factory=Series)
    inner: Series = field(default_factory=Series)  # elements of the containers in the value
    values: set[int] = field(default_factory=set)
    last_value: int = 0
    numbers: list[tuple[int, int]] = field(default_factory=list)  # step and newest node while they are linked
    edges: tuple[bytes, bytes] = (b"", b"")
    kept_edge: bool = True
    samples: ElementSamples | None = None
    is_refilled: bool = False
    """Whether a container kept none of an observation's elements until the next."""

    @property
    def is_replaced(self) -> bool:
        """Whether there was another object at each observation."""
        return len(self.values) > 1

    def add(self, step: int, size: int, value: Any) -> None:
        """One more observation."""
        self.series.points.append((step, size))
        self.inner.points.append((step, inner_length(value)))
        before, self.samples = self.samples, ElementSamples(value)
        if before is not None:
            is_another = self.last_value != id(value)
            self.is_refilled |= before.are_gone or (is_another and before.are_dropped_by(self.samples))
        self.last_value = id(value)
        self.values.add(id(value))
        if type(value) in PLAIN_TENSORS:
            self._add_node(step, value.grad_fn)
            self._add_edges(edges_of(value))

    def _add_node(self, step: int, node: Any) -> None:
        if node is None:
            self.numbers.clear()
            return
        number = autograd_graph.number_of(node)
        last = self.numbers[-1][1] if self.numbers else number
        if number <= last or not autograd_graph.reaches(node, last):
            self.numbers.clear()
        self.numbers.append((step, number))

    def _add_edges(self, edges: tuple[bytes, bytes]) -> None:
        (first, last), self.edges = self.edges, edges
        if any(change > 0 for _, change in self.series.changes()):
            self.kept_edge &= bool(first and edges[0]) and (edges[0] == first or edges[1] == last)


Known = tuple[Reference, VariableHistory]


class VariableHistories:
    """Histories of all references with a value that could grow."""

    def __init__(self) -> None:
        self._histories: dict[Hashable, VariableHistory] = {}

    def look(self, step: int, references: Iterable[Reference]) -> None:
        """One more observation; references that are gone are forgotten."""
        histories: dict[Hashable, VariableHistory] = {}
        for reference in references:
            size = _size(reference.value)
            if size is not None:
                key = reference.key()
                histories[key] = self._histories.get(key) or VariableHistory()
                histories[key].add(step, size, reference.value)
        self._histories = histories

    def is_refilled(self, reference: Reference) -> bool:
        """Whether a container was seen to keep none of its elements until the next observation."""
        history = self._histories.get(reference.key())
        return history is not None and history.is_refilled

    def inner_rate(self, reference: Reference) -> float:
        """Elements a step that containers in a container have gained, those of new ones included."""
        history = self._histories.get(reference.key())
        return history.inner.per_step if history is not None and history.inner.is_growing else 0.0

    def references(
        self, traversal: Traversal, suits: Callable[[VariableHistory], bool], is_wanted: Callable[[Any], bool]
    ) -> list[Known]:
        """References to values that are wanted, with a history that suits."""
        histories = {key: history for key, history in self._histories.items() if suits(history)}
        wanted = [each for each in traversal.references.values() if is_wanted(each.value)] if histories else []
        return [(each, histories[each.key()]) for each in wanted if each.key() in histories]


def inner_length(value: Any, depth: int = 2) -> int:
    """Elements of the containers in a container; of a very large one, 0."""
    kind = type(value)
    is_dict = dict in plain.mro(kind)
    length = _size_function(kind) if is_dict or kind in (list, tuple) else None
    if not depth or length is None or length(value) > _MANY_INNER:
        return 0
    total = 0
    for inner in list(dict.values(value)) if is_dict else value:
        if type(inner) in _CONTAINERS:
            total += _SIZES[type(inner)](inner) + inner_length(inner, depth - 1)
    return total


def _size(value: Any) -> int | None:
    """The size of a value that could grow; ``None`` for one that is of no interest."""
    kind = type(value)
    if kind in PLAIN_TENSORS:
        size = tensor_bytes(value)
        return size if size >= _SMALLEST or value.grad_fn is not None else None
    if kind is np.ndarray:
        return value.nbytes if value.nbytes >= _SMALLEST else None
    read = _size_function(kind)
    return read(value) if read is not None else None


def _size_function(kind: type) -> Callable[[Any], int] | None:
    return _SIZES.get(kind) or plain.length_function(kind)


def grown_values(histories: VariableHistories, traversal: Traversal, known: set[int]) -> list[Known]:
    """References whose value has become larger; values in ``known``, by ``id``, are left out."""

    def is_sized(value: Any) -> bool:
        kind = type(value)
        is_array = kind in PLAIN_TENSORS or kind is np.ndarray
        return id(value) not in known and (is_array or _size_function(kind) is not None)

    return histories.references(traversal, lambda history: history.series.is_growing, is_sized)


def add_value(context: SearchContext, reference: Reference, history: VariableHistory) -> None:
    """Note one reference whose value becomes larger."""
    value = reference.value
    is_tensor = plain.is_a(value, torch.Tensor) or type(value) is np.ndarray
    if reference.kind in (ReferenceKind.INSIDE, ReferenceKind.ITEM) or (is_tensor and not history.is_replaced):
        return
    name = context.name(reference)
    size, contents = _element_size(context, value, history)
    if not name.is_users or size * history.series.per_step < 1:
        return
    kind, type_ = naming.kind_of(reference), naming.type_name(reference)
    holder = history.series.holder(kind, name.text, type_, size, contents)
    holder = replace(holder, is_emptied=history.is_refilled)
    lines = _best_assignments if is_tensor or history.is_replaced else _filling_lines
    read = partial(lines, context.sources, name.handle, context.files)
    candidate = Candidate(reference.key(), holder, name.handle, read)
    candidate.must_be_cumulative = is_tensor and not history.kept_edge
    length = _size_function(type(value)) if not history.is_replaced else None
    reader = reader_of(reference)
    context.add(candidate, SizeProbe(value, length, reader) if length is not None else ValueProbe(reader, value))


def _element_size(context: SearchContext, value: Any, history: VariableHistory) -> tuple[int, Contents]:
    """Bytes of one element (of one byte of a tensor or a text: 1), and what it holds."""
    if plain.length_function(type(value)) is not None:
        return context.element_size(value, history.series)
    if type(value) in (tuple, frozenset):
        return context.element_size(list(value), history.series)
    if plain.is_a(value, torch.Tensor):
        return 1, Contents.TENSORS if value.grad_fn is None else Contents.GRAPHS
    return 1, Contents.OBJECTS


def add_graphs(context: SearchContext, histories: VariableHistories, traversal: Traversal) -> None:
    """Note the references whose graph goes back to the value of the observation before, and so to the first."""

    def has_graph(value: Any) -> bool:
        return plain.is_a(value, torch.Tensor) and value.grad_fn is not None

    chained = histories.references(traversal, lambda history: len(history.numbers) > 2, has_graph)
    retained = RetainedSize(0.1, context.baseline)
    named: set[Any] = set()
    # the newest node reaches those of the others that are part of the same graph
    for reference, history in sorted(chained, key=lambda known: -known[1].numbers[-1][1]):
        if reference.value.grad_fn not in named:
            named |= _add_graph(context, reference, history, retained)


def _add_graph(
    context: SearchContext, reference: Reference, history: VariableHistory, retained: RetainedSize
) -> set[Any]:
    """One reference, of whose graph the nodes since the observation before last are measured; returns its nodes."""
    root = reference.value.grad_fn
    (first, before), (last, _) = history.numbers[-2:]
    nodes, size = retained.graph(root, before)
    steps = max(last - first, 1)
    if nodes < steps:  # another reference has most of the same graph
        return set()
    graph = autograd_graph.Graph(*_GRAPHS)
    graph.add(root)
    name = context.name(reference)
    holder = Holder(
        kind=HolderKind.GRAPH,
        name=name.text,
        type=type(root).__name__,
        length=len(graph.nodes),
        per_step=nodes / steps,
        contents=Contents.GRAPHS,
        bytes_per_element=size // nodes,
        grows_since=history.numbers[0][0],
        is_whole=graph.complete,
    )
    read = partial(_best_assignments, context.sources, name.handle, context.files)
    candidate = Candidate(("graph", reference.key()), holder, name.handle, read)
    context.add(candidate, ValueProbe(reader_of(reference), reference.value))
    return graph.nodes


def _filling_lines(sources: SourceCode, handle: Handle, files: tuple[str, ...]) -> list[CodeLine]:
    return sources.filling_lines(handle, files) or _best_assignments(sources, handle, files)


def _best_assignments(sources: SourceCode, handle: Handle, files: tuple[str, ...]) -> list[CodeLine]:
    """Assignments that use the old value, or else all."""
    assignments = sources.assignments(handle, files)
    return [line for line, cumulative in assignments if cumulative] or [line for line, _ in assignments]
