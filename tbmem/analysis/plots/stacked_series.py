"""Memory over time by category, thinned to what a picture or a viewer can show.

Of every stretch of the recording the highest, the lowest and the last moment are kept, so that no peak is lost however
many rows there are, and nothing holds longer than it did. At each kept moment the layers add up to the device's bytes.
How they are stacked is decided once for a recording, so that no part of it is drawn in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.plots.curves import corners, even_stretches
from tbmem.analysis.recordings.breakdown import OTHER, sums
from tbmem.analysis.recordings.category_rules import UNKNOWN
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline, Curve

_FROM_BELOW = (*("PARAMETER", "BUFFER", "OPTIMIZER_STATE", "GRADIENT", "INPUT", "FSDP", "COMMUNICATION", "ACTIVATION"),)
"""What stays lies below what comes and goes; others follow, temporaries and the unknown lie on top. The unknown lies
below all if most of it was there before the recording."""
_ON_TOP = ("AUTOGRAD_DETAIL", "TEMPORARY", OTHER, UNKNOWN)
_STRETCHES = 1000
MOST_LAYERS = 12


class Stacking(NamedTuple):
    """How the categories of one device are stacked, whichever part of the recording is shown."""

    names: tuple[str, ...]
    """Layers, the lowest first."""
    layer: I64
    """Number of the layer that each code of the analysis' labels is part of."""


class Layers(NamedTuple):
    """Memory of one device at some moments, which are in order of events."""

    names: tuple[str, ...]
    """Categories, the lowest layer first."""
    layer: I64
    """Number of the layer that each code of the analysis' labels is part of; -1 for codes with no bytes here."""
    bytes: I64
    """By category and moment."""
    unlisted: I64
    """By category: bytes that the recording lists no allocation for; they are there all the time."""
    total: I64
    """All categories together."""
    reserved: I64 | None
    """Held by the allocator; ``None`` if the file does not say."""
    event: I64
    """-1 for the beginning."""
    ns: I64 | None
    """Unix time, never falling; ``None`` where the file has no times."""
    phase: I64
    """Phase in which the last allocation before each moment was asked for."""
    step: I64
    """Its step; -1 if not known."""


def stacking_of(
    analysis: Analysis, device: int, most: int | None = MOST_LAYERS, curve: Curve | None = None
) -> Stacking:
    """How a device's categories are stacked; above ``most`` layers (``None``: no limit) the smallest are joined."""
    timeline, names = analysis.timeline, analysis.labels.names
    curve = timeline.curve(device) if curve is None else curve
    event = curve.event[_kept(curve, _times(curve.ns), _STRETCHES)]
    one_each, unlisted = np.arange(len(names)), _unlisted(analysis, device)
    layers = _bytes_by(timeline, device, analysis.labels.code, one_each, event) + unlisted[:, None]
    highest = layers.max(axis=1)
    present = unlisted > 0
    present |= np.bincount(analysis.labels.code[timeline.rows.device == device], minlength=len(names)) > 0
    kept = np.flatnonzero(present)
    if most is not None and len(kept) > most:
        kept = np.sort(kept[np.argsort(-highest[kept], kind="stable")][: most - 1])
    rank = {names[code]: layer_rank(names[code]) for code in kept.tolist()}
    unknown = layers[names.index(UNKNOWN)]
    if UNKNOWN in rank and 2 * unknown[0] >= unknown.max():
        rank[UNKNOWN] = -1
    if len(kept) < np.count_nonzero(present):
        rank[OTHER] = layer_rank(OTHER)
    ordered = tuple(sorted(rank, key=lambda name: rank[name]))
    layer = [ordered.index(name if name in rank else OTHER) if present[code] else 0 for code, name in enumerate(names)]
    return Stacking(ordered, np.array(layer, np.int64))


def layers_of(
    analysis: Analysis,
    device: int,
    stretches: int = _STRETCHES,
    between: tuple[int, int] | None = None,
    curve: Curve | None = None,
    stacking: Stacking | None = None,
    cut: Callable[[I64], I64] | None = None,
) -> Layers:
    """Memory of a device over time.

    Args:
        analysis: With its rows.
        device: Its number.
        stretches: Into how many the recording is cut; of each at most three moments are kept.
        between: Last event before the stretch that is wanted, and last event in it; by default all.
        curve: The device's, if it is at hand.
        stacking: The device's, if it is at hand.
        cut: The stretches that events lie in; by default they are cut evenly, by events and by time.
    """
    timeline, number = analysis.timeline, device
    curve = timeline.curve(number) if curve is None else curve
    stacking = stacking_of(analysis, number, curve=curve) if stacking is None else stacking
    if between is not None:
        curve = _cut(curve, *between)
    ns = _times(curve.ns)
    kept = _kept(curve, ns, stretches, cut)
    event = curve.event[kept]
    unlisted = sums(stacking.layer, _unlisted(analysis, number), len(stacking.names))
    layers = _bytes_by(timeline, number, analysis.labels.code, stacking.layer, event) + unlisted[:, None]
    filled = np.asarray(layers.any(axis=1))
    place = np.where(filled, np.cumsum(filled) - 1, -1)
    phase, step = _phases(timeline, number, event)
    return Layers(
        names=tuple(name for name, has in zip(stacking.names, filled.tolist(), strict=True) if has),
        layer=place[stacking.layer],
        bytes=layers[filled],
        unlisted=unlisted[filled],
        total=curve.bytes[kept],
        reserved=_reserved(timeline, number, event),
        event=event,
        ns=None if ns is None else ns[kept],
        phase=phase,
        step=step,
    )


