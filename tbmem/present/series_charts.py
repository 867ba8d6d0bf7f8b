"""Series, findings and windows of a run go in; charts as plotly.js takes them come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tbmem.analysis.series import F64, Series, thinned
from tbmem.model.finding import Finding, FindingKind
from tbmem.present.charts import Chart, axis, layout
from tbmem.present.colours import BLUE, GREEN, INK, MUTED, ORANGE, PINK, RED, SKY, finding_colour
from tbmem.present.console import device_label
from tbmem.present.scale import Unit, unit_for

LINES = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "#332288", "#7A4A12")
"""Colours of ranks."""
SHOWN = (
    ("reserved", "reserved", MUTED, "dash"),
    ("peak", "peak within the steps", RED, "solid"),
    ("allocated", "allocated after the step", BLUE, "solid"),
    ("host", "resident (RSS)", GREEN, "solid"),
    ("workers", "worker processes", PINK, "solid"),
)
"""Columns of a series, what they are called, their colour and line."""
_WINDOW = "rgba(86,180,233,0.18)"
_CAPACITY_FROM = 0.6
"""Of the capacity: from there on its line is in the picture."""


def series_name(series: Series, several_ranks: bool) -> str:
    """``'GPU 0'``, with the rank where there are several."""
    return f"rank {series.rank} · {device_label(series.device)}" if several_ranks else device_label(series.device)


def shown_columns(series: Series) -> list[tuple[str, str, str, str]]:
    """Of ``SHOWN`` what this series has; the host's memory only beside the CPU's own."""
    names = [row for row in SHOWN if series.most(row[0])]
    return [row for row in names if series.device == "cpu" or row[0] not in ("host", "workers")]


def highest_of(series: Series) -> float:
    """The largest value that is drawn; bytes."""
    return float(max([series.most(row[0]) or 0 for row in shown_columns(series)], default=0))


def capacity_of(series: Series) -> float | None:
    """The device's capacity, if the series comes near it."""
    capacity = series.most("capacity")
    return float(capacity) if capacity and highest_of(series) >= _CAPACITY_FROM * capacity else None


def marks_of(series: Series, findings: Sequence[Finding]) -> list[Finding]:
    """Findings about this series; dismissed suspicions are none."""
    return [
        one
        for one in findings
        if (one.rank, one.device) == (series.rank, series.device) and one.kind is not FindingKind.DISMISSED
    ]


def level_at(series: Series, step: int) -> float:
    """The highest bytes at a step or just before it, for a mark; 0 if nothing is known."""
    level = series.level()
    at = min(int(np.searchsorted(series.step, step)), len(level) - 1)
    return float(np.nan_to_num(level[at]))


def series_chart(series: Series, findings: Sequence[Finding], windows: Sequence[dict[str, Any]]) -> Chart:
    """Memory of one device over the steps, with findings as marks and windows as stripes."""
    capacity = capacity_of(series)
    unit = unit_for(capacity or highest_of(series))
    short = thinned(series)
    x = short.step.tolist()
    data: list[Chart] = []
    if short.most("highest") is not None and short.most("lowest") is not None:
        data += _band(x, short.columns["lowest"], short.columns["highest"], unit)
    for column, name, colour, dash in shown_columns(series):
        line = {"color": colour, "width": 1.6, "dash": dash}
        data.append(_trace(name, x, short.columns[column], unit, line=line))
    marks = marks_of(series, findings)
    if marks:
        data.append(_marks(series, marks, unit))
    shapes: list[Chart] = [_window(window) for window in windows]
    if capacity is not None:
        line = {"color": INK, "width": 1, "dash": "dot"}
        label = {"text": "capacity", "textposition": "start", "font": {"size": 11, "color": MUTED}}
        shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": capacity / unit.bytes, "line": line})
        shapes[-1] |= {"y1": capacity / unit.bytes, "label": label}
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    frame = layout(
        420, xaxis=axis("step"), yaxis=axis(unit.name, rangemode="tozero"), legend=legend, hovermode="x unified"
    )
    frame["margin"] |= {"t": 60}
    return {"data": data, "layout": {**frame, "shapes": shapes}}


def _numbers(values: F64, unit: Unit) -> list[float | None]:
    return [None if value != value else round(value, 5) for value in (values / unit.bytes).tolist()]


def _trace(name: str, x: list[int], values: F64, unit: Unit, **more: Any) -> Chart:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": _numbers(values, unit),
        "hovertemplate": f"%{{y:.3~f}} {unit.name}",
        **more,
    }


def _band(x: list[int], low: F64, high: F64, unit: Unit) -> list[Chart]:
    """What was allocated in the steps that one row stands for."""
    nothing = {"line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    bottom = _trace("lowest", x, low, unit, **nothing)
    top = _trace("highest", x, high, unit, **nothing, fill="tonexty", fillcolor="rgba(0,114,178,0.18)")
    return [bottom, top]


def _marks(series: Series, marks: Sequence[Finding], unit: Unit) -> Chart:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "findings",
        "x": [one.last_step for one in marks],
        "y": [round(level_at(series, one.last_step) / unit.bytes, 5) for one in marks],
        "text": [f"{one.kind.label}: {one.message}" for one in marks],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "symbol": "diamond",
            "size": 12,
            "color": [finding_colour(one.kind, one.severity) for one in marks],
            "line": {"color": INK, "width": 1},
        },
    }


def _window(window: dict[str, Any]) -> Chart:
    text = {"text": f"window {window['number']}", "textposition": "middle center", "font": {"size": 10, "color": MUTED}}
    return {
        "type": "rect",
        "x0": window["first_step"] - 0.5,
        "x1": window["last_step"] + 0.5,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "fillcolor": _WINDOW,
        "line": {"width": 0},
        "layer": "below",
        "label": text | {"textangle": -90},
    }


def ranks_chart(found: Sequence[Series]) -> Chart:
    """The level of every series in one chart: which rank is the odd one."""
    unit = unit_for(max(highest_of(series) for series in found))
    data = []
    for number, series in enumerate(found):
        short = thinned(series, 1500)
        line = {"color": LINES[number % len(LINES)], "width": 1.4}
        data.append(_trace(series_name(series, True), short.step.tolist(), short.level(), unit, line=line))
    return {
        "data": data,
        "layout": layout(420, xaxis=axis("step"), yaxis=axis(unit.name, rangemode="tozero"), hovermode="x unified"),
    }
