"""Parts of memory go in; charts as plotly.js takes them come out, of plain JSON values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.present.colours import INK, LIGHT
from tbmem.present.scale import unit_for
from tbmem.present.share_pictures import Part
from tbmem.units import format_bytes

Chart = dict[str, Any]


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
