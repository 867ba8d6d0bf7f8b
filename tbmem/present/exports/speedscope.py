"""Exports a speedscope.app profile of bytes by call stack, at the peak and at the end."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tbmem.analysis.recordings.result import Analysis
from tbmem.model.columns import I64

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_NO_STACK = "(no stack)"
_UNLISTED = "(allocated before the recording)"


def speedscope_json(analysis: Analysis) -> str:
    """The profile as JSON text; the weight of a sample is its bytes."""
    table = analysis.timeline.stacks.frames
    frames: list[dict[str, Any]] = [
        {"name": frame.function, **({"file": frame.file, "line": frame.line} if frame.line else {})} for frame in table
    ]
    frames += [{"name": _NO_STACK}, {"name": _UNLISTED}]
    profiles = []
    for device in analysis.devices:
        moments = (
            ("peak", analysis.timeline.alive_at(device.number, device.peak.event)),
            ("end", analysis.timeline.alive_at_end(device.number)),
        )
        profiles += [_profile(analysis, device.number, f"{device.name} at the {word}", rows) for word, rows in moments]
    data = {"$schema": _SCHEMA, "exporter": "tbmem", "name": analysis.name, "shared": {"frames": frames}}
    return json.dumps({**data, "profiles": profiles})


def _profile(analysis: Analysis, device: int, name: str, alive: I64) -> dict[str, Any]:
    """Bytes by stack, outermost call first."""
    timeline = analysis.timeline
    stacks, index = np.unique(timeline.rows.stack[alive], return_inverse=True)
    size = np.zeros(len(stacks), np.int64)
    np.add.at(size, index.reshape(-1), timeline.rows.bytes[alive])
    table = timeline.stacks
    no_stack = len(table.frames)
    samples = [
        table.frame[table.offset[stack] : table.offset[stack + 1]][::-1].tolist() if stack >= 0 else [no_stack]
        for stack in stacks.tolist()
    ]
    weights = size.tolist()
    if unlisted := timeline.devices[device].unlisted_bytes:
        samples, weights = [*samples, [no_stack + 1]], [*weights, unlisted]
    profile = {"type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": sum(weights)}
    return {**profile, "samples": samples, "weights": weights}
