"""Moments of a recording go in; their places on an axis come out: by time, or by event where time would hide them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.layers import Layers

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_IDLE = 0.4
"""One pause this long, of the whole, would squeeze the rest."""
FEW = 2
"""Moments that make no curve."""


class Axis(NamedTuple):
    """One way to lay out the moments."""

    word: str
    """``'by time'``."""
    x: NDArray[np.float64]
    title: str


def time_unit(span: float) -> tuple[float, str]:
    """Nanoseconds of the unit for a stretch of time of ``span`` nanoseconds, and its name."""
    return next((pair for pair in _TIMES if span >= pair[0]), _TIMES[-1])


def axes_of(layers: Layers) -> list[Axis]:
    """All ways, the one that shows most first."""
    by_event = Axis(
        "by event", layers.event.astype(np.float64), "event of the allocator (allocations and frees, in order)"
    )
    if layers.ns is None or layers.ns[-1] == layers.ns[0]:
        return [by_event]
    span = float(layers.ns[-1] - layers.ns[0])
    unit, word = time_unit(span)
    by_time = Axis("by time", (layers.ns - layers.ns[0]) / unit, f"time since the recording began, {word}")
    squeezed = len(layers.ns) <= FEW or float(np.diff(layers.ns).max()) >= _IDLE * span
    return [by_event, by_time] if squeezed else [by_time, by_event]