def spans(timeline: AllocationTimeline, which: I64, event: I64) -> tuple[I64, I64]:
    """The moments at which rows of one device are alive: the first, and the first at which they are no longer.

    The number of moments (``event``, ascending) stands for "until the end".
    """
    alloc, free = timeline.rows.alloc_event[which], timeline.rows.free_event[which]
    first = np.searchsorted(event, alloc, side="left")
    last = np.where(free < 0, len(event), np.searchsorted(event, free, side="left"))
    return first, np.maximum(last, first)


def _cut(curve: Curve, before: int, last: int) -> Curve:
    """The part of a curve that begins with its state after ``before``."""
    first = max(int(np.searchsorted(curve.event, before, side="right")) - 1, 0)
    end = max(int(np.searchsorted(curve.event, last, side="right")), first + 1)
    return Curve(*(column[first:end] for column in curve))


def _times(ns: I64) -> I64 | None:
    """Times that never fall, the beginning being the first of them; ``None`` if some are not known."""
    if len(ns) < 2 or (ns[1:] < 0).any():
        return None
    found: I64 = np.maximum.accumulate(ns)
    found[0] = ns[1]
    return found


def _kept(curve: Curve, ns: I64 | None, stretches: int, cut: Callable[[I64], I64] | None = None) -> I64:
    """Places of the moments that a picture needs."""
    count = len(curve.event)
    if count <= 2 * stretches:
        return np.arange(count)
    if cut is not None:
        return corners(curve.bytes, cut(curve.event))
    kept = corners(curve.bytes, even_stretches(count, stretches))
    if ns is not None and ns[-1] > ns[0]:
        by_time = ((ns - ns[0]) / (ns[-1] - ns[0] + 1) * stretches).astype(np.int64)
        kept = np.union1d(kept, corners(curve.bytes, by_time))
    return kept


def _unlisted(analysis: Analysis, device: int) -> I64:
    """Bytes without a row, by code: nothing is known of them."""
    names = analysis.labels.names
    found = np.zeros(len(names), np.int64)
    found[names.index(UNKNOWN)] = analysis.timeline.devices[device].unlisted_bytes
    return found


def _bytes_by(timeline: AllocationTimeline, device: int, code: NDArray[Any], layer: I64, event: I64) -> I64:
    """Bytes of the rows of each layer at each event: what came until then, less what went."""
    own = np.flatnonzero(timeline.rows.device == device)
    size, layer_of_row = timeline.rows.bytes[own], layer[code[own]]
    grid = np.zeros((int(layer.max(initial=0)) + 1, len(event) + 1), np.int64)
    for sign, moment in zip((1, -1), spans(timeline, own, event), strict=True):
        # sums of doubles are exact up to 8 PiB
        summed = np.bincount(moment + layer_of_row * grid.shape[1], weights=size, minlength=grid.size)
        grid += sign * summed.astype(np.int64).reshape(grid.shape)
    layers: I64 = np.cumsum(grid[:, :-1], axis=1)
    return layers


def layer_rank(name: str) -> int:
    """Where a category lies in the stack: small numbers below."""
    if name in _FROM_BELOW:
        return _FROM_BELOW.index(name)
    return len(_FROM_BELOW) + 1 + (_ON_TOP.index(name) if name in _ON_TOP else -1)


def _reserved(timeline: AllocationTimeline, device: int, event: I64) -> I64 | None:
    curve = timeline.reserved_curve(device)
    if not len(curve.event):
        return None
    found: I64 = curve.bytes[np.maximum(np.searchsorted(curve.event, event, side="right") - 1, 0)]
    return found


def _phases(timeline: AllocationTimeline, device: int, event: I64) -> tuple[I64, I64]:
    rows = timeline.rows
    own = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
    own = own[np.argsort(rows.alloc_event[own], kind="stable")]
    if not len(own):
        return np.full(len(event), int(Phase.OTHER)), np.full(len(event), -1)
    last = np.searchsorted(rows.alloc_event[own], event, side="right") - 1
    row = own[np.maximum(last, 0)]
    return rows.phase[row].astype(np.int64), rows.step[row].astype(np.int64)
