"""The allocator's state at one moment of a recording, and whether one more request would fit into it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tbmem.analysis.allocator.fit import fit_of
from tbmem.analysis.allocator.what_if import recorded_failures
from tbmem.analysis.recordings.fragmentation import fragmentation_of, pieces_of
from tbmem.analysis.recordings.result import DeviceAnalysis
from tbmem.present.views.empty_states import NO_SEGMENTS
from tbmem.present.views.recording_view import RecordingView, select_range
from tbmem.present.views.segments import block_map


def state_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    at: float | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """Segments and blocks just after the last event up to ``at``, in x; by default at the end of the recording.

    With ``size``, also whether a request of so many bytes would be served then.

    Raises:
        UsageError: There is no such device or axis.
    """
    selected = recording.device(device)
    shown = select_range(recording, selected.number, axis, None, at)
    timeline = recording.analysis.timeline
    reserved = (timeline.segments.device == selected.number).any() or (timeline.reservations.address > 0).any()
    head = {"head": recording.head(selected), "event": shown.last, "x": shown.end}
    if not reserved:
        return {**head, "empty": NO_SEGMENTS}
    state = recording.history(selected.number).at(shown.last)
    pieces = pieces_of(state, selected.number)
    return {
        **head,
        "reserved": pieces.reserved,  # bytes, as the next three
        "active": pieces.active,
        "reserved_peak": max(selected.peak_reserved_bytes or 0, selected.reserved_bytes or 0, pieces.reserved),
        "cached": pieces.cached,
        "fragmentation": asdict(fragmentation_of(state, selected.number)),
        # by address: a segment keeps its place while the cursor moves
        **block_map(recording, state, np.argsort(state.segments.address, kind="stable")),
        "fit": None if size is None else asdict(fit_of(state, selected.number, size, _room(recording, selected))),
        "empty": None,
    }


def _room(recording: RecordingView, device: DeviceAnalysis) -> int | None:
    """Bytes that the process can reserve: what it had when memory ran out, else all of the device."""
    failures = recorded_failures(recording.analysis.timeline, device.number)
    return failures[-1].room if failures else device.total_bytes
