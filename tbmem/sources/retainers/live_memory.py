"""What variables hold when memory runs out, with lines; allocates nothing on a device, holds nothing afterwards."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.model.oom import GRAPH_NODES, SAVED_BY, LiveMemory
from tbmem.sources.gc_pause import gc_paused
from tbmem.sources.program import introspection as plain
from tbmem.sources.program import tracked_objects
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.retainers.naming import kind_of, name_of
from tbmem.sources.retainers.reachability import PLAIN_TENSORS, Namespaces, Reference, ReferenceKind, Traversal
from tbmem.sources.retainers.retained_size import NODE_BYTES
from tbmem.sources.torch_state import autograd_graph, storages

_TRAVERSAL = (60_000, 0.25)  # objects and seconds of the traversal over what can be named
_TRACED = 2_000  # objects and elements that are looked at under a profiler of Python's calls: ours would fill its trace
_TENSORS = 50_000
_ELEMENTS = 200_000  # elements of long containers that are looked at
_GRAPHS = (200_000, 0.6)  # nodes of autograd's graphs that are followed (100 bytes each), and the seconds for that
_ELEMENT_KINDS = (ReferenceKind.ITEM, ReferenceKind.KEY, ReferenceKind.INSIDE)
_SMALLEST = 1 << 10  # bytes of arrays and strings below which they are not looked at
UNNAMED = "tensors without a name"


class LiveHolders(NamedTuple):
    """What holds memory now."""

    live: list[LiveMemory]
    lines: dict[str, tuple[str, ...]]  # source lines by holder
    complete: bool  # whether everything that can be named was traversed


def live_memory(frame: FrameType | None, named: Namespaces | None = None) -> LiveHolders:
    """What Python's variables hold, on every device, and what is ``named`` beside them."""
    with torch._C.DisableTorchFunction(), gc_paused():
        search = _Search(frame, named)
        holders = LiveHolders(search.live, search.lines(), search.complete and search.traversal.complete)
    plain.forget()
    return holders


