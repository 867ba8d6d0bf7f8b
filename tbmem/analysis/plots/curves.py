"""Thins curves: of each stretch the highest, the lowest, and the last value of a staircase."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I64


def extremes(values: NDArray[Any], stretch: I64) -> I64:
    """Places of the first highest and the first lowest value of each stretch, ascending; stretch numbers never fall."""
    if not len(values):
        return np.zeros(0, np.int64)
    begins = [0, *(np.flatnonzero(stretch[1:] != stretch[:-1]) + 1).tolist()]
    found = []
    # there are as many stretches as a screen has room for: to look into each is cheaper than to mark all values
    for begin, end in zip(begins, [*begins[1:], len(values)], strict=True):
        part = values[begin:end]
        found += [begin + int(part.argmax()), begin + int(part.argmin())]
    return np.unique(np.array(found, np.int64))


def corners(values: NDArray[Any], stretch: I64) -> I64:
    """Places of the values that draw a staircase, in which each value holds until the next one, ascending.

    Besides the extremes of each stretch these are its last value, which holds where the following stretches are empty,
    and the first and last of all.
    """
    last = np.flatnonzero(np.append(stretch[1:] != stretch[:-1], True)[: len(values)])
    return np.unique(np.concatenate([[0][: len(values)], last, extremes(values, stretch)]).astype(np.int64))


def even_stretches(count: int, stretches: int) -> I64:
    """Number of the stretch of each of ``count`` values, all stretches being of one length."""
    edges = -(-np.arange(stretches + 1) * count // stretches)
    return np.repeat(np.arange(stretches), np.diff(edges))


def thinned(values: NDArray[Any], points: int) -> I64:
    """Places of about ``points`` values of a staircase: the first, the last, and the corners of even stretches."""
    count = len(values)
    if count <= points:
        return np.arange(count)
    return corners(values, even_stretches(count, max(points // 3, 2)))
