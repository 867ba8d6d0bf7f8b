"""Draws ``memory_series.png``: memory over the steps of a run, with findings and recorded windows marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tbmem.analysis.runs.run_report import Series, downsampled
from tbmem.model.finding import Finding
from tbmem.present.figures.canvas import byte_axis, picture
from tbmem.present.labels import shortened
from tbmem.present.lines import device_label, peak_word
from tbmem.present.palette import BLUE, GREEN, INK, MUTED, PINK, RED, SKY, finding_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = (
    ("reserved", "reserved", MUTED),
    ("peak", "peak within the steps", RED),
    ("allocated", "allocated after the step", BLUE),
    ("host", "resident (RSS)", GREEN),
    ("workers", "worker processes", PINK),
)
"""Column, label and colour."""
_CAPACITY_FROM = 0.6
"""Share of the capacity from which its line is drawn."""
_MOST = 6
_KEYS = 6


def draw_series(
    name: str, all_series: Sequence[Series], findings: Sequence[Finding], windows: Sequence[dict[str, Any]], path: Path
) -> None:
    """Draw memory over the steps, one chart per series."""
    drawn = sorted(all_series, key=_highest_of, reverse=True)[:_MOST]
    left_out = f" · {len(all_series) - len(drawn)} more are in report.html" if len(all_series) > len(drawn) else ""
    several = len({series.rank for series in all_series}) > 1
    height = 1.2 + 4.6 * len(drawn)
    with picture(path, "Memory over the steps", f"{name}{left_out}", height=height) as figure:
        for series, axes in zip(drawn, figure.subplots(len(drawn), 1, squeeze=False)[:, 0], strict=True):
            rank = f"rank {series.rank} · " if several else ""
            axes.set_title(f"{rank}{device_label(series.device)}")
            _draw(axes, series, marks_of(series, findings), windows)
        axes.set_xlabel("step")


def _draw(axes: Axes, series: Series, marks: Sequence[Finding], windows: Sequence[dict[str, Any]]) -> None:
    capacity = _capacity_of(series)
    unit = byte_axis(axes, capacity or _highest_of(series))
    short = downsampled(series)
    x = short.step
    low, high = short.columns["lowest"], short.columns["highest"]
    if not np.isnan(low).all():
        axes.fill_between(x, low / unit, high / unit, color=BLUE, alpha=0.18, linewidth=0)
    for column, name, colour in _shown_columns(series):
        known = ~np.isnan(short.columns[column])
        values = short.columns[column][known] / unit
        marker, style = "o" if len(values) < 3 else "", (0, (4, 2)) if column == "reserved" else "-"
        axes.plot(x[known], values, color=colour, linewidth=1.5, linestyle=style, label=name, marker=marker)
    for number, window in enumerate(windows):
        label = "recorded" if number == 0 else None
        axes.axvspan(window["first_step"] - 0.5, window["last_step"] + 0.5, color=SKY, alpha=0.25, lw=0, label=label)
    top = max(capacity or 0, _highest_of(series)) / unit
    axes.set_ylim(0, top * 1.15 or 1)
    if capacity is not None:
        axes.axhline(capacity / unit, color=INK, linewidth=1, linestyle=":", label="capacity")
    for number, finding in enumerate(marks):
        label = shortened(f"{finding.label.lower()} in step {finding.last_step}", 40) if number < _KEYS else None
        y = _level_at(series, finding.last_step) / unit
        colour = finding_colour(finding.kind, finding.severity)
        axes.plot([finding.last_step], [y], "D", color=colour, markeredgecolor=INK, markersize=8, label=label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1), borderaxespad=0, labelcolor=MUTED)


def _shown_columns(series: Series) -> list[tuple[str, str, str]]:
    """Rows of ``_SHOWN`` with values; host memory only for the CPU."""
    on_cpu = series.device == "cpu"
    word = peak_word("host_peak_rss" if on_cpu else "peak_allocated")
    shown = [row for row in _SHOWN if series.most(row[0]) and (on_cpu or row[0] not in ("host", "workers"))]
    return [(name, text.replace("peak", word), colour) for name, text, colour in shown]


def _highest_of(series: Series) -> float:
    """Largest value drawn, in bytes."""
    return float(max([series.most(row[0]) or 0 for row in _shown_columns(series)], default=0))


def _capacity_of(series: Series) -> float | None:
    """The device's capacity, if the series comes near it."""
    capacity = series.most("capacity")
    return float(capacity) if capacity and _highest_of(series) >= _CAPACITY_FROM * capacity else None


def marks_of(series: Series, findings: Sequence[Finding]) -> list[Finding]:
    """Findings about this series, without suspicions."""
    reported = [finding for finding in findings if not finding.kind.is_quiet]
    return [finding for finding in reported if (finding.rank, finding.device) == (series.rank, series.device)]


def _level_at(series: Series, step: int) -> float:
    """Highest bytes at a step or just before it; 0 if not known."""
    level = series.level()
    at = min(int(np.searchsorted(series.step, step)), len(level) - 1)
    return float(np.nan_to_num(level[at]))
