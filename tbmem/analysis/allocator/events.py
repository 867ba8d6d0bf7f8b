"""MemoryEvents: allocs, frees and segment changes of a device as columns, the input of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]


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


Row: TypeAlias = tuple[EventKind, int, int, int, int]
"""Kind, key, bytes, stream, pool."""


@dataclass(frozen=True, eq=False)
class MemoryEvents:
    """One device's events in order; all columns have the same length."""

    kind: npt.NDArray[np.uint8]
    key: IntArray
    """The block: its address, or any number that no other live block has."""
    size: IntArray
    """Requested bytes of an alloc, bytes of a segment."""
    stream: IntArray
    pool: IntArray
    """The memory pool; 0 is the default one."""

    @classmethod
    def of(cls, rows: Sequence[Row] | IntArray) -> MemoryEvents:
        """Events from rows of kind, key, bytes, stream and pool."""
        table = np.asarray(rows, dtype=np.int64).reshape(-1, 5)
        return cls(
            kind=table[:, 0].astype(np.uint8), key=table[:, 1], size=table[:, 2], stream=table[:, 3], pool=table[:, 4]
        )

    def __len__(self) -> int:
        return len(self.kind)

    def then(self, others: MemoryEvents) -> MemoryEvents:
        """These events followed by others."""
        columns = [field.name for field in fields(self)]
        return MemoryEvents(**{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in columns})

    def rows(self) -> Iterable[tuple[int, int, int, int, int]]:
        """Rows of plain integers, for a fast loop in Python."""
        columns = (self.kind, self.key, self.size, self.stream, self.pool)
        return zip(*(column.tolist() for column in columns), strict=True)
