"""Draws the six PNG files of a recording's report, for each device; ``timeline`` draws one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tbmem.analysis.plots.stacked_series import layers_of
from tbmem.analysis.recordings.fragmentation import Histogram, block_sizes
from tbmem.analysis.recordings.module_tree import merge_layers, module_codes
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis, Share
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.category import word_of
from tbmem.model.columns import I64
from tbmem.present.figures.canvas import byte_axis, draw_message, picture
from tbmem.present.figures.timeline import draw_timeline
from tbmem.present.labels import shortened, size_label
from tbmem.present.lines import device_label
from tbmem.present.palette import ALLOCATED, GRADES, IN_GAPS, IN_SEGMENTS, INK, LIGHT, MUTED, PENDING, category_colour
from tbmem.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURES = {
    "memory_timeline.png": "active memory over time, by category, with phases and steps",
    "memory_overview.png": "reserved memory at the end: allocated, cached, fragmented; categories at the peak",
    "top_consumers.png": "the largest allocations at the peak, equal ones as one bar",
    "category_breakdown.png": "memory by category: at the peak, at most, at the end",
    "size_distribution.png": "sizes of active allocations and of free blocks",
    "memory_efficiency.png": "how much of what was reserved the peak used; where the rest lies",
}
"""Description of each file."""
_TOP = 30
_SLICES = 9
_BARS = 16
_TICKS = 9
_POOR, _EXCELLENT = 95, 98


def picture_folder(device: DeviceAnalysis) -> str:
    """Name of the folder of a further device's pictures: ``'cuda_1'``."""
    return device.name.replace(":", "_")


def write_pictures(analysis: Analysis, folder: Path) -> tuple[Path, ...]:
    """Draw the main device, and each further device that is shown in a subfolder.

    Raises:
        OSError: A file cannot be written.
    """
    main, *others = analysis.shown
    paths = _draw(analysis, main, folder)
    for device in others:
        subfolder = folder / picture_folder(device)
        subfolder.mkdir()
        paths += _draw(analysis, device, subfolder)
    return paths


def _draw(analysis: Analysis, device: DeviceAnalysis, folder: Path) -> tuple[Path, ...]:
    paths = tuple(folder / name for name in PICTURES)
    timeline, *others = paths
    draw_timeline(analysis, device, layers_of(analysis, device.number), timeline)
    drawers = (_draw_overview, _draw_top, _draw_categories, _draw_sizes, _draw_efficiency)
    for draw, path in zip(drawers, others, strict=True):
        draw(analysis, device, path)
    return paths


class Part(NamedTuple):
    """A named and coloured part of an amount."""

    name: str
    bytes: int
    colour: str


def _heading(analysis: Analysis, device: DeviceAnalysis) -> str:
    """``'iter1_rank0 · GPU 0 · peak 11.57 GiB'``."""
    return f"{analysis.name} · {device_label(device.name)} · peak {format_bytes(device.peak.bytes)}"


def reserved_parts(device: DeviceAnalysis) -> list[Part]:
    """Parts of reserved memory at the end; empty if the recording does not contain them."""
    if not device.reserved_bytes:
        return []
    free = device.fragmentation
    cached = "cached: free in whole segments" + " and pages" * bool(free.cached_in_pages_bytes)
    parts = [
        Part("allocated", device.allocated_bytes or 0, ALLOCATED),
        Part("waiting for a stream", free.pending_free_bytes or 0, PENDING),
        Part("fragmented: free in gaps", free.fragmented_bytes or 0, IN_GAPS),
        Part(cached, free.cached_bytes or 0, IN_SEGMENTS),
    ]
    if free.fragmented_bytes is None:
        parts.append(Part("free: cached or fragmented", free.free_bytes or 0, IN_SEGMENTS))
    return [part for part in parts if part.bytes > 0]


def _category_parts(shares: Sequence[Share]) -> list[Part]:
    """Categories at the peak, the smallest ones combined."""
    nonzero = [share for share in shares if share.bytes > 0]
    parts = [Part(word_of(share.name), share.bytes, category_colour(share.name)) for share in nonzero[:_SLICES]]
    if rest := sum(share.bytes for share in nonzero[_SLICES:]):
        parts.append(Part("all others", rest, category_colour("(other)")))
    return parts


