"""Draws ``memory_timeline.png``: memory over time, stacked by category, with phases and steps marked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.plots.stacked_series import Layers
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis
from tbmem.model.category import Phase, word_of
from tbmem.model.columns import I64
from tbmem.model.timeline_tables import MarkKind
from tbmem.present.figures.canvas import byte_axis, picture
from tbmem.present.lines import device_label
from tbmem.present.palette import INK, MUTED, PHASES, RED, category_colour
from tbmem.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST_WIDTH = 0.002
"""Share of the axis: shorter phases are not drawn."""
_LABEL_WIDTH = 0.065
_MOST_STEPS = 40
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_IDLE = 0.4
"""Share of the axis: a longer pause would leave too little room for the events."""
_FEW = 2
"""Points that make no curve."""
_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
_DATA_AND_AXES = ("data", "axes fraction")


def draw_timeline(analysis: Analysis, device: DeviceAnalysis, layers: Layers, path: Path) -> None:
    """Draw the memory of a device over time."""
    x, label = axis_of(layers)
    relative = "" if analysis.timeline.devices[device.number].base_is_known else ", without what was there before"
    subtitle = f"{analysis.name} · {device_label(device.name)} · {device.measure} bytes, stacked by category{relative}"
    with picture(path, "Active memory over time", subtitle, height=7) as figure:
        axes, strip = figure.subplots(2, 1, sharex=True, height_ratios=[18, 1])
        unit = _stack(axes, layers, x)
        _peak(axes, device, layers, x, unit)
        _steps(axes, layers, x)
        _ooms(axes, analysis, device, layers, x)
        _phases(strip, layers, x)
        strip.set_xlabel(label)
        if len(x) <= _FEW:
            strip.set_xticks([])
            strip.set_xlabel("almost nothing was recorded: all of this existed before")
        if x[-1] > x[0]:
            axes.set_xlim(x[0], x[-1])


def _stack(axes: Axes, layers: Layers, x: NDArray[np.float64]) -> float:
    """Draw the layers and what is reserved; returns the bytes per unit of the axis."""
    highest = float(max(layers.total.max(), layers.reserved.max() if layers.reserved is not None else 0))
    unit = byte_axis(axes, highest)
    if x[-1] == x[0]:
        x = x[0] + np.arange(len(x)) / max(len(x) - 1, 1)
    if len(x) == 1:
        x, layers = np.array([x[0], x[0] + 1]), _twice(layers)
        axes.set_xlim(x[0], x[1])
    below = np.zeros(len(x))
    for name, row in zip(layers.names, layers.bytes, strict=True):
        above = below + row / unit
        axes.fill_between(x, below, above, step="post", color=category_colour(name), linewidth=0, label=word_of(name))
        axes.step(x, above, where="post", color=INK, alpha=0.3, linewidth=0.4)
        below = above
    if layers.reserved is not None:
        reserved = layers.reserved / unit
        axes.step(x, reserved, where="post", color=INK, linewidth=1, linestyle=(0, (4, 2)), label="reserved")
    axes.set_ylim(0, highest / unit * 1.18 or 1)
    handles, words = axes.get_legend_handles_labels()
    # in the order of the layers, the highest first
    axes.legend(handles[::-1], words[::-1], loc="upper left", bbox_to_anchor=(1.005, 1), borderaxespad=0)
    return unit


def _twice(layers: Layers) -> Layers:
    """A single point as a line over the whole axis."""
    return Layers(layers.names, *(None if column is None else np.repeat(column, 2, axis=-1) for column in layers[1:]))  # type: ignore[arg-type]


def _peak(axes: Axes, device: DeviceAnalysis, layers: Layers, x: NDArray[np.float64], unit: float) -> None:
    at = int(np.argmax(layers.total))
    top = layers.total[at]
    if layers.reserved is not None and top <= layers.reserved.max() < 1.1 * top:
        # the label stands above the reserved line
        top = layers.reserved.max()
    where = (x[at] - x[0]) / ((x[-1] - x[0]) or 1)
    side = "left" if where < 0.2 else "right" if where > 0.8 else "center"
    axes.plot([x[at]], [layers.total[at] / unit], marker="v", color=INK, markersize=7, clip_on=False)
    place = "" if device.peak.step < 0 else f", step {device.peak.step}"
    phase = "" if device.peak.phase == Phase.OTHER.name else f" · {word_of(device.peak.phase)}"
    text = f"peak {format_bytes(device.peak.bytes)}{place}{phase}"
    _label(axes, text, (x[at], top / unit), (0, 10), ha=side, fontweight="bold", bbox=_BOX)


def _label(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **style)


def _steps(axes: Axes, layers: Layers, x: NDArray[np.float64]) -> None:
    """Draw a line where each step begins, with its number where there is room."""
    steps = [span for span in spans(layers.step, x) if span.value >= 0]
    if not steps or len(steps) > _MOST_STEPS:
        return
    for span in steps:
        axes.axvline(span.begin, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)))
        if span.end - span.begin >= _LABEL_WIDTH * (x[-1] - x[0]):
            style = {"xycoords": _DATA_AND_AXES, "color": MUTED, "fontsize": 8.5}
            _label(axes, f"step {span.value}", (span.begin, 1), (3, -11), **style)


def _ooms(axes: Axes, analysis: Analysis, device: DeviceAnalysis, layers: Layers, x: NDArray[np.float64]) -> None:
    marks = analysis.timeline.marks
    ooms = (marks.device == device.number) & (marks.kind == MarkKind.OOM)
    for number, (event, size) in enumerate(zip(marks.event[ooms].tolist(), marks.bytes[ooms].tolist(), strict=True)):
        where = x[min(int(np.searchsorted(layers.event, event)), len(x) - 1)]
        axes.axvline(where, color=RED, linewidth=1.4)
        if number == 0:
            text = f"out of memory: {format_bytes(size)} asked for"
            _label(axes, text, (where, 0.9), (-5, 0), xycoords=_DATA_AND_AXES, ha="right", color=RED, bbox=_BOX)


def _phases(strip: Axes, layers: Layers, x: NDArray[np.float64]) -> None:
    strip.set_ylim(0, 1)
    strip.set_yticks([])
    strip.spines[:].set_visible(False)
    extent = (x[-1] - x[0]) or 1.0
    if not (layers.phase != Phase.OTHER).any():
        strip.text(0.5, 0.5, "phases are not known", ha="center", va="center", color=MUTED, transform=strip.transAxes)
        return
    for span in spans(layers.phase, x, least=_LEAST_WIDTH * extent):
        name = Phase(span.value).name
        width = span.end - span.begin
        strip.barh(0.5, width, 1, span.begin, color=PHASES[name], linewidth=0, align="center")
        if width >= _LABEL_WIDTH * extent:
            middle = span.begin + width / 2
            strip.text(middle, 0.47, name.lower(), ha="center", va="center", fontsize=8.5, color=INK)


def axis_of(layers: Layers) -> tuple[NDArray[np.float64], str]:
    """The x of each point and the title of the axis: time, or the event's number where a pause would hide the rest."""
    ns = layers.ns
    extent = 0 if ns is None else int(ns[-1] - ns[0])
    if ns is None or not extent or len(ns) <= _FEW or int(np.diff(ns).max()) >= _IDLE * extent:
        return layers.event.astype(np.float64), "event of the allocator (allocations and frees, in order)"
    unit, name = next((unit for unit in _TIMES if extent >= unit[0]), _TIMES[-1])
    return (ns - ns[0]) / unit, f"time since the recording began, {name}"


class Span(NamedTuple):
    """Consecutive points with one value."""

    begin: float
    end: float
    value: int


def spans(values: I64, x: NDArray[np.float64], least: float = 0) -> list[Span]:
    """Consecutive equal values as spans of the axis; a span shorter than ``least`` joins the one before it."""
    begins = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    ends = np.append(x[begins[1:]], x[-1])
    merged: list[Span] = []
    for begin, end, value in zip(x[begins].tolist(), ends.tolist(), values[begins].tolist(), strict=True):
        if merged and (merged[-1].value == value or end - begin < least):
            merged[-1] = merged[-1]._replace(end=end)
        else:
            merged.append(Span(begin, end, value))
    return merged
