"""A timeline of a recording becomes what the simulator takes."""

from __future__ import annotations

import pytest

from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.units import GIB

from .recording import Recorder, busy_recorder

snapshot = pytest.importorskip("tbmem.sources.snapshot.reader")

from tbmem.analysis.allocator.from_recording import what_if  # noqa: E402


def as_snapshot(recorder: Recorder, first: int) -> dict[str, object]:
    """As torch writes it."""
    trace = [
        {"action": kind.name.lower(), "addr": key, "size": size, "stream": stream, "time_us": number, "frames": []}
        for number, (kind, key, size, stream, _) in enumerate(recorder.rows[first:])
    ]
    segments = []
    for one in recorder.segments():
        cursor, blocks = one.address, []
        for block in one.blocks:
            if block.address > cursor:
                blocks.append({"address": cursor, "size": block.address - cursor, "state": "inactive"})
            state = "active_allocated" if block.allocated else "active_pending_free"
            blocks.append(
                {"address": block.address, "size": block.size, "requested_size": block.requested, "state": state}
            )
            cursor = block.address + block.size
        if cursor < one.address + one.size:
            blocks.append({"address": cursor, "size": one.address + one.size - cursor, "state": "inactive"})
        segments.append(
            {
                "device": 0,
                "address": one.address,
                "total_size": one.size,
                "stream": one.stream,
                "segment_type": "small" if one.small else "large",
                "is_expandable": one.expandable,
                "segment_pool_id": (0, 0),
                "blocks": blocks,
            }
        )
    return {"segments": segments, "device_traces": [trace]}


def test_what_if_a_setting_had_been_another() -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(100 * GIB), seed=3)
    timeline = snapshot.timeline_of_snapshot(as_snapshot(recorder, first=len(recorder.rows) // 2))

    same = what_if(timeline, AllocatorSettings())
    other = what_if(timeline, parse_settings("expandable_segments:True"))

    assert same.failure is None
    assert other.failure is None
    assert other.peak_reserved < same.peak_reserved
