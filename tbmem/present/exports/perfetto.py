"""Exports a trace for Perfetto: memory by category over time, steps, annotations."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tbmem.analysis.plots.stacked_series import layers_of, stacking_of
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.columns import I64
from tbmem.model.timeline_tables import RangeKind

_INTERVALS = 25_000
"""Each contributes at most four points: more than 100 000 points make the viewer slow."""


def perfetto_json(analysis: Analysis) -> str:
    """The trace as JSON text; times are in microseconds, or event numbers if the recording has no times."""
    events = [*_names(analysis), *_counters(analysis), *_ranges(analysis)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def _names(analysis: Analysis) -> list[dict[str, Any]]:
    names = {device.number: f"{analysis.name} {device.name}" for device in analysis.devices}
    return [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
        for number, name in names.items()
    ]


def _counters(analysis: Analysis) -> list[dict[str, Any]]:
    events = []
    for number in [device.number for device in analysis.devices]:
        layers = layers_of(analysis, number, _INTERVALS, stacking=stacking_of(analysis, number, most=None))
        reserved = analysis.timeline.reserved_curve(number)
        begin = None if layers.ns is None else int(layers.ns[0])
        counters = (
            ("memory", layers, layers.names, layers.bytes.T.tolist()),
            ("reserved", reserved, ("reserved",), [[value] for value in reserved.bytes.tolist()]),
        )
        for name, curve, parts, rows in counters:
            times = _microseconds(curve.ns, curve.event, begin)
            for time, values in zip(times, rows, strict=True):
                args = dict(zip(parts, values, strict=True))
                events.append({"ph": "C", "name": name, "pid": number, "tid": 0, "ts": time, "args": args})
    return events


def _microseconds(ns: I64 | None, event: I64, begin: int | None) -> list[float]:
    """Times of points; a point without one gets ``begin``, which is ``None`` if the recording has no times."""
    if ns is None or begin is None:
        return [float(number) for number in event.tolist()]
    first = min([begin, *ns[ns >= 0].tolist()])
    return list(map(float, (np.where(ns < 0, first, ns) / 1000).tolist()))


def _ranges(analysis: Analysis) -> list[dict[str, Any]]:
    ranges, names = analysis.timeline.ranges, analysis.timeline.range_names
    return [
        {
            "ph": "X",
            "name": names[ranges.name[position]],
            "cat": RangeKind(int(ranges.kind[position])).name.lower(),
            "pid": max(int(ranges.device[position]), 0),
            "tid": 1,
            "ts": int(ranges.begin_ns[position]) / 1000,
            "dur": (int(ranges.end_ns[position]) - int(ranges.begin_ns[position])) / 1000,
        }
        for position in np.flatnonzero(ranges.end_ns >= 0).tolist()
    ]
