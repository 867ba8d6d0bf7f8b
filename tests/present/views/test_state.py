"""The allocator's state at a moment."""

from __future__ import annotations

import numpy as np

from tbmem.present.views.segments import segments_view
from tbmem.present.views.state import state_view
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.units import MIB
from tests.offline.snapshots import snapshot
from tests.present.views.recordings import two_steps, view_of

RECORDING = view_of(timeline_of_snapshot(snapshot([1000, 5000], freed=[700])))


def test_the_end_is_what_the_segments_view_shows() -> None:
    answer, end = state_view(RECORDING), segments_view(RECORDING)

    for key in ("segments", "blocks", "names", "segments_count", "blocks_count", "reserved", "fragmentation"):
        assert answer[key] == end[key], key
    assert answer["active"] == end["allocated"]


def test_blocks_change_with_the_moment() -> None:
    used = [state_view(RECORDING, axis="event", at=float(event))["active"] for event in range(-1, 4)]

    curve = RECORDING.curve(0)
    for event, active in zip(range(-1, 4), used, strict=True):
        requested = int(curve.bytes[max(int(np.searchsorted(curve.event, event, side="right")) - 1, 0)])
        # blocks are rounded up to 512 bytes
        assert requested <= active <= requested + 3 * 512
    assert len(set(used)) > 1


def test_a_request_is_tried_if_a_size_is_given() -> None:
    answer = state_view(RECORDING, size=5 * MIB)

    assert state_view(RECORDING)["fit"] is None
    assert answer["fit"]["block"] == 5 * MIB
    assert answer["fit"]["fits"]


def test_a_recording_of_the_cpu_has_none() -> None:
    assert state_view(two_steps())["empty"]["title"].startswith("This recording does not say how")
