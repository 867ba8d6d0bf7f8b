"""Pairs of allocations and the frees that end them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I64, Bools


class Pairs(NamedTuple):
    """Pairs by the number of each entry."""

    closed_by: I64  # the entry that closes an opening entry; -1 for none
    opened_by: I64  # the entry that a closing entry closes; -1 for none
    repeated: Bools  # opening entries followed by another one of the same key: the closing entry is missing


def pair(keys: NDArray[Any], opens: Bools) -> Pairs:
    """Match each closing entry with the previous opening entry of the same key (an address)."""
    order = np.argsort(keys, kind="stable")
    return _pair_sorted(order, keys[order][1:] == keys[order][:-1], opens)


def separate_unequal(pairs: Pairs, sizes: I64) -> tuple[Pairs, int]:
    """Separate pairs of different sizes, whose opening entries become ``repeated``; also returns their number."""
    opening = np.flatnonzero(pairs.closed_by >= 0)
    opening = opening[sizes[opening] != sizes[pairs.closed_by[opening]]]
    closing = pairs.closed_by[opening]
    pairs.closed_by[opening] = -1
    pairs.opened_by[closing] = -1
    pairs.repeated[opening] = True
    return pairs, len(opening)


def pair_by_size(sizes: I64, opens: Bools) -> Pairs:
    """Match without addresses: each free ends the youngest allocation of the same size (in bytes, > 0)."""
    order = np.argsort(sizes, kind="stable")
    by_size, change = sizes[order], np.where(opens[order], 1, -1)
    depth = np.cumsum(change)
    starts = np.flatnonzero(np.concatenate([[True], by_size[1:] != by_size[:-1]])) if len(order) else order
    # live allocations of this size, counted from its first entry
    depth -= np.repeat(depth[starts] - change[starts], np.diff(np.append(starts, len(order))))
    level = np.where(change > 0, depth, depth + 1)
    within = np.lexsort((level, by_size))
    same = (by_size[within][1:] == by_size[within][:-1]) & (level[within][1:] == level[within][:-1])
    return _pair_sorted(order[within], same, opens)


def _pair_sorted(order: NDArray[np.intp], same: Bools, opens: Bools) -> Pairs:
    """Pair neighbours in ``order``, sorted by key and time; ``same`` is whether each has the key of the next."""
    first, second = order[:-1][same], order[1:][same]
    matched = opens[first] & ~opens[second]
    again = opens[first] & opens[second]
    pairs = Pairs(np.full(len(order), -1), np.full(len(order), -1), np.zeros(len(order), np.bool_))
    pairs.closed_by[first[matched]] = second[matched]
    pairs.opened_by[second[matched]] = first[matched]
    pairs.repeated[first[again]] = True
    return pairs
