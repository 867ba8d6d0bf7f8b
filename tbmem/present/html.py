"""Parts of a page go in; one HTML file comes out that needs nothing else: plotly.js and all data are inside it.

The page forbids its browser to fetch anything: it looks the same without a network.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from tbmem.present.colours import BLUE, GREEN, INK, LIGHT, MUTED, ORANGE, RED
from tbmem.present.plotly_js import plotly_js

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_STYLE = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 1280px; padding: 28px 32px 60px; color: {INK}; background: #fff;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; }}
h1 {{ font-size: 26px; margin: 0; overflow-wrap: anywhere; }} h2 {{ font-size: 20px; margin: 40px 0 12px; }}
h3 {{ font-size: 16px; margin: 28px 0 8px; }}
.about {{ color: {MUTED}; margin: 4px 0 0; overflow-wrap: anywhere; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0; }}
.tile {{ border: 1px solid {LIGHT}; border-radius: 8px; padding: 10px 16px; min-width: 140px; }}
.tile span {{ color: {MUTED}; font-size: 13px; display: block; }} .tile b {{ font-size: 20px; white-space: nowrap; }}
.tile small {{ color: {MUTED}; display: block; max-width: 300px; overflow-wrap: anywhere; }}
.chart {{ width: 100%; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; }}
th {{ text-align: left; color: {MUTED}; font-weight: 600; border-bottom: 2px solid {LIGHT}; padding: 4px 10px; }}
td {{ border-bottom: 1px solid #EEF0F2; padding: 4px 10px; vertical-align: top; overflow-wrap: anywhere; }}
td.n, th.n {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; overflow-wrap: normal; }}
.key {{ display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 7px; }}
.finding {{ border-left: 4px solid {ORANGE}; background: #FAFBFC; padding: 8px 14px; margin: 8px 0; }}
.finding.critical {{ border-color: {RED}; }} .finding.info {{ border-color: {BLUE}; }}
.finding.good {{ border-color: {GREEN}; }} .finding p {{ margin: 2px 0; }}
code, pre {{ font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
code {{ background: #F1F3F5; padding: 1px 4px; border-radius: 3px; overflow-wrap: anywhere; }}
pre {{ margin: 6px 0; white-space: pre-wrap; overflow-wrap: anywhere; color: {MUTED}; }}
.whole {{ white-space: nowrap; }} summary {{ cursor: pointer; }} .note {{ color: {MUTED}; }} a {{ color: {BLUE}; }}
"""
_SCRIPT = """
for (const place of document.querySelectorAll(".chart")) {
  const chart = JSON.parse(document.getElementById(place.id + "-data").textContent);
  Plotly.newPlot(place, chart.data, chart.layout, {responsive: true, displaylogo: false, showSendToCloud: false});
}
"""

Cell = str | int | float | None


class Page:
    """Collects the parts of a page, in order.

    Args:
        title: Heading, and name of the browser's tab.
        about: Lines under the heading.
    """

    def __init__(self, title: str, *about: str) -> None:
        self._title = title
        self._numbers = count(1)
        self._parts = [f"<h1>{escape(title)}</h1>", *(f'<p class="about">{escape(line)}</p>' for line in about if line)]

    def add(self, *parts: str) -> None:
        """Add HTML as it is; texts in it must have been escaped."""
        self._parts += parts

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self.add(f"<h{level}>{escape(text)}</h{level}>")

    def chart(self, chart: Mapping[str, Any]) -> None:
        """Add a chart.

        Args:
            chart: ``data`` and ``layout`` as plotly.js takes them, of plain JSON values.
        """
        number = next(self._numbers)
        # a tag in a name would end the script in the middle of the data
        data = json.dumps(chart, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        height = int(chart["layout"]["height"])
        self.add(
            f'<div class="chart" id="chart-{number}" style="height:{height}px"></div>',
            f'<script type="application/json" id="chart-{number}-data">{data}</script>',
        )

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> None:
        """Add a table, unless it is empty.

        Args:
            head: Words over the columns.
            rows: Cells as HTML.
            numbers: Columns of numbers, which are set to the right.
        """
        found = list(rows)
        if not found:
            return
        kinds = [' class="n"' if place in numbers else "" for place in range(len(head))]
        cells = "".join(f"<th{kind}>{escape(word)}</th>" for word, kind in zip(head, kinds, strict=True))
        lines = [
            "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
            for row in found
        ]
        self.add(f"<table><thead><tr>{cells}</tr></thead><tbody>", *lines, "</tbody></table>")

    def tiles(self, figures: Iterable[tuple[str, str, str]]) -> None:
        """Add figures in a row: a word, the number, what else there is to say."""
        tiles = [
            f'<div class="tile"><span>{escape(word)}</span><b>{escape(number)}</b><small>{escape(more)}</small></div>'
            for word, number, more in figures
        ]
        self.add('<div class="tiles">', *tiles, "</div>")

    def render(self) -> str:
        """The whole page."""
        head = (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:,">'
            f"<title>{escape(self._title)} · tbmem</title><style>{_STYLE}</style></head><body>"
        )
        scripts = f"<script>{plotly_js()}</script><script>{_SCRIPT}</script>" if next(self._numbers) > 1 else ""
        return "\n".join([head, *self._parts, scripts, "</body></html>\n"])


def escape(text: str) -> str:
    """Text as HTML."""
    return html.escape(text)


def finding(kind: str, text: str, more: str = "", code: str = "") -> str:
    """One finding as HTML.

    Args:
        kind: ``'critical'``, ``'warning'``, ``'info'`` or ``'good'``: its colour.
        text: A sentence.
        more: A second one, in small print.
        code: What to write or change.
    """
    parts = [f"<p>{escape(text)}</p>"]
    parts += [f'<p class="note">{escape(more)}</p>'] if more else []
    parts += [f"<p>change: <code>{escape(code)}</code></p>"] if code else []
    return f'<div class="finding {escape(kind)}">{"".join(parts)}</div>'
