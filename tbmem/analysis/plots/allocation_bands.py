"""Allocations of a range of events: what began and ended there, and the largest as bands of a memory chart.

Bands lie within the layer of their category (``layers_of``), in the order of their allocation; what has no band of its
own lies on top of them in the same layer. The place of a band in the stack is therefore a matter of the recording, not
of the part that is shown, and at every moment bands and rest add up to the layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.plots.stacked_series import Layers, spans
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline


class Bands(NamedTuple):
    """Bands in the order of the stack, the lowest first."""

    row: I64
    layer: I64
    """Into ``Layers.names``."""
    first: I64
    """Number of the first moment of the layers at which it is alive."""
    last: I64
    """Number of the first moment at which it is no longer; of one that stays, how many moments there are."""
    found: int
    """Allocations that were alive in the range."""
    bytes: int
    """All of them together."""


def bands_of(
    analysis: Analysis, device: int, layers: Layers, largest: int, between: tuple[int, int] | None = None
) -> Bands:
    """The allocations that cover most of a chart; fewer than ``largest`` where not as many are alive in the layers.

    ``between`` is the last event before the range and the last event in it; by default all.
    """
    rows = analysis.timeline.rows
    before, end = between or (-1, analysis.timeline.devices[device].events - 1)
    alive = (rows.device == device) & (rows.alloc_event <= end) & ((rows.free_event < 0) | (rows.free_event > before))
    found = np.flatnonzero(alive)
    first, last = spans(analysis.timeline, found, layers.event)
    size = rows.bytes[found]
    at = _largest(size * (last - first), largest)
    chosen = found[at]
    layer = layers.layer[analysis.labels.code[chosen]]
    order = np.lexsort((chosen, rows.alloc_event[chosen], layer))
    return Bands(chosen[order], layer[order], first[at][order], last[at][order], len(found), int(size.sum()))


def _largest(area: I64, count: int) -> I64:
    """Places of the largest areas, without those of nothing; of equal ones the first."""
    found = np.flatnonzero(area > 0)
    if 0 < count < len(found):
        least = np.partition(area[found], len(found) - count)[len(found) - count]
        found = found[area[found] >= least]
    kept: I64 = found[np.argsort(-area[found], kind="stable")[:count]]
    return kept


class Brush(NamedTuple):
    """Rows of a range of events."""

    allocated: I64
    """Made in it, freed in it or not."""
    freed: I64
    """Freed in it, made in it or before."""
    alive: I64
    """Made in it, and still there at its end."""
    throughout: I64
    """There at its beginning and at its end."""


def brush(timeline: AllocationTimeline, device: int, begin: int, end: int) -> Brush:
    """What happened after one event (-1: the beginning of the recording), up to and with another."""
    rows = timeline.rows
    own = rows.device == device
    made = own & (rows.alloc_event > begin) & (rows.alloc_event <= end)
    gone = own & (rows.free_event > begin) & (rows.free_event <= end)
    stays = (rows.free_event < 0) | (rows.free_event > end)
    before = own & (rows.alloc_event <= begin)
    return Brush(*(np.flatnonzero(which) for which in (made, gone, made & stays, before & stays)))