def _draw_overview(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Two rings: reserved memory at the end, and categories at the peak."""
    with picture(path, "Memory overview", _heading(analysis, device)) as figure:
        left, right = figure.subplots(1, 2)
        left.set_title("Reserved memory at the end", loc="center")
        right.set_title("Categories at the peak", loc="center")
        otherwise = "The file does not say\nhow much was reserved."
        _ring(left, reserved_parts(device), device.reserved_bytes or 0, otherwise)
        _ring(right, _category_parts(device.by_category), device.peak.bytes, "Nothing was alive.")


def _ring(axes: Axes, parts: Sequence[Part], total: int, otherwise: str) -> None:
    if not parts or total <= 0:
        draw_message(axes, otherwise)
        return
    wedges = axes.pie(
        [part.bytes for part in parts],
        colors=[part.colour for part in parts],
        startangle=90,
        counterclock=False,
        wedgeprops={"width": 0.42, "edgecolor": "white", "linewidth": 1.5},
    )[0]
    axes.text(0, 0, format_bytes(total), ha="center", va="center", fontsize=14, fontweight="bold")
    words = [f"{part.name}   {format_bytes(part.bytes)}   {100 * part.bytes / total:.1f} %" for part in parts]
    # labels beside small slices would overlap
    axes.legend(wedges, words, loc="upper center", bbox_to_anchor=(0.5, -0.01), handlelength=1, handleheight=1)


def _draw_top(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Bars of the largest allocations at the peak, equal ones as one, in the colours of their categories."""
    top = equal_allocations(analysis, device)[:_TOP]
    height = 2.2 + 0.265 * max(len(top), 6)
    title = "The largest allocations at the peak" + ", equal ones as one bar" * any(each.times > 1 for each in top)
    with picture(path, title, _heading(analysis, device), width=13, height=height) as figure:
        axes = figure.subplots()
        if not top:
            draw_message(axes, "No allocation was alive at the peak.")
            return
        unit = byte_axis(axes, top[0].bytes, "x")
        sizes, categories = [each.bytes / unit for each in top], [each.category for each in top]
        _rows(axes, sizes, categories, 0.76, [each.name for each in top], fontsize=8.5)
        for position, (size, each) in enumerate(zip(sizes, top, strict=True)):
            parts = f" = {each.times} × {format_bytes(each.bytes // each.times)}" if each.times > 1 else ""
            axes.text(size, position, f" {format_bytes(each.bytes)}{parts}", va="center", fontsize=8.5)
        axes.set_xlim(0, sizes[0] * (1.3 if top[0].times > 1 else 1.12) or 1)
        _category_legend(axes, categories)


def _rows(
    axes: Axes, sizes: Sequence[float], categories: Sequence[str], height: float, labels: Sequence[str], **style: Any
) -> None:
    """Labelled bars in the colours of their categories, the first on top."""
    positions = range(len(sizes))
    axes.barh(positions, sizes, height, color=[category_colour(name) for name in categories])
    axes.set_yticks(positions, labels, **style)
    axes.set_ylim(len(sizes) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)


class Equal(NamedTuple):
    """Allocations of one size, category, name (numbers of repeated layers replaced) and line."""

    name: str
    category: str
    times: int
    bytes: int  # of all together


def equal_allocations(analysis: Analysis, device: DeviceAnalysis) -> list[Equal]:
    """All allocations alive at the peak, equal ones together, the largest sum first."""
    timeline, lines = analysis.timeline, SourceLines(analysis.timeline.stacks)
    rows, (module, modules) = timeline.rows, module_codes(timeline)
    alive = timeline.alive_at(device.number, device.peak.event)
    alive = alive[rows.bytes[alive] > 0]
    columns = (rows.bytes, analysis.labels.code, rows.name, module, rows.operator, rows.stack)
    keys, counts = np.unique(np.stack([column[alive] for column in columns], axis=1), axis=0, return_counts=True)
    sums: Counter[tuple[int, str, str]] = Counter()
    for (size, code, *codes, stack), count in zip(keys.tolist(), counts.tolist(), strict=True):
        name, path, operator = map(_word, (timeline.names, modules, timeline.operators), codes)
        label = _label(merge_layers(name) or path.rpartition(".")[2] or operator, lines.line(stack))
        sums[size, analysis.labels.names[code], label] += count
    found = [Equal(label, name, count, size * count) for (size, name, label), count in sums.items()]
    return sorted(found, key=lambda each: -each.bytes)


def _word(names: Sequence[str], number: int) -> str:
    return names[number] if number >= 0 else ""


def _label(name: str, line: str) -> str:
    """Label of an allocation: its name, module or operator, and its line."""
    words = [shortened(word, 40 if line and name else 72) for word in (name, line) if word]
    return "  ·  ".join(dict.fromkeys(words)) or "no stack recorded"


def _category_legend(axes: Axes, categories: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    names = list(dict.fromkeys(categories))
    patches = [Patch(color=category_colour(name), label=word_of(name)) for name in names]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.005, 1), borderaxespad=0)


