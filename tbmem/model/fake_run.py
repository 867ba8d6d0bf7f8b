"""Allocations of a training that never ran go in as columns; bytes for another process come out, and back."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tbmem.model.stacks import Frame

I64 = npt.NDArray[np.int64]

_COLUMNS = ("size", "alloc_event", "free_event", "step", "phase", "category", "module", "operator", "stack")


@dataclass(frozen=True, kw_only=True)
class FakeRun:
    """One row per allocation, in the order in which they were made."""

    size: I64
    """Bytes asked for."""
    alloc_event: I64
    """Allocs and frees share one count from 0."""
    free_event: I64
    """-1: alive at the end."""
    step: I64
    """-1 before the first step."""
    phase: I64
    """A ``Phase``."""
    category: I64
    """A ``Category``."""
    module: I64
    """Into ``modules``; -1 for none."""
    operator: I64
    """Into ``operators``."""
    stack: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Into ``stacks``; -1 for none. In the backward pass: of the forward's line. Left out: none is known."""
    modules: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    stacks: tuple[tuple[Frame, ...], ...] = ()
    """Lines of the user's code, the innermost call first."""
    notes: tuple[str, ...] = ()
    """What was assumed or is not known, one sentence each."""
    about: dict[str, Any] = field(default_factory=dict)
    """Plain JSON values: parameters, how it was executed, torch's version, seconds."""

    def __post_init__(self) -> None:
        if len(self.stack) != len(self.size):
            object.__setattr__(self, "stack", np.full(len(self.size), -1, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.size)

    @property
    def events(self) -> int:
        """Allocs and frees."""
        return len(self.size) + int(np.count_nonzero(self.free_event >= 0))

    def to_bytes(self) -> bytes:
        """A numpy archive without pickles."""
        header = {name.name: getattr(self, name.name) for name in fields(self) if name.name not in _COLUMNS}
        buffer = io.BytesIO()
        np.savez(
            buffer,
            header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            **{name: getattr(self, name) for name in _COLUMNS},
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> FakeRun:
        """What :meth:`to_bytes` wrote."""
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            columns = {name: archive[name] for name in _COLUMNS}
        for name in ("modules", "operators", "notes"):
            header[name] = tuple(header[name])
        header["stacks"] = tuple(tuple(Frame(*frame) for frame in stack) for stack in header["stacks"])
        return cls(**columns, **header)
