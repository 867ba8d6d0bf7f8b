"""The largest allocations of a range of events as bands of a memory chart, and its allocations and frees.

Bands lie within the layer of their category (``layers_of``), in the order of their allocation; the remaining
allocations are drawn above them. The order does not depend on the range, and bands and rest add up to the layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.plots.stacked_series import Layers, spans
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline


class Bands(NamedTuple):
    """Bands from bottom to top."""

    row: I64
    layer: I64
    """Into ``Layers.names``."""
    first: I64
    """Index of the first point of the layers at which it is alive."""
    last: I64
    """Index of the first point at which it is no longer alive; the number of points if it stays."""
    alive: int
    """Allocations that were alive in the range."""


def bands_of(
    analysis: Analysis, device: int, layers: Layers, largest: int, between: tuple[int, int] | None = None
) -> Bands:
    """The allocations that cover most of a chart.

    Args:
        analysis: With its rows.
        device: Number of a device.
        layers: The layers of the same range.
        largest: Maximum number of bands.
        between: The last event before the range and the last event in it; by default all.
    """
    rows = analysis.timeline.rows
    before, end = between or (-1, analysis.timeline.devices[device].events - 1)
    alive = (rows.device == device) & (rows.alloc_event <= end) & ((rows.free_event < 0) | (rows.free_event > before))
    candidates = np.flatnonzero(alive)
    first, last = spans(analysis.timeline, candidates, layers.event)
    area = rows.bytes[candidates] * (last - first)
    filled = np.flatnonzero(area > 0)
    if 0 < largest < len(filled):
        # sorts only those that can be among the largest
        filled = filled[area[filled] >= np.partition(area[filled], -largest)[-largest]]
    index = filled[np.argsort(-area[filled], kind="stable")[:largest]]
    chosen = candidates[index]
    layer = layers.layer[analysis.labels.code[chosen]]
    order = np.lexsort((chosen, rows.alloc_event[chosen], layer))
    return Bands(chosen[order], layer[order], first[index][order], last[index][order], len(candidates))


class Brush(NamedTuple):
    """Rows of a range of events."""

    allocated: I64
    freed: I64
    alive: I64
    """Allocated in it and alive at its end."""
    throughout: I64
    """Alive at its beginning and at its end."""


def brush(timeline: AllocationTimeline, device: int, begin: int, end: int) -> Brush:
    """Rows by what happened after one event (-1: the beginning of the recording), up to and including another."""
    rows = timeline.rows
    on_device = rows.device == device
    allocated = on_device & (rows.alloc_event > begin) & (rows.alloc_event <= end)
    freed = on_device & (rows.free_event > begin) & (rows.free_event <= end)
    alive = (rows.free_event < 0) | (rows.free_event > end)
    before = on_device & (rows.alloc_event <= begin)
    return Brush(*(np.flatnonzero(mask) for mask in (allocated, freed, allocated & alive, before & alive)))
