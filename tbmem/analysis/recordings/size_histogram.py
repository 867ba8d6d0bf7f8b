"""Histograms of the sizes of allocations and of free blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.recordings.result import Analysis
from tbmem.model.columns import I64
from tbmem.model.timeline_tables import BlockState

_SMALLEST = 9
"""512 bytes, by which torch rounds: what is smaller is counted there."""


class Histogram(NamedTuple):
    """Blocks by size; a class is as wide as a power of two."""

    least: I64
    """Smallest size of each class."""
    blocks: I64
    """How many there are of each class."""
    bytes: I64
    """All of the class together."""


class Sizes(NamedTuple):
    """Sizes of what is used and of what is free; all three have the same classes."""

    active: Histogram
    moment: str
    """``'at the end'`` where the file lists the blocks of that moment, else ``'at the peak'``."""
    gaps: Histogram
    """Free blocks between used ones."""
    cached: Histogram
    """Free blocks of segments without a used one."""


def sizes_of(analysis: Analysis, device: int) -> Sizes:
    """Sizes of the blocks on one device."""
    timeline = analysis.timeline
    blocks, segments = timeline.blocks, timeline.segments
    own = segments.device[blocks.segment] == device
    used = blocks.state != BlockState.INACTIVE
    gap = own & ~used & (segments.active_bytes[blocks.segment] > 0)
    active, moment = blocks.bytes[own & used], "at the end"
    if not len(active):
        peak = analysis.devices[device].peak
        active, moment = timeline.rows.bytes[timeline.alive_at(device, peak.event)], "at the peak"
    kinds = (active, blocks.bytes[gap], blocks.bytes[own & ~used & ~gap])
    classes = max([_class_of(sizes).max(initial=0) for sizes in kinds]) + 1
    first = min([_class_of(sizes).min(initial=classes) for sizes in kinds])
    found = [_histogram(sizes, int(first), int(classes)) for sizes in kinds]
    return Sizes(found[0], moment, found[1], found[2])


def _class_of(sizes: I64) -> I64:
    """Exponent of the power of two that is not larger, counted from the smallest class."""
    exponent = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1].astype(np.int64) - 1
    return np.maximum(exponent - _SMALLEST, 0)


def _histogram(sizes: I64, first: int, classes: int) -> Histogram:
    sizes = sizes[sizes > 0]
    place = _class_of(sizes)
    count = np.bincount(place, minlength=classes)[first:]
    summed = np.bincount(place, weights=sizes, minlength=classes)[first:].astype(np.int64)
    return Histogram(1 << (np.arange(first, classes) + _SMALLEST), count.astype(np.int64), summed)
