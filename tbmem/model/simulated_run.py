"""Allocations of a training run on fake tensors, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tbmem.model.columns import I64
from tbmem.model.stacks import Frame


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """One row per allocation, in order."""

    size: I64  # requested bytes
    alloc_event: I64  # allocs and frees share one count from 0
    free_event: I64  # -1: alive at the end
    step: I64  # -1 before the first step
    phase: I64
    category: I64
    module: I64
    operator: I64
    stream: I64  # the number of the CUDA stream; 0 is the default one
    stack: I64  # -1 for none; in the backward pass that of the forward
    modules: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    stacks: tuple[tuple[Frame, ...], ...] = ()  # source lines of user code, the innermost call first
    notes: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    """Plain JSON values: parameters, how it was executed, torch's version, seconds."""

    def __len__(self) -> int:
        return len(self.size)

    def to_bytes(self) -> bytes:
        """Encode for another process."""
        return msgspec.msgpack.encode(self, enc_hook=lambda column: column.tobytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> SimulatedRun:
        """Decode :meth:`to_bytes`."""
        return msgspec.msgpack.decode(data, type=cls, dec_hook=lambda _, column: np.frombuffer(column, dtype=np.int64))
