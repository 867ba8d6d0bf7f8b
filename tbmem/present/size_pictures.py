"""An analysis goes in; pictures of how memory is cut up come out: sizes of blocks, and efficiency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tbmem.analysis.report import Analysis, DeviceAnalysis
from tbmem.analysis.sizes import Histogram, Sizes
from tbmem.model.columns import I64
from tbmem.present.canvas import byte_axis, picture, say
from tbmem.present.colours import ALLOCATED, GRADES, IN_GAPS, IN_SEGMENTS, INK, LIGHT, MUTED
from tbmem.present.labels import size_label
from tbmem.present.share_pictures import heading, reserved_parts
from tbmem.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = 9
_POOR, _EXCELLENT = 95, 98


def draw_sizes(analysis: Analysis, device: DeviceAnalysis, sizes: Sizes, path: Path) -> None:
    """Two histograms each of used and of free blocks: how many, and how many bytes."""
    with picture(path, "Sizes of blocks", f"{heading(analysis, device)} · classes are powers of two") as figure:
        (used_count, free_count), (used_bytes, free_bytes) = figure.subplots(2, 2, sharex="col")
        used_count.set_title(f"Active allocations {sizes.moment}: {int(sizes.active.blocks.sum()):,}")
        _bars(used_count, [sizes.active.blocks], [ALLOCATED], None)
        _bars(used_bytes, [sizes.active.bytes], [ALLOCATED], None, in_bytes=True)
        _classes(used_bytes, sizes.active)
        number = int(sizes.gaps.blocks.sum() + sizes.cached.blocks.sum())
        free_count.set_title(f"Free blocks at the end: {number:,}" if number else "Free blocks at the end")
        if not number:
            known = device.fragmentation.gaps is not None
            text = "No block is free." if known else "This recording does not list free blocks:\na snapshot would."
            say(free_count, text)
            free_bytes.set_axis_off()
            return
        words = ["in gaps between used blocks", "in whole segments"]
        _bars(free_count, [sizes.gaps.blocks, sizes.cached.blocks], [IN_GAPS, IN_SEGMENTS], words)
        _bars(free_bytes, [sizes.gaps.bytes, sizes.cached.bytes], [IN_GAPS, IN_SEGMENTS], None, in_bytes=True)
        _classes(free_bytes, sizes.gaps)


def _bars(axes: Axes, layers: list[I64], colours: list[str], words: list[str] | None, in_bytes: bool = False) -> None:
    highest = float(np.sum(layers, axis=0).max(initial=0))
    unit = byte_axis(axes, highest) if in_bytes else 1.0
    if not in_bytes:
        axes.set_ylabel("blocks")
        axes.grid(axis="y")
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="y", integer=True)
    below = np.zeros(len(layers[0]))
    for number, (layer, colour) in enumerate(zip(layers, colours, strict=True)):
        label = words[number] if words else None
        axes.bar(range(len(layer)), layer / unit, 0.86, below, color=colour, label=label)
        below = below + layer / unit
    # room for the key above the bars
    axes.set_ylim(0, highest / unit * (1.38 if words else 1.08) or 1)
    axes.set_xlim(-0.7, len(layers[0]) - 0.3)
    if words:
        axes.legend(loc="upper left", ncols=2, columnspacing=1.2, handlelength=1, handleheight=1)


def _classes(axes: Axes, histogram: Histogram) -> None:
    """Sizes under every so many bars."""
    count = len(histogram.least)
    every = max(-(-count // _TICKS), 1)
    places = list(range(0, count, every))
    axes.set_xticks(places, [size_label(int(histogram.least[place])) for place in places], rotation=30, ha="right")
    axes.set_xlabel("size from")


def draw_efficiency(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """How much of what was reserved the peak used, and what reserved memory is used for at the end."""
    with picture(path, "Memory efficiency", heading(analysis, device), height=5.6) as figure:
        gauge, bar, text = figure.subplots(3, 1, height_ratios=[1, 1, 1.5])
        if not device.reserved_bytes:
            say(bar, "The file does not say how much was reserved: efficiency is not known.")
            gauge.set_axis_off()
            text.set_axis_off()
            return
        if device.efficiency_percent is None:
            say(gauge, "No peak was recorded: how much of what is reserved it used is not known.")
        else:
            _gauge(gauge, device.efficiency_percent, device.grade)
        _parts(bar, device)
        _metrics(text, device)


def _gauge(axes: Axes, percent: float, grade: str) -> None:
    axes.set_title(
        f"{percent:.1f} % of reserved memory was in use at the peak: {grade}", color=GRADES[grade], fontsize=14
    )
    axes.barh(0, 100, 0.5, color="#F1F3F5")
    axes.barh(0, percent, 0.5, color=GRADES[grade])
    for limit in (_POOR, _EXCELLENT):
        axes.plot([limit, limit], [-0.4, 0.4], color=INK, linewidth=1.2)
    axes.set_xlim(0, 100.3)
    axes.set_ylim(-0.45, 0.45)
    axes.set_yticks([])
    ticks = (0, 25, 50, 75, _POOR, _EXCELLENT)
    axes.set_xticks(ticks, [f"{tick} %" for tick in ticks])
    # the two limits lie close: their words go to either side
    below, above = axes.get_xticklabels()[-2:]
    below.set_horizontalalignment("right")
    above.set_horizontalalignment("left")
    axes.spines[:].set_visible(False)


def _parts(axes: Axes, device: DeviceAnalysis) -> None:
    unit = byte_axis(axes, device.reserved_bytes or 1, "x")
    left = 0.0
    for part in reserved_parts(device):
        axes.barh(0, part.bytes / unit, 0.5, left, color=part.colour, label=part.name, edgecolor="white", linewidth=1)
        left += part.bytes / unit
    axes.set_xlim(0, left * 1.003)
    axes.set_ylim(-0.45, 0.45)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.005, 1.0), ncols=4, handlelength=1, handleheight=1, borderaxespad=0
    )


def _metrics(axes: Axes, device: DeviceAnalysis) -> None:
    """Figures in a row, the word above the number."""
    axes.set_axis_off()
    free = device.fragmentation
    figures = (
        ("reserved at most", device.peak_reserved_bytes),
        ("in use at the peak", device.peak.bytes),
        ("not in use even at the peak", device.never_used_bytes),
        ("free at the end", free.free_bytes),
        ("of it fragmented", free.fragmented_bytes),
        ("lost to rounding", free.rounding_loss_bytes),
    )
    for place, (word, size) in enumerate(figures):
        x, y = (place % 3) / 3, 0.92 - 0.52 * (place // 3)
        axes.text(x, y, word, color=MUTED, fontsize=10, va="top", transform=axes.transAxes)
        known = "not known" if size is None else format_bytes(size)
        colour = LIGHT if size is None else INK
        axes.text(x, y - 0.16, known, color=colour, fontsize=16, fontweight="bold", va="top", transform=axes.transAxes)
