"""Series of a run go in; ``memory_series.png`` comes out: memory over the steps, findings and windows marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tbmem.analysis.series import Series, thinned
from tbmem.model.finding import Finding
from tbmem.present.canvas import byte_axis, picture
from tbmem.present.colours import BLUE, INK, MUTED, SKY, finding_colour
from tbmem.present.labels import shortened
from tbmem.present.series_lines import capacity_of, highest_of, level_at, marks_of, series_name, shown_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 6
_KEYS = 6


def draw_series(
    name: str, found: Sequence[Series], findings: Sequence[Finding], windows: Sequence[dict[str, Any]], path: Path
) -> None:
    """Memory over the steps, one drawing for each series.

    Args:
        name: Of the run.
        found: At most six are drawn, those with the highest levels.
        findings: Marked where they end.
        windows: Striped.
        path: The PNG.
    """
    drawn = sorted(found, key=highest_of, reverse=True)[:_MOST]
    left_out = f" · {len(found) - len(drawn)} more are in report.html" if len(found) > len(drawn) else ""
    several = len({series.rank for series in found}) > 1
    height = 1.2 + 4.6 * len(drawn)
    with picture(path, "Memory over the steps", f"{name}{left_out}", height=height) as figure:
        for series, axes in zip(drawn, figure.subplots(len(drawn), 1, squeeze=False)[:, 0], strict=True):
            axes.set_title(series_name(series, several))
            _draw(axes, series, marks_of(series, findings), windows)
        axes.set_xlabel("step")


def _draw(axes: Axes, series: Series, marks: Sequence[Finding], windows: Sequence[dict[str, Any]]) -> None:
    capacity = capacity_of(series)
    unit = byte_axis(axes, capacity or highest_of(series))
    short = thinned(series)
    x = short.step
    low, high = short.columns["lowest"], short.columns["highest"]
    if not np.isnan(low).all():
        axes.fill_between(x, low / unit, high / unit, color=BLUE, alpha=0.18, linewidth=0)
    styles = {"solid": "-", "dash": (0, (4, 2))}
    for column, name, colour, dash in shown_columns(series):
        known = ~np.isnan(short.columns[column])
        values = short.columns[column][known] / unit
        marker = "o" if len(values) < 3 else ""
        axes.plot(x[known], values, color=colour, linewidth=1.5, linestyle=styles[dash], label=name, marker=marker)
    for number, window in enumerate(windows):
        label = "recorded" if number == 0 else None
        axes.axvspan(window["first_step"] - 0.5, window["last_step"] + 0.5, color=SKY, alpha=0.25, lw=0, label=label)
    top = max(capacity or 0, highest_of(series)) / unit
    axes.set_ylim(0, top * 1.15 or 1)
    if capacity is not None:
        axes.axhline(capacity / unit, color=INK, linewidth=1, linestyle=":", label="capacity")
    for number, one in enumerate(marks):
        label = shortened(f"{one.kind.label.lower()} in step {one.last_step}", 40) if number < _KEYS else None
        y = level_at(series, one.last_step) / unit
        colour = finding_colour(one.kind, one.severity)
        axes.plot([one.last_step], [y], "D", color=colour, markeredgecolor=INK, markersize=8, label=label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1), borderaxespad=0, labelcolor=MUTED)