class _Search:
    """Goes through everything once."""

    def __init__(self, frame: FrameType | None, names: Namespaces | None) -> None:
        self.live: list[LiveMemory] = []
        self.complete = True
        self._sources = SourceCode()
        self._references: dict[str, Reference] = {}
        self._addresses: set[int] = set()
        is_traced = sys.getprofile() is not None
        self.traversal = Traversal(_TRACED if is_traced else _TRAVERSAL[0], _TRAVERSAL[1], frame, named=names)
        inner = self._element_places(_TRACED if is_traced else _ELEMENTS)
        tensors, modules, optimizers = tracked_objects.live_objects(
            torch.Tensor, torch.nn.Module, torch.optim.Optimizer
        )
        tensors = [one for one in tensors if type(one) in PLAIN_TENSORS][:_TENSORS]
        self._add_trained(modules, optimizers)
        named = [(one, self.traversal.references.get(id(one)) or inner.get(id(one))) for one in tensors]
        self._add_tensors((one, reference) for one, reference in named if reference is not None)
        self._add_graphs(named)
        # of what is left, the graphs' own tensors have been added by now
        self._add_tensors(named)
        self._add_arrays()

    def _add_tensors(self, named: Iterable[tuple[torch.Tensor, Reference | None]]) -> None:
        for tensor, reference in named:
            self._add_notes(storages.tensor_notes(tensor, Category.UNKNOWN, ""), reference)

    def _add_notes(self, notes: Iterable[StorageNote], reference: Reference | None) -> None:
        for note in notes:
            if note.address not in self._addresses:
                self._add(note, self._holder(reference))

    def _add(self, note: StorageNote, holder: str) -> None:
        if note.address not in self._addresses:
            self._addresses.add(note.address)
            self.live.append(
                LiveMemory(device=note.device, address=note.address, bytes=note.bytes, holder=holder, part=note.name)
            )

    def lines(self) -> dict[str, tuple[str, ...]]:
        """The lines at which the holders are filled or created, read from the source."""
        files = self.traversal.user_files()
        found = {}
        for holder, reference in self._references.items():
            handle = name_of(reference, self._sources).handle
            is_container = plain.length_function(type(reference.value)) is not None
            adding = self._sources.adding_lines(handle, files) if is_container else []
            lines = adding or [line for line, _ in self._sources.assignments(handle, files)]
            found[holder] = tuple(map(str, lines))
        return found

    def _add_trained(self, modules: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
        """Models and optimizers under their own names, each as one holder of each kind."""
        names: dict[int, str] = {}
        words = {Category.PARAMETER: "parameters", Category.BUFFER: "buffers"}
        for model in storages.outermost(modules):
            title = type(model).__name__
            named = dict(model.named_parameters())
            names |= {id(tensor): name for name, tensor in named.items()}
            for note in storages.model_notes(model):
                self._add_owned(note, f"{words[note.category]} of {title}", model)
            for note in storages.gradient_notes(named.items()):
                self._add_owned(note, f"gradients of {title}", model)
        for optimizer in optimizers:
            for note in storages.optimizer_state_notes(optimizer, names):
                self._add_owned(note, f"state of {type(optimizer).__name__}", optimizer)

    def _add_owned(self, note: StorageNote, holder: str, owner: Any) -> None:
        reference = self.traversal.references.get(id(owner))
        if reference is not None:
            self._references.setdefault(holder, reference)
        self._add(note, holder)

    def _holder(self, reference: Reference | None) -> str:
        """Name of the container that a value is an element of, or of the variable."""
        if reference is None:
            return UNNAMED
        while reference.kind in _ELEMENT_KINDS and isinstance(reference.owner, Reference):
            reference = reference.owner
        noun = kind_of(reference).value if plain.length_function(type(reference.value)) is not None else ""
        name = name_of(reference, self._sources, noun).text
        self._references.setdefault(name, reference)
        return name

    def _element_places(self, left: int) -> dict[int, Reference]:
        """References to what is in the middle of long containers, which the traversal skips; to so many elements."""
        found: dict[int, Reference] = {}
        for reference in list(self.traversal.references.values()):
            value = reference.value
            if type(value) in (list, dict, deque, set, tuple) and len(value) > plain.LARGE and left > 0:
                elements = list(islice(value.values() if type(value) is dict else value, left))
                left -= len(elements)
                inner = [part for one in elements if type(one) in (tuple, list) for part in one]
                for one in (*elements, *inner):
                    found.setdefault(id(one), Reference(one, reference, ReferenceKind.ITEM, None))
        return found

    def _add_graphs(self, named: Iterable[tuple[torch.Tensor, Reference | None]]) -> None:
        """What autograd keeps alive because of a tensor that somebody holds: its graph has no name of its own."""
        graph = autograd_graph.Graph(*_GRAPHS)
        for tensor, reference in named:
            if tensor.grad_fn is None or reference is None:
                continue
            nodes = graph.add(tensor.grad_fn)
            self._add_nodes(nodes, reference)
            for node in nodes:
                part = f"{SAVED_BY} {type(node).__name__}"
                for saved in autograd_graph.saved(node):
                    if type(saved) in PLAIN_TENSORS:
                        self._add_notes(storages.tensor_notes(saved, Category.ACTIVATION, part), reference)
        self.complete &= graph.complete

    def _add_nodes(self, nodes: list[Any], reference: Reference) -> None:
        """The nodes themselves: what is left of a graph after its backward pass, on the host whatever the device."""
        if nodes:
            size, holder, address = NODE_BYTES * len(nodes), self._holder(reference), -id(nodes[0])
            self.live.append(LiveMemory(device="cpu", address=address, bytes=size, holder=holder, part=GRAPH_NODES))

    def _add_arrays(self) -> None:
        for reference in list(self.traversal.references.values()):
            value, size = reference.value, 0
            if type(value) is np.ndarray and value.base is None:
                size = int(value.nbytes)
            elif type(value) in (bytes, bytearray):
                size = len(value)
            if size >= _SMALLEST:
                holder = self._holder(reference)
                self.live.append(LiveMemory(device="cpu", address=-id(value), bytes=size, holder=holder))
