"""A timeline and a stretch of events go in; what was allocated, freed and alive there comes out, as rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline


class Brush(NamedTuple):
    """Rows of a stretch."""

    allocated: I64
    """Made in it, freed in it or not."""
    freed: I64
    """Freed in it, made in it or before."""
    alive: I64
    """Made in it, and still there at its end."""
    throughout: I64
    """There at its beginning and at its end."""


def brush(timeline: AllocationTimeline, device: int, begin: int, end: int) -> Brush:
    """What happened in a stretch.

    Args:
        timeline: The recording.
        device: Number of the device.
        begin: Last event before the stretch; -1 for the beginning of the recording.
        end: Last event of the stretch.
    """
    rows = timeline.rows
    own = rows.device == device
    made = own & (rows.alloc_event > begin) & (rows.alloc_event <= end)
    gone = own & (rows.free_event > begin) & (rows.free_event <= end)
    stays = (rows.free_event < 0) | (rows.free_event > end)
    before = own & (rows.alloc_event <= begin)
    return Brush(*(np.flatnonzero(which) for which in (made, gone, made & stays, before & stays)))
