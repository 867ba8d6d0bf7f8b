"""Analyses of several ranks or iterations go in; one page comes out that shows them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tbmem.analysis.comparison import Change, Comparison, OddOne
from tbmem.analysis.layers import Layers
from tbmem.analysis.report import Analysis
from tbmem.present.charts import Chart, axis, layout, parts_chart, rounded
from tbmem.present.colours import GREY, LIGHT, RED, category_colour, category_word
from tbmem.present.console import device_label
from tbmem.present.html import Page, escape, finding
from tbmem.present.moments import time_unit
from tbmem.present.scale import unit_for
from tbmem.present.share_pictures import Part
from tbmem.units import format_bytes, format_signed

_LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#7A4A12")
_CATEGORIES = 12
_CHANGES = 10


class Side(NamedTuple):
    """One of the recordings."""

    analysis: Analysis
    """Its rows are not needed."""
    layers: Layers
    """Of its main device."""
    link: str
    """Page of its own, relative to this one; empty for none."""


def comparison_page(sides: Sequence[Side], odd: OddOne | None, change: Comparison | None, written: str = "") -> str:
    """The page.

    Args:
        sides: In order.
        odd: The one that stands out.
        change: From the first to the last.
        written: When it is written.
    """
    page = Page(f"Memory of {len(sides)} recordings", f"written {written}" if written else "")
    if odd is not None:
        page.add(finding("warning", odd.message))
    elif len(sides) > 2:
        page.add(finding("good", "None of them stands out."))
    page.heading("Side by side")
    page.table(
        ("recording", "device", "peak", "reserved", "efficiency", "largest category", "suspected leaks"),
        (_row(side, odd) for side in sides),
        numbers=(2, 3, 4, 6),
    )
    page.heading("Categories at the peak", 3)
    page.chart(parts_chart({side.analysis.name: _parts(side, sides) for side in sides}))
    page.heading("Memory over time", 3)
    page.chart(_curves(sides, odd))
    if change is not None:
        _changes(page, change)
    return page.render()


def _row(side: Side, odd: OddOne | None) -> Sequence[str]:
    analysis, device = side.analysis, side.analysis.main
    name = f'<a href="{escape(side.link)}">{escape(analysis.name)}</a>' if side.link else escape(analysis.name)
    first = device.by_category[0] if device.by_category else None
    return (
        f"<b>{name}</b>" if odd is not None and odd.name == analysis.name else name,
        escape(device_label(device.name)),
        format_bytes(device.peak.bytes),
        "" if device.reserved_bytes is None else format_bytes(device.reserved_bytes),
        "" if device.efficiency_percent is None else f"{device.efficiency_percent:.1f} %",
        escape(f"{category_word(first.name)} {format_bytes(first.bytes)}") if first else "",
        str(len(device.suspects) or ""),
    )


def _parts(side: Side, sides: Sequence[Side]) -> list[Part]:
    """Categories of one; the same ones are put together for all."""
    most: dict[str, int] = {}
    for each in sides:
        for share in each.analysis.main.by_category:
            most[share.name] = max(most.get(share.name, 0), share.bytes)
    large = sorted((name for name in most if most[name]), key=lambda name: -most[name])[:_CATEGORIES]
    own = {share.name: share.bytes for share in side.analysis.main.by_category}
    parts = [Part(category_word(name), own.get(name, 0), category_colour(name)) for name in large]
    rest = sum(size for name, size in own.items() if name not in large)
    return [*parts, Part("all others", rest, LIGHT)] if rest else parts


def _curves(sides: Sequence[Side], odd: OddOne | None) -> Chart:
    """Bytes over time, a line for each, from each one's own beginning."""
    unit = unit_for(max(int(side.layers.total.max()) for side in sides))
    spans = [_span(side.layers) for side in sides]
    by_time = None not in spans
    scale, word = time_unit(max(span or 0 for span in spans))
    data = []
    for number, side in enumerate(sides):
        layers = side.layers
        x = (layers.ns - layers.ns[0]) / scale if by_time and layers.ns is not None else layers.event
        is_odd = odd is not None and odd.name == side.analysis.name
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": side.analysis.name,
                "x": rounded(x),
                "y": rounded(layers.total / unit.bytes),
                "line": {"shape": "hv", "width": 2.6 if is_odd else 1.3}
                | {"color": RED if is_odd else GREY if odd is not None else _LINES[number % len(_LINES)]},
                "hovertemplate": f"%{{y:.3~f}} {unit.name}",
            }
        )
    title = f"time since each recording began, {word}" if by_time else "event of the allocator"
    frame = layout(420, xaxis=axis(title), yaxis=axis(unit.name, rangemode="tozero"), showlegend=True)
    return {"data": data, "layout": frame}


def _span(layers: Layers) -> float | None:
    """Nanoseconds from the first moment to the last; ``None`` if they are not known."""
    return None if layers.ns is None else float(layers.ns[-1] - layers.ns[0])


def _changes(page: Page, change: Comparison) -> None:
    page.heading(f"From {change.before} to {change.after}")
    for device in change.devices:
        tables = (
            (device_label(device.name), device.totals),
            ("category", device.by_category),
            ("line", device.by_line),
            ("module", device.by_module),
        )
        for title, found in tables:
            page.table((title, "before", "after", "change", "%"), _change_rows(found), numbers=(1, 2, 3, 4))
    for note in change.notes:
        page.add(f'<p class="note">{escape(note)}</p>')


def _change_rows(found: Sequence[Change]) -> Iterable[Sequence[str]]:
    for one in found[:_CHANGES]:
        percent = "new" if one.percent is None else f"{one.percent:+.1f}"
        sizes = (format_bytes(one.before), format_bytes(one.after), format_signed(one.bytes))
        yield escape(one.name), *sizes, percent
