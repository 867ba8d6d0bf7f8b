"""Storages of the CPU that are alive when a recording begins, and the times at which they are freed.

torch counts memory of the CPU only while a profiler runs: what was allocated before is missing in its totals and its
free makes no event, while what was freed between two recordings still counts.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing import reductions

from tbmem.interruption import raise_interruption
from tbmem.model.trace_additions import OlderStorages
from tbmem.sources.gc_pause import gc_paused
from tbmem.sources.program import introspection as plain
from tbmem.sources.program import tracked_objects
from tbmem.sources.retainers.reachability import PLAIN_TENSORS
from tbmem.sources.torch_state import autograd_graph

_MAX_TENSORS = 50_000  # tensors; where there are more, nothing is noted
_GRAPHS = (50_000, 0.1)  # nodes of autograd's graphs that are followed, and the seconds for that
_weak: Callable[[torch.UntypedStorage], Any] = reductions.StorageWeakRef


@dataclass(slots=True, eq=False)
class _Watched:
    """One storage."""

    bytes: int
    reference: Any
    tensors: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    freed_ns: int = -1  # when its last known tensor died


class OlderStoragesTracker:
    """Notes what is alive at ``begin``, and what of it has gone by ``end``; holds weak references only."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._watched: dict[int, _Watched] = {}
        self._is_complete = False

    def begin(self) -> None:
        """Note every storage of the CPU; before the profiler is on, which would record each look."""
        self.forget()
        try:
            with torch._C.DisableTorchFunction(), gc_paused():
                self._is_complete = self._note(tracked_objects.instances(torch.Tensor))
        except Exception as error:
            raise_interruption(error)
            self.forget()  # a trace without is better than none
        plain.forget()

    def end(self) -> OlderStorages | None:
        """What was noted; ``None`` where that was not possible. Tracking ends."""
        now = self._clock()
        watched, complete = self._watched, self._is_complete
        for each in watched.values():
            if not each.reference.expired():
                each.freed_ns = -1
            elif each.freed_ns < 0:
                each.freed_ns = now
        rows = [(address, each.bytes, each.freed_ns) for address, each in watched.items()]
        self.forget()
        addresses, sizes, freed = np.array(rows, np.int64).reshape(-1, 3).T.copy()
        return OlderStorages(address=addresses, bytes=sizes, freed_ns=freed) if complete else None

    def forget(self) -> None:
        """Stop tracking."""
        for each in self._watched.values():
            each.tensors.clear()  # each callback refers to what holds it
        self._watched, self._is_complete = {}, False

    def _note(self, tensors: list[torch.Tensor]) -> bool:
        if len(tensors) > _MAX_TENSORS:
            return False
        for tensor in tensors:
            self._add(tensor, by_object=True)
        graph = autograd_graph.Graph(*_GRAPHS)
        for tensor in tensors:
            for saved in _kept_by_graph(tensor, graph):
                self._add(saved, by_object=False)
        return True

    def _add(self, tensor: torch.Tensor, by_object: bool) -> None:
        """Note a tensor's storage; what wraps others (DTensor, sparse) is passed over: its parts are tensors too."""
        try:
            if tensor.device.type != "cpu" or isinstance(tensor, FakeTensor):
                return
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if not address or not storage.nbytes() or storage.is_shared() or storage.filename is not None:
                return  # the allocator has not given it out
        except Exception as error:
            raise_interruption(error)
            return
        watched = self._watched.get(address)
        if watched is None:
            watched = self._watched[address] = _Watched(storage.nbytes(), _weak(storage))
        if by_object:
            watched.tensors[id(tensor)] = weakref.ref(tensor, functools.partial(self._died, watched, id(tensor)))

    def _died(self, watched: _Watched, number: int, _: object) -> None:
        watched.tensors.pop(number, None)
        if not watched.tensors:
            watched.freed_ns = self._clock()


def _kept_by_graph(tensor: torch.Tensor, graph: autograd_graph.Graph) -> Iterator[torch.Tensor]:
    """What autograd keeps alive because of a tensor that somebody holds: Python knows no object for it."""
    try:
        nodes = graph.add(tensor.grad_fn) if tensor.grad_fn is not None else []
    except Exception as error:
        raise_interruption(error)
        return
    for node in nodes:
        yield from (saved for saved in autograd_graph.saved(node) if type(saved) in PLAIN_TENSORS)