def _draw_categories(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Bars of all categories at the peak, with marks for the maximum and the end."""
    shares = [share for share in device.by_category if share.bytes or share.max_bytes or share.end_bytes][:_BARS]
    height = 2.2 + 0.42 * max(len(shares), 5)
    with picture(path, "Memory by category", _heading(analysis, device), height=height) as figure:
        axes = figure.subplots()
        if not shares:
            draw_message(axes, "Nothing was alive.")
            return
        rights = [max(share.bytes, share.max_bytes or 0, share.end_bytes) for share in shares]
        unit = byte_axis(axes, max(rights), "x")
        labels = [word_of(share.name) + (" (inferred)" if share.basis == "inferred" else "") for share in shares]
        _rows(axes, [share.bytes / unit for share in shares], [share.name for share in shares], 0.7, labels)
        _marks(axes, shares, unit)
        for position, (share, right) in enumerate(zip(shares, rights, strict=True)):
            text = f"{format_bytes(share.bytes)}  {share.percent:.1f} %"
            if (share.max_bytes or 0) > 1.05 * share.bytes:
                # the mark is far from the end of the bar
                text = f"{text} at the peak, {format_bytes(share.max_bytes or 0)} at most"
            place = (right / unit, position)
            axes.annotate(text, place, xytext=(9, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set_xlim(0, max(rights) / unit * 1.42 or 1)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1.0), ncols=2, labelcolor=MUTED)


def _marks(axes: Axes, shares: Sequence[Share], unit: float) -> None:
    """Mark each category's maximum and its size at the end."""
    most = [(share.max_bytes / unit, position) for position, share in enumerate(shares) if share.max_bytes]
    x, y = [size for size, _ in most], [position for _, position in most]
    axes.scatter(x, y, marker="|", s=240, linewidths=2.2, color=INK, label="most at any moment")
    end = [share.end_bytes / unit for share in shares]
    style: dict[str, Any] = {"marker": "o", "s": 26, "facecolor": "white", "edgecolor": INK, "zorder": 3}
    axes.scatter(end, range(len(end)), label="at the end", **style)


def _draw_sizes(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Histograms of used and of free blocks: counts and bytes."""
    sizes = block_sizes(analysis, device.number)
    with picture(path, "Sizes of blocks", f"{_heading(analysis, device)} · classes are powers of two") as figure:
        (used_count, free_count), (used_bytes, free_bytes) = figure.subplots(2, 2, sharex="col")
        used_count.set_title(f"Active allocations {sizes.moment}: {int(sizes.active.blocks.sum()):,}")
        _bars(used_count, [sizes.active.blocks], [ALLOCATED])
        _bars(used_bytes, [sizes.active.bytes], [ALLOCATED], in_bytes=True)
        _classes(used_bytes, sizes.active)
        number = int(sizes.gaps.blocks.sum() + sizes.cached.blocks.sum())
        free_count.set_title(f"Free blocks at the end: {number:,}" if number else "Free blocks at the end")
        if not number:
            known = device.fragmentation.gaps is not None
            text = "No block is free." if known else "This recording does not list free blocks:\na snapshot would."
            draw_message(free_count, text)
            free_bytes.set_axis_off()
            return
        words = ("in gaps between used blocks", "in whole segments")
        _bars(free_count, [sizes.gaps.blocks, sizes.cached.blocks], [IN_GAPS, IN_SEGMENTS], words)
        _bars(free_bytes, [sizes.gaps.bytes, sizes.cached.bytes], [IN_GAPS, IN_SEGMENTS], in_bytes=True)
        _classes(free_bytes, sizes.gaps)


def _bars(
    axes: Axes, layers: list[I64], colours: list[str], words: Sequence[str] = (), *, in_bytes: bool = False
) -> None:
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
    # room for the legend above the bars
    axes.set_ylim(0, highest / unit * (1.38 if words else 1.08) or 1)
    axes.set_xlim(-0.7, len(layers[0]) - 0.3)
    if words:
        axes.legend(loc="upper left", ncols=2, columnspacing=1.2, handlelength=1, handleheight=1)


def _classes(axes: Axes, histogram: Histogram) -> None:
    """Label at most ``_TICKS`` size classes."""
    count = len(histogram.least)
    every = max(-(-count // _TICKS), 1)
    labels = [size_label(int(least)) for least in histogram.least[::every]]
    axes.set_xticks(range(0, count, every), labels, rotation=30, ha="right")
    axes.set_xlabel("size from")


def _draw_efficiency(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Efficiency at the peak, and parts of reserved memory at the end."""
    with picture(path, "Memory efficiency", _heading(analysis, device), height=5.6) as figure:
        gauge, bar, text = figure.subplots(3, 1, height_ratios=[1, 1, 1.5])
        if not device.reserved_bytes:
            draw_message(bar, "The file does not say how much was reserved: efficiency is not known.")
            gauge.set_axis_off()
            text.set_axis_off()
            return
        if device.efficiency_percent is None:
            draw_message(gauge, "No peak was recorded: how much of what is reserved it used is not known.")
        else:
            _gauge(gauge, device.efficiency_percent, device.grade)
        _parts(bar, device)
        _metrics(text, device)


def _gauge(axes: Axes, percent: float, grade: str) -> None:
    title = f"{percent:.1f} % of reserved memory was in use at the peak: {grade}"
    axes.set_title(title, color=GRADES[grade], fontsize=14)
    axes.barh(0, 100, 0.5, color="#F1F3F5")
    axes.barh(0, percent, 0.5, color=GRADES[grade])
    for limit in (_POOR, _EXCELLENT):
        axes.plot([limit, limit], [-0.4, 0.4], color=INK, linewidth=1.2)
    _as_bar(axes, 100.3)
    ticks = (0, 25, 50, 75, _POOR, _EXCELLENT)
    axes.set_xticks(ticks, [f"{tick} %" for tick in ticks])
    # the two limits are close to each other: align their labels outwards
    below, above = axes.get_xticklabels()[-2:]
    below.set_horizontalalignment("right")
    above.set_horizontalalignment("left")


def _as_bar(axes: Axes, length: float) -> None:
    """Make room for a single bar without a frame."""
    axes.set_xlim(0, length)
    axes.set_ylim(-0.45, 0.45)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _parts(axes: Axes, device: DeviceAnalysis) -> None:
    unit = byte_axis(axes, device.reserved_bytes or 1, "x")
    left = 0.0
    for part in reserved_parts(device):
        axes.barh(0, part.bytes / unit, 0.5, left, color=part.colour, label=part.name, edgecolor="white", linewidth=1)
        left += part.bytes / unit
    _as_bar(axes, left * 1.003)
    place = {"bbox_to_anchor": (-0.005, 1.0), "borderaxespad": 0}
    axes.legend(loc="lower left", ncols=4, handlelength=1, handleheight=1, **place)


def _metrics(axes: Axes, device: DeviceAnalysis) -> None:
    """Metrics in two rows, each label above its number."""
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
    for index, (word, size) in enumerate(figures):
        x, y = (index % 3) / 3, 0.92 - 0.52 * (index // 3)
        axes.text(x, y, word, color=MUTED, fontsize=10, va="top", transform=axes.transAxes)
        known = "not known" if size is None else format_bytes(size)
        colour = LIGHT if size is None else INK
        axes.text(x, y - 0.16, known, color=colour, fontsize=16, fontweight="bold", va="top", transform=axes.transAxes)
