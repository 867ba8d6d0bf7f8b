"""Memory history of the device's allocator: switched on, off, and written as a snapshot file."""

from __future__ import annotations

import pickle  # nosec B403  # only writes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tbmem.model.files import SNAPSHOT_PROTOCOL, atomic_write
from tbmem.model.redaction import NOTHING_REDACTED, Redaction

_ENTRY_BYTES = 1024
"""Bytes of an event with its stack: 280 in a step of six layers on torch 2.14, more where stacks are deep."""
_USUAL_ENTRIES = 100_000
"""Events that a history recorded by the program is taken to keep, as in torch's documentation; it does not tell."""


def cuda_history_is_on() -> bool:
    """Whether memory history is recorded on CUDA, the only kind of device where torch reports it."""
    cuda: Any = torch.cuda
    is_enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    # a GPU that the program has not used has no allocator yet, and to ask it ends the process (torch 2.11, 2.14)
    return bool(is_enabled()) if is_enabled is not None and cuda.is_initialized() else False


def history_is_on() -> bool:
    """Whether memory history is recorded, by tbmem or by the program."""
    return MemoryHistory._owner is not None or cuda_history_is_on()


def history_bytes() -> int:
    """Bytes of the host that the history now recorded may come to until its ring buffer is full; 0 where none is."""
    if not history_is_on():
        return 0
    owner = MemoryHistory._owner
    return _ENTRY_BYTES * (owner.max_entries if owner is not None else _USUAL_ENTRIES)


def history_module(kind: str) -> Any:
    """``torch.cuda.memory`` or ``torch.xpu.memory``, if such a device is in use and keeps a history, else ``None``.

    Only torch's own allocator does: with ``backend:cudaMallocAsync`` or a pluggable one it cannot be switched on.
    """
    module = getattr(torch, kind) if kind in ("cuda", "xpu") else None
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    memory = module.memory
    is_torchs_own = getattr(memory, "get_allocator_backend", lambda: "native")() == "native"
    return memory if is_torchs_own and hasattr(memory, "_record_memory_history") else None


class ProgramsCalls:
    """Notices when the program calls ``_record_memory_history`` while tbmem's history is on: it is the program's then.

    Args:
        memory: ``torch.cuda.memory``, ``torch.xpu.memory``, or a stand-in.
        taken: Called before the program's call.
    """

    def __init__(self, memory: Any, taken: Callable[[], object]) -> None:
        self._memory = memory
        self._taken = taken
        self._torchs: Callable[..., Any] | None = None

    def begin(self) -> None:
        """Notice it from now on."""
        if self._torchs is None:
            self._torchs = self._memory._record_memory_history
            self._memory._record_memory_history = self._record

    def end(self) -> None:
        """The function is torch's own again; what another tool has put there stays."""
        if self._torchs is not None and self._memory._record_memory_history == self._record:
            self._memory._record_memory_history = self._torchs
        self._torchs = None

    def _record(self, *args: Any, **kwargs: Any) -> Any:
        torchs = self._torchs or self._memory._record_memory_history
        self.end()
        self._taken()
        torchs(enabled=None)  # what tbmem has recorded is not part of the program's
        return torchs(*args, **kwargs)


class MemoryHistory:
    """Memory history of one kind of device, given by ``torch.cuda.memory`` or ``torch.xpu.memory``.

    The allocator has one history per process: if it is on already, it is left to its owner, and written from.
    ``max_entries`` is the number of events that the ring buffer keeps.
    """

    _owner: MemoryHistory | None = None

    def __init__(self, memory: Any, max_entries: int) -> None:
        self._memory = memory
        self.max_entries = max_entries
        self._calls = ProgramsCalls(memory, self._hand_over)
        self.was_taken = False
        """Whether the program has switched history on or off itself since ``start``: it is the program's."""

    @classmethod
    def of_this_process(cls, max_entries: int) -> MemoryHistory | None:
        """The history of the accelerator in use; ``None`` if no initialized device keeps one."""
        memory = history_module("cuda") or history_module("xpu")
        return cls(memory, max_entries) if memory is not None else None

    @property
    def is_own(self) -> bool:
        """Whether this history is the one that is on."""
        return MemoryHistory._owner is self

    def start(self) -> bool:
        """Start recording, unless it is on already; returns whether this call did."""
        if history_is_on():
            return False
        # C++ stacks take a hundred times longer to write
        self._memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=self.max_entries)
        MemoryHistory._owner = self
        self.was_taken = False
        self._calls.begin()
        return True

    def _hand_over(self) -> None:
        if self.is_own:
            MemoryHistory._owner = None
            self.was_taken = True

    def stop(self) -> None:
        """Stop recording; nothing happens if somebody else switched it on."""
        self._calls.end()
        if self.is_own:
            MemoryHistory._owner = None
            self._memory._record_memory_history(enabled=None)

    def take(self) -> dict[str, Any]:
        """The allocator's state and what history there is, as torch returns it."""
        snapshot: dict[str, Any] = self._memory._snapshot()
        return snapshot

    def write(self, path: Path) -> bool:
        """Write a snapshot taken now; returns whether the ring buffer still held the whole history."""
        data, is_whole = self.pickled()
        with atomic_write(path) as partial:
            partial.write_bytes(data)
        return is_whole

    def pickled(
        self, snapshot: dict[str, Any] | None = None, redaction: Redaction = NOTHING_REDACTED
    ) -> tuple[bytes, bool]:
        """The content of a snapshot's file, by default of one taken now.

        Pickled at once: a million objects that wait for a disk would be searched by each collection of garbage.

        Returns:
            The pickle, and whether the ring buffer still held the whole history.
        """
        snapshot = self.take() if snapshot is None else snapshot
        redaction.snapshot(snapshot)
        data = pickle.dumps(snapshot, protocol=SNAPSHOT_PROTOCOL)
        capacity = self._owner.max_entries if self._owner is not None else self.max_entries
        return data, all(len(trace) < capacity for trace in snapshot.get("device_traces", ()))
