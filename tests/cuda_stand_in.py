"""``torch.cuda`` on a machine without a GPU: an allocator's counters and history, of what the CPU's tensors hold."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType, FunctionType, SimpleNamespace
from typing import Any, NoReturn, TypeVar

import pytest
import torch
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tbmem.model.oom import LiveMemory
from tbmem.runtime.oom import cuda_observer as oom_observer
from tbmem.runtime.profiling import window
from tbmem.sources.retainers import live_memory

MIB = 1 << 20
_SEGMENT = 2 * MIB
_COUNTERS = (
    "allocated_bytes",
    "requested_bytes",
    "active_bytes",
    "reserved_bytes",
    "allocation",
    "inactive_split_bytes",
)
_ALLOCATOR = torch.__file__
Frames = list[dict[str, Any]]
Method = TypeVar("Method", bound=FunctionType)


def _in_torch(method: Method) -> Method:
    """Let frames of a method seem to be torch's: the real allocator has none, and these are nobody's own lines."""
    method.__code__ = method.__code__.replace(co_filename=_ALLOCATOR)
    return method


@dataclass
class _Block:
    address: int
    size: int
    requested: int
    frames: Frames


class CudaStandIn(TorchDispatchMode):
    """Counts the storages of every tensor that an operator makes while the mode is on, as CUDA's allocator does.

    Each block is a segment of its own; what was reserved once stays so.

    Args:
        total: Bytes of the device.
    """

    def __init__(self, total: int = 2048 * MIB) -> None:
        super().__init__()
        self.total = total
        self.is_busy = False
        self.sync_debug_mode = 0
        self.metadata = ""
        self.expandable = False
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self._stats = {name: dict.fromkeys(("current", "peak", "allocated", "freed"), 0) for name in _COUNTERS}
        self._ooms = 0
        self._blocks: dict[int, _Block] = {}
        self._ring: deque[dict[str, Any]] | None = None

    @_in_torch
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and self.sync_debug_mode:
            raise RuntimeError("called a synchronizing CUDA operation")
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self._note(value.untyped_storage())
        return result

    @_in_torch
    def _note(self, storage: torch.UntypedStorage) -> None:
        address, requested = storage.data_ptr(), storage.nbytes()
        if address in self._blocks or not requested:
            return
        size = -(-requested // 512) * 512
        free = self.total - self._stats["reserved_bytes"]["current"]
        if self._stats["allocated_bytes"]["current"] + size > self.total:
            self._run_out(size, free)
        self._blocks[address] = _Block(address, size, requested, self._stack() if self._ring is not None else [])
        weakref.finalize(storage, self._free, address).atexit = False
        self._count(size, requested, 1)
        self._event("alloc", address, size)

    def _free(self, address: int) -> None:
        block = self._blocks.pop(address)
        self._count(-block.size, -block.requested, -1)
        self._event("free_requested", address, block.size)
        self._event("free_completed", address, block.size)

    @_in_torch
    def _run_out(self, size: int, free: int) -> NoReturn:
        self._ooms += 1
        self._event("oom", 0, size)
        for observer in self.observers:
            observer(0, size, self.total, free)
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / MIB:.2f} MiB.")

    def _count(self, size: int, requested: int, number: int) -> None:
        changes = {"allocated_bytes": size, "requested_bytes": requested, "active_bytes": size, "allocation": number}
        for name, change in changes.items():
            self._change(name, change)
        more = self._stats["allocated_bytes"]["current"] - self._stats["reserved_bytes"]["current"]
        if more > 0:
            self._change("reserved_bytes", -(-more // _SEGMENT) * _SEGMENT)

    def _change(self, name: str, change: int) -> None:
        counter = self._stats[name]
        counter["current"] += change
        counter["peak"] = max(counter["peak"], counter["current"])
        counter["allocated" if change > 0 else "freed"] += abs(change)

    def _event(self, action: str, address: int, size: int) -> None:
        if self._ring is not None:
            frames = self._stack()
            entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames}
            self._ring.append({**entry, "user_metadata": self.metadata})

    def _stack(self) -> Frames:
        """Python's frames, innermost first, without those of this file."""
        frames: Frames = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            code = frame.f_code
            if code.co_filename not in (__file__, _ALLOCATOR):
                frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
            frame = frame.f_back
        return frames

    # what torch.cuda and torch.cuda.memory have

    def memory_stats_as_nested_dict(self, device: Any = None) -> dict[str, Any]:
        stats: dict[str, Any] = {name: {"all": dict(counter)} for name, counter in self._stats.items()}
        return {**stats, "num_alloc_retries": 0, "num_ooms": self._ooms}

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        for counter in self._stats.values():
            counter["peak"] = counter["current"]

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.total - self._stats["reserved_bytes"]["current"], self.total

    def empty_cache(self) -> None:
        reserved, allocated = (self._stats[name]["current"] for name in ("reserved_bytes", "allocated_bytes"))
        self._change("reserved_bytes", -(-allocated // _SEGMENT) * _SEGMENT - reserved)

    def counter(self, name: str, which: str) -> Callable[..., int]:
        """A function of torch that returns one of the counters."""
        return lambda device=None: self._stats[name][which]

    def record_memory_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
    ) -> None:
        self._ring = deque(maxlen=max_entries) if enabled is not None else None

    def history_is_on(self) -> bool:
        return self._ring is not None

    def memory_snapshot(self, mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
        return [self._segment(block) for block in self._blocks.values()]

    def _segment(self, block: _Block) -> dict[str, Any]:
        one = {"size": block.size, "requested_size": block.requested, "address": block.address, "frames": block.frames}
        return {
            "device": 0,
            "address": block.address,
            "total_size": block.size,
            "allocated_size": block.size,
            "active_size": block.size,
            "stream": 0,
            "segment_type": "large",
            "is_expandable": self.expandable,
            "blocks": [{**one, "state": "active_allocated"}],
        }

    def snapshot(self) -> dict[str, Any]:
        return {"segments": self.memory_snapshot(), "device_traces": [list(self._ring or ())]}

    def set_metadata(self, metadata: str) -> None:
        self.metadata = metadata

    def sleep(self, cycles: int) -> None:
        self.is_busy = True

    def synchronize(self, device: Any = None) -> None:
        self.is_busy = False

    def current_stream(self, device: Any = None) -> Any:
        return SimpleNamespace(query=lambda: not self.is_busy)

    def set_sync_debug_mode(self, mode: int | str) -> None:
        self.sync_debug_mode = 0 if mode in (0, "default") else 2


def _later(call: Callable[[], object], **how: object) -> None:
    """``torch.cuda._lazy_call`` once CUDA is awake; seeds, which come with ``how``, have no generator here."""
    if not how:
        call()


@contextmanager
def cuda_stand_in(patch: pytest.MonkeyPatch, total: int = 2048 * MIB) -> Iterator[CudaStandIn]:
    """``torch.cuda`` has one device, and every tensor lies on it although it says ``cpu``."""
    made = CudaStandIn(total)
    functions: dict[str, Any] = {
        "_lazy_call": _later,
        "_sleep": made.sleep,
        "current_device": lambda: 0,
        "current_stream": made.current_stream,
        "device_count": lambda: 1,
        "empty_cache": made.empty_cache,
        "get_device_capability": lambda device: (9, 0),
        "get_device_properties": lambda device: SimpleNamespace(
            name="stand-in", total_memory=total, multi_processor_count=1
        ),
        "get_sync_debug_mode": lambda: made.sync_debug_mode,
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "is_initialized": lambda: True,
        "max_memory_allocated": made.counter("allocated_bytes", "peak"),
        "max_memory_reserved": made.counter("reserved_bytes", "peak"),
        "mem_get_info": made.mem_get_info,
        "memory_allocated": made.counter("allocated_bytes", "current"),
        "memory_reserved": made.counter("reserved_bytes", "current"),
        "memory_stats_as_nested_dict": made.memory_stats_as_nested_dict,
        "reset_peak_memory_stats": made.reset_peak_memory_stats,
        "set_sync_debug_mode": made.set_sync_debug_mode,
        "synchronize": made.synchronize,
    }
    of_memory: dict[str, Any] = {
        "_get_memory_metadata": lambda: made.metadata,
        "_record_memory_history": made.record_memory_history,
        "_set_memory_metadata": made.set_metadata,
        "_snapshot": made.snapshot,
        "get_allocator_backend": lambda: "native",
        "memory_snapshot": made.memory_snapshot,
        "memory_stats_as_nested_dict": made.memory_stats_as_nested_dict,
    }
    for name, function in functions.items():
        patch.setattr(torch.cuda, name, function)
    for name, function in of_memory.items():
        patch.setattr(torch.cuda.memory, name, function, raising=not name.endswith("_metadata"))
    patch.setattr(torch._C, "_cuda_isHistoryEnabled", made.history_is_on, raising=False)
    patch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", made.observers.append, raising=False)
    # in a build for CUDA optimizers would ask the driver whether a graph is being captured
    patch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    patch.setattr(oom_observer._Observer, "attached_in", None)
    # a profiler of CUDA that is not there writes a stack to stderr for every operator
    patch.setattr(window, "_activities", lambda: [ProfilerActivity.CPU])
    # a live tensor says that it is the CPU's
    on_device = partial(replace, device="cuda:0")
    patch.setattr(live_memory, "LiveMemory", lambda **fields: on_device(LiveMemory(**fields)))
    with made:
        yield made
