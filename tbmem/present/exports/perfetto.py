"""Exports a trace for Perfetto: memory by category over time, steps, annotations."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tbmem.analysis.plots.stacked_series import layers_of, stacking_of
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.columns import I64
from tbmem.model.timeline_tables import RangeKind

_STRETCHES = 25_000
"""Of each at most four moments: more than 100 000 points make the viewer slow."""
_KINDS = {kind: kind.name.lower() for kind in RangeKind}


def perfetto_json(analysis: Analysis) -> str:
    """The trace as JSON text; its unit of time is the microsecond, or the event where there are no times."""
    events = [*_names(analysis), *_counters(analysis), *_ranges(analysis)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def _names(analysis: Analysis) -> list[dict[str, Any]]:
    devices = [(device.number, device.name) for device in analysis.devices]
    return [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": f"{analysis.name} {name}"}}
        for number, name in devices
    ]


def _counters(analysis: Analysis) -> list[dict[str, Any]]:
    found = []
    for device in analysis.devices:
        layers = layers_of(
            analysis, device.number, _STRETCHES, stacking=stacking_of(analysis, device.number, most=None)
        )
        begin = None if layers.ns is None else int(layers.ns[0])
        times = _microseconds(layers.ns, layers.event, begin)
        reserved = analysis.timeline.reserved_curve(device.number)
        rows = layers.bytes.T.tolist()
        for time, values in zip(times, rows, strict=True):
            shares = dict(zip(layers.names, values, strict=True))
            found.append({"ph": "C", "name": "memory", "pid": device.number, "tid": 0, "ts": time, "args": shares})
        times = _microseconds(reserved.ns, reserved.event, begin)
        for time, value in zip(times, reserved.bytes.tolist(), strict=True):
            shares = {"reserved": value}
            found.append({"ph": "C", "name": "reserved", "pid": device.number, "tid": 0, "ts": time, "args": shares})
    return found


def _microseconds(ns: I64 | None, event: I64, begin: int | None) -> list[float]:
    """Times of points; of those without one, ``begin``, which is ``None`` where the recording has no times."""
    if ns is None or begin is None:
        return [float(number) for number in event.tolist()]
    first = min([begin, *ns[ns >= 0].tolist()])
    found: list[float] = (np.where(ns < 0, first, ns) / 1000).tolist()
    return found


def _ranges(analysis: Analysis) -> list[dict[str, Any]]:
    ranges, names = analysis.timeline.ranges, analysis.timeline.range_names
    return [
        {
            "ph": "X",
            "name": names[ranges.name[at]],
            "cat": _KINDS[RangeKind(int(ranges.kind[at]))],
            "pid": max(int(ranges.device[at]), 0),
            "tid": 1,
            "ts": int(ranges.begin_ns[at]) / 1000,
            "dur": (int(ranges.end_ns[at]) - int(ranges.begin_ns[at])) / 1000,
        }
        for at in np.flatnonzero(ranges.end_ns >= 0).tolist()
    ]
