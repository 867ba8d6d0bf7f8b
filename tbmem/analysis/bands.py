"""A timeline and a stretch of events go in; its largest allocations as bands that lie upon each other come out.

A band lies where the sum of those below it ends, as in a pile from which things are taken: what is allocated goes on
top, what is freed lets all above it sink. Bands are therefore to scale, and at no moment is there a hole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline

_LEAST_SHOWN = 16
Pixels = Callable[[I64], I64]


class Bands(NamedTuple):
    """Bands, in order of their beginnings."""

    row: I64
    begin: I64
    """Event; -1 if it was there before the stretch."""
    end: I64
    """Event of its free, or the end of the stretch."""
    start: I64
    """Where its corners begin; one element more than there are bands."""
    corner: I64
    """Event of each corner: from there on the band lies at ``base``."""
    base: I64
    """Bytes from the ground."""
    found: int
    """Allocations that were alive in the stretch."""
    bytes: int
    """All of them together."""


def bands_of(
    timeline: AllocationTimeline, device: int, begin: int, end: int, largest: int, most_corners: int, pixel_of: Pixels
) -> Bands:
    """The largest allocations of a stretch.

    Args:
        timeline: The recording.
        device: Number of the device.
        begin: Last event before the stretch; -1 for the beginning of the recording.
        end: Last event of the stretch.
        largest: How many; fewer where they would need more than ``most_corners``.
        most_corners: Corners of all bands together.
        pixel_of: Gives the numbers of the pixels that events lie in: of a band's corners in one pixel the last one
            is kept.
    """
    rows = timeline.rows
    alive = (rows.device == device) & (rows.alloc_event <= end) & ((rows.free_event < 0) | (rows.free_event > begin))
    found = np.flatnonzero(alive)
    total = int(rows.bytes[found].sum())
    order = _largest(found, rows.bytes[found], largest)
    while True:
        chosen = order[np.argsort(rows.alloc_event[order], kind="stable")]
        piled = _pile(timeline, chosen, begin, end, pixel_of, 10 * most_corners)
        if piled is not None and (len(piled[1]) <= most_corners or len(order) <= _LEAST_SHOWN):
            break
        order = order[: max(len(order) // 2, _LEAST_SHOWN)]
    start, corner, base = piled
    first, last = _edges(timeline, chosen, begin, end)
    return Bands(chosen, first, last, start, corner, base, len(found), total)


def _largest(which: I64, size: I64, count: int) -> I64:
    """The largest rows, the largest first; of equal ones the first."""
    if len(which) > count:
        least = np.partition(size, len(size) - count)[len(size) - count]
        kept = size >= least
        which, size = which[kept], size[kept]
    found: I64 = which[np.argsort(-size, kind="stable")[:count]]
    return found


def _edges(timeline: AllocationTimeline, chosen: I64, begin: int, end: int) -> tuple[I64, I64]:
    rows = timeline.rows
    free = rows.free_event[chosen]
    return np.maximum(rows.alloc_event[chosen], begin), np.where((free < 0) | (free > end), end, free)


def _pile(
    timeline: AllocationTimeline, chosen: I64, begin: int, end: int, pixel_of: Pixels, most: int
) -> tuple[I64, I64, I64] | None:
    """Corners by band; ``None`` if they would be far too many and there are bands to spare."""
    size = timeline.rows.bytes[chosen]
    free = timeline.rows.free_event[chosen]
    lowest = np.flatnonzero(timeline.rows.alloc_event[chosen] <= begin)
    base = np.zeros(len(chosen), np.int64)
    base[lowest] = np.cumsum(size[lowest]) - size[lowest]
    parts = [(lowest, np.full(len(lowest), begin, np.int64), base[lowest])]
    pile, count = np.zeros(len(chosen), np.int64), len(lowest)
    pile[:count] = lowest
    height, corners = int(size[lowest].sum()), count
    for event, number, is_free in _changes(timeline.rows.alloc_event[chosen], free, begin, end):
        if is_free:
            at = int(np.searchsorted(base[pile[:count]], base[number], "left"))
            while pile[at] != number:
                at += 1  # bands of no bytes lie at the same height
            above = pile[at + 1 : count].copy()
            count -= 1
            pile[at:count] = above
            lower = base[above] - size[number]
            base[above] = lower
            height -= int(size[number])
            parts.append((above, np.full(len(above), event, np.int64), lower))
            corners += len(above)
        else:
            base[number] = height
            height += int(size[number])
            pile[count] = number
            count += 1
            parts.append((np.array([number]), np.array([event], np.int64), base[number : number + 1].copy()))
            corners += 1
        if corners > most and len(chosen) > _LEAST_SHOWN:
            return None
    band, corner, height_of = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return _thinned(len(chosen), band.astype(np.int64), corner, height_of, pixel_of)


def _changes(alloc: I64, free: I64, begin: int, end: int) -> list[tuple[int, int, bool]]:
    """Event, band, and whether it is freed, in order."""
    made = [(event, number, False) for number, event in enumerate(alloc.tolist()) if event > begin]
    gone = [(event, number, True) for number, event in enumerate(free.tolist()) if begin < event <= end]
    return sorted(made + gone)


def _thinned(count: int, band: I64, corner: I64, base: I64, pixel_of: Pixels) -> tuple[I64, I64, I64]:
    """Corners by band, of those in one pixel the last, but always the first of each band."""
    order = np.argsort(band, kind="stable")
    band, corner, base = band[order], corner[order], base[order]
    pixel = pixel_of(corner)
    last = np.append((band[1:] != band[:-1]) | (pixel[1:] != pixel[:-1]), True)
    first = np.insert(band[1:] != band[:-1], 0, True)
    kept = last | first
    band, corner, base = band[kept], corner[kept], base[kept]
    start = np.searchsorted(band, np.arange(count + 1))
    return start.astype(np.int64), corner, base
