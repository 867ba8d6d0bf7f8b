"""Reserved memory over time: each segment a band over its lifetime, by memory pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbmem.analysis.allocator.reserved import UNTIL_THE_END, Reserved
from tbmem.analysis.plots.stacked_segments import SegmentLayers, segment_layers
from tbmem.errors import UsageError
from tbmem.present.palette import pool_colour
from tbmem.present.views.empty_states import NO_SEGMENTS
from tbmem.present.views.peak import frames_of
from tbmem.present.views.recording_view import EventRange, RecordingView, rounded, select_range
from tbmem.present.views.segments import pool_name
from tbmem.present.views.timeline import LARGEST, MOST_BANDS, POINTS


def reserved_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    points: int = POINTS,
    largest: int = LARGEST,
) -> dict[str, Any]:
    """Segments over time; at each x the pools add up to ``total``. Arguments are those of ``timeline_view``.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    selected = recording.device(device)
    shown = select_range(recording, selected.number, axis, begin, end)
    reserved, columns = recording.history(selected.number).reserved, max(points // 2, 2)
    layers = segment_layers(
        reserved,
        (shown.before, shown.last),
        columns,
        min(largest, MOST_BANDS),
        lambda event: shown.columns(event, columns),
    )
    pools = recording.analysis.timeline.pools
    names = [pool_name(pools, pool) for pool in layers.pools]
    return {
        "head": recording.head(selected),
        "axis": shown.axis_info(),
        "x": shown.x(layers.event),
        "names": names,  # the lowest layer first
        "words": ["default pool" if name == "default" else f"private pool {name}" for name in names],
        "colours": [pool_colour(number) for number in range(len(names))],
        "bytes": layers.bytes.tolist(),
        "total": layers.bytes.sum(axis=0).tolist(),
        "segments": _segments(reserved, layers, shown),
        "empty": None if layers.present else NO_SEGMENTS,
    }


def segment_view(recording: RecordingView, device: str | None, segment: int) -> dict[str, Any]:
    """A segment's stack: that of the allocation that it was reserved for.

    Raises:
        UsageError: There is no such device or segment.
    """
    selected = recording.device(device)
    stack = recording.history(selected.number).reserved.stack
    if not 0 <= segment < len(stack):
        raise UsageError(f"segment={segment}: {recording.file} has segments 0 to {len(stack) - 1}")
    frames = recording.analysis.timeline.stacks.of(int(stack[segment]))
    return {"head": recording.head(selected), "frames": frames_of(frames)}


def _segments(reserved: Reserved, layers: SegmentLayers, shown: EventRange) -> dict[str, Any]:
    """The bands: ``layer`` is an index into ``names``, ``first`` and ``last`` into ``x``."""
    one = Reserved(*(column[layers.segment] for column in reserved))
    freed = np.minimum(one.last, shown.clock.events - 1)
    return {
        "bands": {
            "row": layers.segment.tolist(),
            "bytes": (one.end - one.begin).tolist(),
            "layer": layers.layer.tolist(),
            "first": layers.first.tolist(),
            "last": layers.last.tolist(),
            "x0": rounded(shown.clock.x(one.first, shown.axis)),
            "x1": rounded(shown.clock.x(freed, shown.axis)),
            "before": (one.first < 0).tolist(),
            "alive": (one.last == UNTIL_THE_END).tolist(),  # at the end of the recording
            "address": [f"0x{address:x}" for address in one.begin.tolist()],
            "stream": one.stream.tolist(),
            "expandable": (one.expandable > 0).tolist(),
        },
        "shown": len(layers.segment),
        "count": layers.present,
    }
