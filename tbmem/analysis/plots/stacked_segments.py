"""Reserved memory over time: each segment a band over its lifetime, within the layer of its memory pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tbmem.analysis.allocator.reserved import Reserved
from tbmem.analysis.plots.curves import corners
from tbmem.analysis.plots.stacked_series import largest_bands
from tbmem.model.columns import I64


class SegmentLayers(NamedTuple):
    """Reserved memory of one device at some events."""

    pools: tuple[int, ...]
    """Pool of each layer, from bottom to top."""
    bytes: I64
    """By layer and event."""
    event: I64
    segment: I64
    """Segments with a band, from bottom to top: indices into the table of reserved memory."""
    layer: I64
    """Of each band."""
    first: I64
    """Index of the first event at which it is there."""
    last: I64
    """Index of the first event at which it no longer is; the number of events if it stays."""
    present: int
    """Number of segments that were there in the range."""


def segment_layers(
    reserved: Reserved, between: tuple[int, int], columns: int, largest: int, cut: Callable[[I64], I64]
) -> SegmentLayers:
    """Segments of a range.

    Args:
        reserved: Of one device.
        between: Last event before the range, and last event in it.
        columns: Columns of the chart; with more changes than two for each only the extremes are kept.
        largest: Maximum number of bands.
        cut: Returns the column of each event.
    """
    before, end = between
    there = np.flatnonzero((reserved.first <= end) & (reserved.last > before))
    pools = np.unique(reserved.pool[there])
    layer = np.searchsorted(pools, reserved.pool[there])
    first, last = reserved.first[there], reserved.last[there]
    size = reserved.end[there] - reserved.begin[there]
    changes = np.concatenate([first, last])
    event = np.unique(np.append(changes[(changes > before) & (changes <= end)], before))
    if len(event) > 2 * columns:
        total = _summed(first, last, size, np.zeros_like(layer), event)[0]
        event = event[corners(total, cut(event))]
    begins, ends = np.searchsorted(event, first), np.searchsorted(event, last)
    chosen = largest_bands(size * (ends - begins), largest)
    chosen = chosen[np.lexsort((reserved.begin[there][chosen], first[chosen], layer[chosen]))]
    return SegmentLayers(
        pools=tuple(pools.tolist()),
        bytes=_summed(first, last, size, layer, event),
        event=event,
        segment=there[chosen],
        layer=layer[chosen],
        first=begins[chosen],
        last=ends[chosen],
        present=len(there),
    )


def _summed(first: I64, last: I64, size: I64, layer: I64, event: I64) -> I64:
    """Bytes by layer and event: what had begun by then, less what had ended."""
    grid = np.zeros((int(layer.max(initial=-1)) + 1, len(event) + 1), np.int64)
    np.add.at(grid, (layer, np.searchsorted(event, first)), size)
    np.add.at(grid, (layer, np.searchsorted(event, last)), -size)
    return np.cumsum(grid[:, :-1], axis=1)
