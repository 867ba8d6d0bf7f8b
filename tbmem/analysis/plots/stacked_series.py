"""Memory over time by category, as layers of a stacked chart, downsampled for a screen, and its largest allocations.

Of each interval the highest, the lowest and the last point are kept, so that no peak is lost. At each point the layers
add up to the device's bytes. The order of the layers is that of the recording, whichever part is shown.

The largest allocations of a range of events are bands within the layer of their category, in the order of their
allocation; the remaining ones are drawn above them. Bands and rest add up to the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.plots.curves import corners, even_intervals
from tbmem.analysis.recordings.breakdown import OTHER, sums
from tbmem.analysis.recordings.category_rules import UNKNOWN
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline, Curve

_FROM_BELOW = ("PARAMETER", "BUFFER", "OPTIMIZER_STATE", "GRADIENT", "INPUT", "FSDP", "COMMUNICATION", "ACTIVATION")
"""Long-lived memory lies below short-lived memory, unknown memory on top, or below all if most of it is older than the
recording."""
_ON_TOP = ("AUTOGRAD_DETAIL", "TEMPORARY", OTHER, UNKNOWN)
_INTERVALS = 1000
_MAX_LAYERS = 12


class Stacking(NamedTuple):
    """Order of the categories of one device, whichever part of the recording is shown."""

    names: tuple[str, ...]
    """Layers from bottom to top."""
    layer: I64
    """Number of the layer that each code of the analysis' labels is part of."""


class Layers(NamedTuple):
    """Memory of one device at some points, in order of events."""

    names: tuple[str, ...]
    layer: I64
    """Number of the layer that each code of the analysis' labels is part of; -1 for codes with no bytes here."""
    bytes: I64
    """By category and point."""
    unlisted: I64
    """By category: bytes that the recording lists no allocation for, alive all the time."""
    total: I64
    reserved: I64 | None
    """Reserved by the allocator; ``None`` if not known."""
    event: I64
    ns: I64 | None
    """Unix time, never falling; ``None`` if the file has no times."""
    phase: I64
    """Phase of the last allocation before each point."""
    step: I64


def stacking_of(
    analysis: Analysis, device: int, most: int | None = _MAX_LAYERS, curve: Curve | None = None
) -> Stacking:
    """Order of a device's categories; above ``most`` layers (``None``: no limit) the smallest are merged."""
    timeline, names = analysis.timeline, analysis.labels.names
    curve = timeline.curve(device) if curve is None else curve
    event = curve.event[_points(curve, _times(curve.ns), _INTERVALS)]
    unlisted = _unlisted(analysis, device)
    layers = _bytes_by(timeline, device, analysis.labels.code, np.arange(len(names)), event) + unlisted[:, None]
    highest = layers.max(axis=1)
    present = unlisted > 0
    present |= np.bincount(analysis.labels.code[timeline.rows.device == device], minlength=len(names)) > 0
    present[names.index(UNKNOWN)] |= not present.any()  # a device on which nothing was allocated has one empty layer
    shown = np.flatnonzero(present)
    if most is not None and len(shown) > most:
        shown = np.sort(shown[np.argsort(-highest[shown], kind="stable")][: most - 1])
    rank = {names[code]: layer_rank(names[code]) for code in shown.tolist()}
    unknown = layers[names.index(UNKNOWN)]
    if UNKNOWN in rank and 2 * unknown[0] >= unknown.max():
        rank[UNKNOWN] = -1
    if len(shown) < np.count_nonzero(present):
        rank[OTHER] = layer_rank(OTHER)
    ordered = tuple(sorted(rank, key=lambda name: rank[name]))
    layer = [ordered.index(name if name in rank else OTHER) if present[code] else 0 for code, name in enumerate(names)]
    return Stacking(ordered, np.array(layer, np.int64))


def layers_of(
    analysis: Analysis,
    device: int,
    intervals: int = _INTERVALS,
    between: tuple[int, int] | None = None,
    curve: Curve | None = None,
    stacking: Stacking | None = None,
    cut: Callable[[I64], I64] | None = None,
) -> Layers:
    """Memory of a device over time.

    Args:
        analysis: With its rows.
        device: Its number.
        intervals: Number of intervals; of each at most three points are kept.
        between: Last event before the range, and last event in it; by default all.
        curve: The device's, if already computed, as ``stacking``.
        stacking: Order of the layers.
        cut: Returns the intervals that events lie in; by default they are of equal length, by events and by time.
    """
    timeline = analysis.timeline
    curve = timeline.curve(device) if curve is None else curve
    stacking = stacking_of(analysis, device, curve=curve) if stacking is None else stacking
    if between is not None:
        # from the state after the event before the range on
        begin, end = np.searchsorted(curve.event, between, side="right").tolist()
        begin = max(begin - 1, 0)
        curve = Curve(*(column[begin : max(end, begin + 1)] for column in curve))
    ns = _times(curve.ns)
    points = _points(curve, ns, intervals, cut)
    event = curve.event[points]
    unlisted = sums(stacking.layer, _unlisted(analysis, device), len(stacking.names))
    layers = _bytes_by(timeline, device, analysis.labels.code, stacking.layer, event) + unlisted[:, None]
    filled = np.asarray(layers.any(axis=1))
    reserved = timeline.reserved_curve(device)
    at = np.maximum(np.searchsorted(reserved.event, event, side="right") - 1, 0)
    phase, step = _phases(timeline, device, event)
    return Layers(
        names=tuple(stacking.names[layer] for layer in np.flatnonzero(filled).tolist()),
        layer=np.where(filled, np.cumsum(filled) - 1, -1)[stacking.layer],
        bytes=layers[filled],
        unlisted=unlisted[filled],
        total=curve.bytes[points],
        reserved=reserved.bytes[at] if len(reserved.event) else None,
        event=event,
        ns=None if ns is None else ns[points],
        phase=phase,
        step=step,
    )


