"""An analysis goes in; memory over time by category comes out, thinned to what a picture or a viewer can show.

Of every stretch of the recording the highest and the lowest moment are kept, in order of events and in order of time,
so that no peak is lost however many rows there are. At each kept moment the layers add up to the device's bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.breakdown import OTHER
from tbmem.analysis.category_rules import UNKNOWN
from tbmem.analysis.report import Analysis
from tbmem.analysis.thinning import even_stretches, extremes
from tbmem.model.category import Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline, Curve

_FROM_BELOW = (*("PARAMETER", "BUFFER", "OPTIMIZER_STATE", "GRADIENT", "INPUT", "FSDP", "COMMUNICATION", "ACTIVATION"),)
"""What stays lies below what comes and goes; others follow, temporaries and the unknown lie on top. The unknown lies
below all if most of it was there before the recording."""
_ON_TOP = ("AUTOGRAD_DETAIL", "TEMPORARY", OTHER, UNKNOWN)


class Layers(NamedTuple):
    """Memory of one device at some moments, which are in order of events."""

    names: tuple[str, ...]
    """Categories, the lowest layer first."""
    bytes: I64
    """By category and moment."""
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


def layers_of(
    analysis: Analysis,
    device: int,
    stretches: int = 1000,
    most: int | None = 12,
    between: tuple[int, int] | None = None,
    curve: Curve | None = None,
) -> Layers:
    """Memory of a device over time.

    Args:
        analysis: With its rows.
        device: Its number.
        stretches: Into how many the recording is cut; of each at most four moments are kept.
        most: Layers; the smallest are put together. ``None`` keeps all apart.
        between: Last event before the stretch that is wanted, and last event in it; by default all.
        curve: The device's, if it is at hand.
    """
    timeline, number = analysis.timeline, device
    curve = timeline.curve(number) if curve is None else curve
    if between is not None:
        curve = _cut(curve, *between)
    ns = _times(curve.ns)
    kept = _kept(curve.bytes, ns, stretches)
    event = curve.event[kept]
    names, layers = _by_code(timeline, number, analysis.labels.names, analysis.labels.code, event)
    names, layers = _ordered(names, layers, most)
    phase, step = _phases(timeline, number, event)
    return Layers(
        names=names,
        bytes=layers,
        total=curve.bytes[kept],
        reserved=_reserved(timeline, number, event),
        event=event,
        ns=None if ns is None else ns[kept],
        phase=phase,
        step=step,
    )


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


def _kept(total: I64, ns: I64 | None, stretches: int) -> I64:
    """Places of the moments that a picture needs, by events and by time."""
    count = len(total)
    if count <= 2 * stretches:
        return np.arange(count)
    places = [np.array([0, count - 1]), extremes(total, even_stretches(count, stretches))]
    if ns is not None and ns[-1] > ns[0]:
        places.append(extremes(total, ((ns - ns[0]) / (ns[-1] - ns[0] + 1) * stretches).astype(np.int64)))
    return np.unique(np.concatenate(places))


def _by_code(
    timeline: AllocationTimeline, device: int, names: tuple[str, ...], code: NDArray[Any], event: I64
) -> tuple[tuple[str, ...], I64]:
    """Bytes of each code at each event: what came until then, less what went."""
    rows = timeline.rows
    own = rows.device == device
    size = len(names)
    grid = np.zeros((size, len(event) + 1), np.int64)
    for column, sign, which in ((rows.alloc_event, 1, own), (rows.free_event, -1, own & (rows.free_event >= 0))):
        place = np.searchsorted(event, column[which], side="left") + code[which].astype(np.int64) * (len(event) + 1)
        # sums of doubles are exact up to 8 PiB
        summed = np.bincount(place, weights=rows.bytes[which], minlength=grid.size)
        grid += sign * summed.astype(np.int64).reshape(grid.shape)
    layers: I64 = np.cumsum(grid[:, :-1], axis=1)
    layers[names.index(UNKNOWN)] += timeline.devices[device].unlisted_bytes
    filled = np.flatnonzero(layers.any(axis=1))
    return tuple(names[number] for number in filled.tolist()), layers[filled]


def _ordered(names: tuple[str, ...], layers: I64, most: int | None) -> tuple[tuple[str, ...], I64]:
    if most is not None and len(names) > most:
        large = np.sort(np.argsort(-layers.max(axis=1), kind="stable")[: most - 1])
        rest = np.setdiff1d(np.arange(len(names)), large)
        names = (*(names[number] for number in large.tolist()), OTHER)
        layers = np.vstack([layers[large], layers[rest].sum(axis=0)])
    was_there = {
        name for name, row in zip(names, layers, strict=True) if name == UNKNOWN and 2 * row[0] >= row.max(initial=0)
    }
    order = sorted(range(len(names)), key=lambda at: -1 if names[at] in was_there else layer_rank(names[at]))
    return tuple(names[number] for number in order), layers[order]


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
