"""The allocations that cover the largest part of a memory chart, each a band over its lifetime.

Bands lie within the layer of their category (``layers_of``), in the order of their allocation; what has no band of its
own lies on top of them in the same layer. The place of a band in the stack is therefore a matter of the recording, not
of the part that is shown, and at every moment bands and rest add up to the layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.layers import Layers, spans
from tbmem.analysis.report import Analysis
from tbmem.model.columns import I64


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
    """The allocations that cover most of a chart.

    Args:
        analysis: With its rows.
        device: Number of the device.
        layers: Of this device and range.
        largest: How many; fewer where not as many are alive at a moment of the layers.
        between: Last event before the range, and last event in it; by default all.
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