def spans(timeline: AllocationTimeline, indices: I64, event: I64) -> tuple[I64, I64]:
    """Index of the first point at which rows of one device are alive, and of the first at which they no longer are.

    ``event`` are the points, ascending; their number stands for the end.
    """
    alloc, free = timeline.rows.alloc_event[indices], timeline.rows.free_event[indices]
    first = np.searchsorted(event, alloc, side="left")
    last = np.where(free < 0, len(event), np.searchsorted(event, free, side="left"))
    return first, np.maximum(last, first)


def _times(ns: I64) -> I64 | None:
    """Times made ascending, the beginning at the first event; ``None`` if some are not known."""
    if len(ns) < 2 or (ns[1:] < 0).any():
        return None
    times = np.maximum.accumulate(ns)
    times[0] = ns[1]
    return np.asarray(times)


def _points(curve: Curve, ns: I64 | None, intervals: int, cut: Callable[[I64], I64] | None = None) -> I64:
    count = len(curve.event)
    if count <= 2 * intervals:
        return np.arange(count)
    if cut is not None:
        return corners(curve.bytes, cut(curve.event))
    points = corners(curve.bytes, even_intervals(count, intervals))
    if ns is not None and ns[-1] > ns[0]:
        by_time = ((ns - ns[0]) / (ns[-1] - ns[0] + 1) * intervals).astype(np.int64)
        points = np.union1d(points, corners(curve.bytes, by_time))
    return points


def _unlisted(analysis: Analysis, device: int) -> I64:
    """Bytes without a row, by code; their category is not known."""
    names = analysis.labels.names
    unlisted = np.zeros(len(names), np.int64)
    unlisted[names.index(UNKNOWN)] = analysis.timeline.devices[device].unlisted_bytes
    return unlisted


def _bytes_by(timeline: AllocationTimeline, device: int, code: NDArray[Any], layer: I64, event: I64) -> I64:
    """Bytes of the rows of each layer at each event, as allocated less freed bytes until then."""
    indices = np.flatnonzero(timeline.rows.device == device)
    size, layer_of_row = timeline.rows.bytes[indices], layer[code[indices]]
    grid = np.zeros((int(layer.max(initial=0)) + 1, len(event) + 1), np.int64)
    for sign, point in zip((1, -1), spans(timeline, indices, event), strict=True):
        # sums of doubles are exact up to 8 PiB
        summed = np.bincount(point + layer_of_row * grid.shape[1], weights=size, minlength=grid.size)
        grid += sign * summed.astype(np.int64).reshape(grid.shape)
    return np.cumsum(grid[:, :-1], axis=1)


def layer_rank(name: str) -> int:
    """Position of a category in the stack, from below."""
    if name in _FROM_BELOW:
        return _FROM_BELOW.index(name)
    return len(_FROM_BELOW) + 1 + (_ON_TOP.index(name) if name in _ON_TOP else -1)


def _phases(timeline: AllocationTimeline, device: int, event: I64) -> tuple[I64, I64]:
    rows = timeline.rows
    allocated = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
    allocated = allocated[np.argsort(rows.alloc_event[allocated], kind="stable")]
    last = np.maximum(np.searchsorted(rows.alloc_event[allocated], event, side="right") - 1, 0)
    phase, step = np.append(rows.phase[allocated], Phase.OTHER), np.append(rows.step[allocated], -1)
    return phase[last].astype(np.int64), step[last].astype(np.int64)


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
        device: Its number.
        layers: Those of the same range.
        largest: Maximum number of bands.
        between: As for ``layers_of``.
    """
    rows = analysis.timeline.rows
    before, end = between or (-1, analysis.timeline.devices[device].events - 1)
    alive = (rows.device == device) & (rows.alloc_event <= end) & ((rows.free_event < 0) | (rows.free_event > before))
    candidates = np.flatnonzero(alive)
    first, last = spans(analysis.timeline, candidates, layers.event)
    index = largest_bands(rows.bytes[candidates] * (last - first), largest)
    chosen = candidates[index]
    layer = layers.layer[analysis.labels.code[chosen]]
    order = np.lexsort((chosen, rows.alloc_event[chosen], layer))
    return Bands(chosen[order], layer[order], first[index][order], last[index][order], len(candidates))


def largest_bands(area: I64, most: int) -> I64:
    """Indices of the largest areas above 0, the largest first."""
    filled = np.flatnonzero(area > 0)
    if 0 < most < len(filled):
        # sorts only those that can be among the largest
        filled = filled[area[filled] >= np.partition(area[filled], -most)[-most]]
    return filled[np.argsort(-area[filled], kind="stable")[:most]]


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
