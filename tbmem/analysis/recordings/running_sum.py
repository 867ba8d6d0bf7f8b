"""RunningSum: bytes by event or by time, summed once; any part of them is then two lookups."""

from __future__ import annotations

import numpy as np

from tbmem.model.columns import I64


class RunningSum:
    """Sums of bytes in the order of a key: a recording may have a thousand steps and a million allocations.

    Args:
        key: Events or nanoseconds, in any order.
        size: Bytes of each.
    """

    def __init__(self, key: I64, size: I64) -> None:
        order = np.argsort(key, kind="stable")
        self._key = key[order]
        self._sum = np.concatenate([[0], np.cumsum(size[order])])

    def within(self, begin: int, end: int) -> int:
        """Bytes from a key on, until before another."""
        first, last = np.searchsorted(self._key, (begin, end))
        return int(self._sum[last] - self._sum[first])
