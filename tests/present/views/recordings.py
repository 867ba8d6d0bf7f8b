"""Recordings as the views of the tab get them."""

from __future__ import annotations

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.timeline import AllocationTimeline
from tbmem.present.views.recording_view import RecordingView
from tests.analysis.timelines import recording, training_step


def view_of(timeline: AllocationTimeline) -> RecordingView:
    """The recording ``w`` of the run ``a``."""
    return RecordingView("a", "w.tbmem.npz", "w", analyze(timeline, name="w"))


def two_steps() -> RecordingView:
    """Two steps of training on the CPU (events 0 to 19), and 50 bytes from before."""
    return view_of(recording(*training_step(0, 0), *training_step(1, 10), {"bytes": 50}))
