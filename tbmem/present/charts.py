"""Layers, shares and sizes go in; charts as plotly.js takes them come out, of plain JSON values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.layers import Layers
from tbmem.analysis.report import DeviceAnalysis, ModuleShare
from tbmem.analysis.sizes import Sizes
from tbmem.model.category import Phase
from tbmem.present.colours import (
    ALLOCATED,
    IN_GAPS,
    IN_SEGMENTS,
    INK,
    LIGHT,
    MUTED,
    PHASES,
    category_colour,
    category_word,
)
from tbmem.present.labels import size_label
from tbmem.present.moments import axes_of
from tbmem.present.scale import Unit, unit_for
from tbmem.present.share_pictures import Part
from tbmem.present.stretches import stretches
from tbmem.units import format_bytes

Chart = dict[str, Any]
_STRIP = 0.05
"""Height of the phases under a timeline, of the whole."""
_HEADROOM = 1.16
_LEAST_WIDTH = 0.002
_LABEL_WIDTH = 0.07
_MOST_STEPS = 40
_MODULES = 400


def layout(height: int, **more: Any) -> Chart:
    """What all charts have in common.

    Args:
        height: In pixels.
        **more: What one has besides.
    """
    common = {
        "height": height,
        "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
        "font": {"family": "system-ui, DejaVu Sans, Arial, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "hoverlabel": {"bgcolor": "#fff", "font": {"color": INK}},
    }
    return {**common, **more}


def axis(title: str = "", **more: Any) -> Chart:
    """An axis with faint lines."""
    return {"title": {"text": title}, "gridcolor": "#E9ECEF", "zeroline": False, "linecolor": LIGHT, **more}


def rounded(values: NDArray[Any]) -> list[float]:
    """Numbers short enough for a page: five digits after the point."""
    found: list[float] = np.round(values.astype(np.float64), 5).tolist()
    return found


def timeline_chart(device: DeviceAnalysis, layers: Layers) -> Chart:
    """Memory over time, stacked by category; buttons choose between time and events."""
    highest = float(max(layers.total.max(), layers.reserved.max() if layers.reserved is not None else 0))
    unit = unit_for(highest)
    axes = axes_of(layers)
    _, x, _ = axes[0]
    data = [_layer(name, row, unit) for name, row in zip(layers.names, layers.bytes, strict=True)]
    if layers.reserved is not None:
        data.append(_line("reserved", layers.reserved, unit, INK, dash="dash"))
    data.append(_line("all together", layers.total, unit, INK, width=0))
    for trace in data:
        trace["x"] = rounded(x)
    frame = layout(
        520,
        hovermode="x unified",
        legend={"traceorder": "reversed", "x": 1.01, "y": 1},
        yaxis=axis(
            unit.name, range=[0, _HEADROOM * highest / unit.bytes or 1], domain=[_STRIP + 0.03, 1], fixedrange=True
        ),
        xaxis=axis(axes[0][2], anchor="free", position=0, showgrid=False),
        **_marks(device, layers, x, unit),
    )
    if len(axes) > 1:
        frame["margin"]["t"] = 44
        buttons = [
            {
                "label": word,
                "method": "update",
                "args": [{"x": [rounded(values)] * len(data)}, _relayout(device, layers, values, unit, title)],
            }
            for word, values, title in axes
        ]
        frame["updatemenus"] = [
            {"type": "buttons", "direction": "right", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
            | {"buttons": buttons, "pad": {"b": 6}, "font": {"size": 12}}
        ]
    return {"data": data, "layout": frame}


def _relayout(device: DeviceAnalysis, layers: Layers, x: NDArray[np.float64], unit: Unit, title: str) -> Chart:
    return {"xaxis.title.text": title, "xaxis.autorange": True, **_marks(device, layers, x, unit)}


def _layer(name: str, row: NDArray[Any], unit: Unit) -> Chart:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": category_word(name),
        "y": rounded(row / unit.bytes),
        "stackgroup": "one",
        "line": {"width": 0, "shape": "hv", "color": category_colour(name)},
        "fillcolor": category_colour(name),
        "hovertemplate": f"%{{y:.3~f}} {unit.name}",
    }


def _line(name: str, row: NDArray[Any], unit: Unit, colour: str, width: float = 1.3, dash: str = "solid") -> Chart:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "y": rounded(row / unit.bytes),
        "line": {"width": width, "shape": "hv", "color": colour, "dash": dash},
        "showlegend": width > 0,
        "hovertemplate": f"%{{y:.3~f}} {unit.name}",
    }


def _marks(device: DeviceAnalysis, layers: Layers, x: NDArray[np.float64], unit: Unit) -> Chart:
    """Phases, steps and the peak, for one way to lay out the moments."""
    span = float(x[-1] - x[0]) or 1.0
    shapes: list[Chart] = []
    for one in stretches(layers.phase, x, least=_LEAST_WIDTH * span):
        name = Phase(one.value).name
        shape: Chart = {"type": "rect", "x0": one.begin, "x1": one.end, "yref": "paper", "y0": 0.005, "y1": _STRIP}
        shape |= {"fillcolor": PHASES[name], "line": {"width": 0}}
        if one.end - one.begin > _LABEL_WIDTH * span:
            shape["label"] = {"text": name.lower(), "font": {"size": 11, "color": INK}}
        shapes.append(shape)
    steps = [one for one in stretches(layers.step, x) if one.value >= 0]
    for one in steps if len(steps) <= _MOST_STEPS else ():
        line: Chart = {"type": "line", "x0": one.begin, "x1": one.begin, "yref": "paper", "y0": _STRIP, "y1": 1}
        line |= {"line": {"color": MUTED, "width": 0.8, "dash": "dot"}}
        if one.end - one.begin > _LABEL_WIDTH * span:
            text = {"text": f"step {one.value}", "textposition": "end", "textangle": 0, "xanchor": "left"}
            line["label"] = text | {"yanchor": "top", "font": {"size": 11, "color": MUTED}}
        shapes.append(line)
    at = int(np.argmax(layers.total))
    peak = {
        "x": float(x[at]),
        "y": float(layers.total[at] / unit.bytes),
        "text": f"peak {format_bytes(device.peak.bytes)}",
        "showarrow": True,
        "arrowhead": 2,
        "ax": 0,
        "ay": -28,
        "bgcolor": "rgba(255,255,255,0.85)",
    }
    return {"shapes": shapes, "annotations": [peak]}


def parts_chart(rows: Mapping[str, Sequence[Part]]) -> Chart:
    """Bars that are made of parts, one under the other.

    Args:
        rows: Parts by the name of the bar.
    """
    totals = [sum(part.bytes for part in parts) for parts in rows.values()]
    unit = unit_for(max(totals, default=0))
    names = list(dict.fromkeys((part.name, part.colour) for parts in rows.values() for part in parts))
    data = []
    for name, colour in names:
        sizes = [sum(part.bytes for part in parts if part.name == name) for parts in rows.values()]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": list(rows),
                "x": [round(size / unit.bytes, 5) for size in sizes],
                "text": [
                    format_bytes(size) if total and size > 0.07 * max(totals) else ""
                    for size, total in zip(sizes, totals, strict=True)
                ],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "hovertemplate": f"{name}: %{{x:.3~f}} {unit.name}<extra></extra>",
                "marker": {"color": colour, "line": {"color": "#fff", "width": 1}},
            }
        )
    frame = layout(
        130 + 34 * len(rows),
        barmode="stack",
        showlegend=True,
        bargap=0.25,
        xaxis=axis(unit.name),
        yaxis=axis(automargin=True, autorange="reversed", ticksuffix="  "),
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )
    frame["margin"] |= {"t": 60}
    return {"data": data, "layout": frame}


def sizes_chart(sizes: Sizes) -> Chart:
    """Histogram of used and of free blocks, in bytes; the number of blocks stands in the label."""
    unit = unit_for(max(int(one.bytes.max(initial=0)) for one in (sizes.active, sizes.gaps, sizes.cached)))
    labels = [size_label(int(least)) for least in sizes.active.least]
    kinds = (
        (f"active {sizes.moment}", sizes.active, ALLOCATED),
        ("free in gaps", sizes.gaps, IN_GAPS),
        ("free in whole segments", sizes.cached, IN_SEGMENTS),
    )
    data = [
        {
            "type": "bar",
            "name": name,
            "x": labels,
            "y": rounded(one.bytes / unit.bytes),
            "customdata": one.blocks.tolist(),
            "marker": {"color": colour},
            "hovertemplate": f"from %{{x}}: %{{y:.3~f}} {unit.name} in %{{customdata}} blocks",
        }
        for name, one, colour in kinds
        if one.blocks.any()
    ]
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    frame = layout(360, xaxis=axis("size of the block, from", type="category"), yaxis=axis(unit.name), legend=legend)
    frame["margin"] |= {"t": 44, "b": 80}
    return {"data": data, "layout": frame}


def modules_chart(root: ModuleShare) -> Chart | None:
    """Modules inside modules at the peak; ``None`` if no module is known."""
    if not any(child.path and not child.name.startswith("(") for child in root.children):
        return None
    shown = [one for one in root.walk() if one.bytes > 0]
    large = set(sorted((one.bytes for one in shown), reverse=True)[:_MODULES])
    shown = [one for one in shown if one.bytes in large]
    parents = {child.path: one.path for one in root.walk() for child in one.children}
    kept = {one.path for one in shown}
    shown = [one for one in shown if one is root or parents[one.path] in kept]
    trace = {
        "type": "icicle",
        "ids": [one.path or "/" for one in shown],
        "labels": [one.name or "all" for one in shown],
        "parents": ["" if one is root else parents[one.path] or "/" for one in shown],
        "values": [one.bytes for one in shown],
        "branchvalues": "total",
        "text": [format_bytes(one.bytes) for one in shown],
        "texttemplate": "%{label}<br>%{text}",
        "hovertemplate": "%{id}<br>%{text} · %{percentRoot:.1%} of the peak<extra></extra>",
        "tiling": {"orientation": "v"},
        "maxdepth": 5,
        "marker": {"colorscale": [[0, "#E8F1F8"], [1, "#6FA8D3"]], "line": {"color": "#fff", "width": 1}},
    }
    frame = layout(440)
    frame["margin"] = {"l": 10, "r": 10, "t": 30, "b": 10}
    return {"data": [trace], "layout": frame}
