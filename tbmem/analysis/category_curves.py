"""An analysis goes in; the bytes of each category over time come out, one line each, ready to be stacked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.category_rules import UNKNOWN
from tbmem.analysis.report import Analysis
from tbmem.model.columns import I64


class CategoryCurves(NamedTuple):
    """Bytes of each category after each change; the columns add up to the device's curve."""

    names: tuple[str, ...]
    """Categories, that of the largest share of the peak first."""
    event: I64
    """-1 for the beginning."""
    ns: I64
    """Unix time; -1 where it is not known."""
    bytes: I64
    """By category and point."""


def category_curves(analysis: Analysis, device: int, most_points: int = 4000) -> CategoryCurves:
    """Memory of a device over time by category.

    Args:
        analysis: With its rows.
        device: Number of the device.
        most_points: Of more points, so many are kept: of each stretch of equal length its highest.
    """
    timeline = analysis.timeline
    whole = timeline.curve(device)
    kept = _thinned(whole.bytes, most_points)
    rows = timeline.rows
    names = [share.name for share in analysis.devices[device].by_category]
    found = np.zeros((len(names), len(kept)), np.int64)
    for place, name in enumerate(names):
        own = np.flatnonzero((rows.device == device) & (analysis.labels.code == analysis.labels.names.index(name)))
        begin, end = rows.alloc_event[own], rows.free_event[own]
        event = np.concatenate([begin, end[end >= 0]])
        change = np.concatenate([rows.bytes[own], -rows.bytes[own[end >= 0]]])
        order = np.argsort(event, kind="stable")
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(change[order])])
        found[place] = total[np.searchsorted(event[order], whole.event[kept], side="right")]
        if name == UNKNOWN:
            found[place] += timeline.devices[device].unlisted_bytes
    return CategoryCurves(tuple(names), whole.event[kept], whole.ns[kept], found)


def _thinned(values: I64, most: int) -> I64:
    """Places of the points that are kept: the first, the last, and the highest of each stretch."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    cuts = np.linspace(0, count, max(most - 2, 1), endpoint=False).astype(np.int64)
    stretch = np.searchsorted(cuts, np.arange(count), side="right") - 1
    order = np.lexsort((np.arange(count), -values, stretch))
    highest = order[np.searchsorted(stretch[order], np.arange(len(cuts)))]
    return np.unique(np.concatenate([[0], highest, [count - 1]]))
