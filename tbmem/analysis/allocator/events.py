"""MemoryEvents: allocs, frees and segment changes of a device as columns, the input of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from tbmem.model.columns import I64


class EventKind(IntEnum):
    """Kind of an event, named as in CUDA memory snapshots."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The last reference is gone; other streams may still use the memory."""
    FREE_COMPLETED = 2
    FREE = 3
    """Both at once."""
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8


Row: TypeAlias = tuple[int, int, int, int, int]
"""Kind, key, bytes, stream, pool."""


@dataclass(frozen=True, eq=False)
class MemoryEvents:
    """One device's events in order; all columns have the same length."""

    kind: I64
    key: I64
    """The block: its address, or any number that no other live block has."""
    size: I64
    """Requested bytes of an alloc, bytes of a segment."""
    stream: I64
    pool: I64
    """The memory pool; 0 is the default one."""

    @classmethod
    def of(cls, rows: Sequence[Row] | I64) -> MemoryEvents:
        """Events from rows of kind, key, bytes, stream and pool."""
        return cls(*np.asarray(rows, dtype=np.int64).reshape(-1, 5).T)

    def __len__(self) -> int:
        return len(self.kind)

    def rows(self) -> Iterable[Row]:
        """Rows of plain integers, for a fast loop in Python."""
        columns = (self.kind, self.key, self.size, self.stream, self.pool)
        return zip(*(column.tolist() for column in columns), strict=True)
