"""Many values in stretches go in; the few that a picture needs come out: the highest and the lowest of each stretch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I64


def extremes(values: NDArray[Any], stretch: I64) -> I64:
    """Places of the first highest and of the first lowest value of each stretch, ascending.

    Args:
        values: Without NaN.
        stretch: Number of the stretch that each value is in; it never falls.
    """
    if not len(values):
        return np.zeros(0, np.int64)
    begins = np.flatnonzero(np.diff(stretch, prepend=stretch[0] - 1))
    run = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(values)))
    found = []
    for reduce in (np.maximum, np.minimum):
        marked = np.flatnonzero(values == reduce.reduceat(values, begins)[run])
        found.append(marked[np.unique(run[marked], return_index=True)[1]])
    return np.unique(np.concatenate(found))


def even_stretches(count: int, stretches: int) -> I64:
    """Number of the stretch of each of ``count`` values, all stretches being of one length."""
    return np.arange(count) * stretches // max(count, 1)
