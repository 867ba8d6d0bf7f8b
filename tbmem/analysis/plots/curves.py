"""Downsamples curves: keeps the minimum, the maximum and, of step curves, the last value of each interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I64


def extremes(values: NDArray[Any], interval: I64) -> I64:
    """Indices of the first maximum and minimum of each interval; ``interval`` numbers that of each value, ascending."""
    if not len(values):
        return np.zeros(0, np.int64)
    begins = [0, *(np.flatnonzero(interval[1:] != interval[:-1]) + 1).tolist()]
    indices = []
    # a loop over intervals, of which there are as many as pixels, is faster than a mask of all values
    for begin, end in zip(begins, [*begins[1:], len(values)], strict=True):
        part = values[begin:end]
        indices += [begin + int(part.argmax()), begin + int(part.argmin())]
    return np.unique(np.array(indices, np.int64))


def corners(values: NDArray[Any], interval: I64) -> I64:
    """Indices of the values that draw a step curve: extremes and last value of each interval, and the first of all."""
    last = np.flatnonzero(np.append(interval[1:] != interval[:-1], True)[: len(values)])
    return np.unique(np.concatenate([[0][: len(values)], last, extremes(values, interval)]).astype(np.int64))


def even_intervals(count: int, intervals: int) -> I64:
    """Interval number of each of ``count`` values in intervals of equal length."""
    edges = -(-np.arange(intervals + 1) * count // intervals)
    return np.repeat(np.arange(intervals), np.diff(edges))


def downsampled(values: NDArray[Any], points: int) -> I64:
    """Indices of about ``points`` values of a step curve."""
    count = len(values)
    return np.arange(count) if count <= points else corners(values, even_intervals(count, max(points // 3, 2)))
