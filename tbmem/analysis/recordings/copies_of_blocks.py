"""Tells parameters, gradients and optimizer state apart among blocks, by how many of each size there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tbmem.model.category import Category
from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import MIB

REPEATED = 3
"""Blocks of one size from which on their number tells how many copies there are."""
MOST = 0.95
"""Share that counts as all of it."""
_SMALL = MIB
"""Up to this size, blocks are in the allocator's pool of small ones."""
_LONGER = 1.5
"""How much longer than the shortest stretch of memory the first one may be."""
_SERIES = 8
"""Equal blocks in a row from which on they are not those of a layer."""


@dataclass(frozen=True, slots=True)
class Copies:
    """How many blocks of each size are parameters, gradients and optimizer state."""

    parameters: Counter[int]
    gradients: Counter[int] = field(default_factory=Counter)
    states: Counter[int] = field(default_factory=Counter)

    @property
    def is_one(self) -> bool:
        """Whether there are parameters only."""
        return not self.gradients.total() and not self.states.total()


def assigned(timeline: AllocationTimeline, device: int, blocks: I64, copies: Copies) -> tuple[I64, I64]:
    """Blocks in the order of their allocation, as far as addresses tell it, and their categories.

    Parameters are the first copy that lies close together; gradients follow, then state.
    """
    places = _places(timeline, device, blocks)
    blocks, places = blocks[np.argsort(places, kind="stable")], np.sort(places)
    sizes, category = timeline.rows.bytes[blocks], np.full(len(blocks), Category.UNKNOWN, np.int64)
    layers = Counter(n for n in copies.parameters.values() if n >= REPEATED).most_common(1)
    for is_large in (False, True):
        pool = np.flatnonzero((sizes > _SMALL) == is_large)
        if copies.is_one and is_large:
            pool = _without_series(sizes, pool, layers[0][0] if layers else 1)
        first = densest(sizes[pool], places[pool], copies.parameters)
        in_turn = np.concatenate([pool[first:], pool[:first][::-1]])
        category[in_turn] = _in_turn(sizes[in_turn], copies)
    return blocks, category


def _in_turn(sizes: I64, copies: Copies) -> I64:
    """Categories of blocks in order: of each size first the parameters, then the gradients, then the state."""
    kinds = np.array([Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE, Category.UNKNOWN], np.int64)
    parts = (copies.parameters, copies.gradients, copies.states)
    ends = np.cumsum([[part[size] for size in sizes.tolist()] for part in parts], axis=0)
    return np.asarray(kinds[np.sum(_numbers(sizes) >= ends, axis=0)])


def _numbers(values: I64) -> I64:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    ordered, numbers = values[order], np.empty(len(values), np.int64)
    numbers[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return numbers


def _without_series(sizes: I64, blocks: I64, layers: int) -> I64:
    """Blocks without series; of their sizes there are as many parameters as a multiple of the number of layers."""
    series = _is_series(sizes[blocks])
    rest, cut = blocks[~series], set(sizes[blocks[series]].tolist())
    count = Counter(sizes[rest].tolist())
    most = [count[size] // layers * layers if size in cut else count[size] for size in sizes[rest].tolist()]
    return np.asarray(rest[_numbers(sizes[rest]) < np.array(most, np.int64)])


def _is_series(sizes: I64) -> Bools:
    """Long runs of equal blocks where layers have other runs: a cache, which is allocated apart from the layers."""
    begin = np.flatnonzero(np.append(True, sizes[1:] != sizes[:-1])) if len(sizes) else np.zeros(0, np.int64)
    length = np.diff(np.append(begin, len(sizes)))
    found = np.zeros(len(sizes), np.bool_)
    for size in np.unique(sizes[begin][length >= _SERIES]).tolist():
        of_size = sizes[begin] == size
        longest = max(length[of_size].max(), 2 * np.sum(sizes == size) // 3)
        others = Counter(sizes[begin][~of_size].tolist())
        if np.sum(length[of_size] * 2 >= longest) < REPEATED <= max(others.values(), default=0):
            for run in np.flatnonzero(of_size & (length * 2 >= longest)).tolist():
                found[begin[run] : begin[run] + length[run]] = True
    return found


def densest(sizes: I64, places: I64, wanted: Counter[int]) -> int:
    """First block of a short stretch of memory that has nearly all blocks of a set of sizes: the first such stretch."""
    missing, listed = Counter(wanted), sizes.tolist()
    left = sum(size * wanted[size] for size in set(listed))
    enough, begin = left * (1 - MOST), 0
    spans: list[int] = []
    for end, size in enumerate(listed):
        missing[size] -= 1
        left -= size * (missing[size] >= 0)
        while left <= enough and begin <= end:
            spans += [int(places[end]) + size - int(places[begin])] * (begin == len(spans))
            missing[listed[begin]] += 1
            left += listed[begin] * (missing[listed[begin]] > 0)
            begin += 1
    return next((one for one, span in enumerate(spans) if span <= _LONGER * min(spans)), 0)


def total_bytes(sizes: Counter[int]) -> int:
    """Of blocks counted by size."""
    return sum(size * count for size, count in sizes.items())


def _places(timeline: AllocationTimeline, device: int, blocks: I64) -> I64:
    """Where blocks lie if the segments followed each other without gaps in the order in which they were made; bytes."""
    segments = timeline.segments.take(timeline.segments.device == device)
    address = timeline.rows.address[blocks]
    if not len(segments) or not len(blocks):
        return address.astype(np.int64)
    order = np.argsort(segments.address)
    begin, size = segments.address[order], segments.bytes[order]
    segment = np.maximum(np.searchsorted(begin, address, side="right") - 1, 0)
    # drivers hand out addresses upwards or downwards; the segment with the most blocks is the first one of small blocks
    is_downwards = 2 * int(np.bincount(segment, minlength=len(begin)).argmax()) > len(begin)
    before = np.cumsum(size[::-1])[::-1] - size if is_downwards else np.cumsum(size) - size
    return np.asarray(before[segment] + (address - begin[segment]).astype(np.int64))
