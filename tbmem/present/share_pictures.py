"""An analysis goes in; pictures of who holds the memory come out: overview, top consumers, breakdown by category."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tbmem.analysis.report import Allocation, Analysis, DeviceAnalysis, Share
from tbmem.model.category import word_of
from tbmem.present.canvas import byte_axis, picture, say
from tbmem.present.colours import (
    ALLOCATED,
    IN_GAPS,
    IN_SEGMENTS,
    INK,
    MUTED,
    PENDING,
    category_colour,
)
from tbmem.present.console import device_label
from tbmem.present.labels import shortened
from tbmem.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOP = 30
_SLICES = 9
_BARS = 16


class Part(NamedTuple):
    """A part of a whole."""

    name: str
    bytes: int
    colour: str


def heading(analysis: Analysis, device: DeviceAnalysis) -> str:
    """``'iter1_rank0 · GPU 0 · peak 11.57 GiB'``."""
    return f"{analysis.name} · {device_label(device.name)} · peak {format_bytes(device.peak.bytes)}"


def reserved_parts(device: DeviceAnalysis) -> list[Part]:
    """What reserved memory is used for at the end; empty if the file does not say."""
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


def category_parts(shares: Sequence[Share], most: int = _SLICES) -> list[Part]:
    """Categories at the peak, the smallest ones put together."""
    filled = [share for share in shares if share.bytes > 0]
    parts = [Part(word_of(one.name), one.bytes, category_colour(one.name)) for one in filled[:most]]
    if rest := sum(one.bytes for one in filled[most:]):
        parts.append(Part("all others", rest, category_colour("(other)")))
    return parts


def draw_overview(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Two rings: reserved memory at the end, and categories at the peak."""
    with picture(path, "Memory overview", heading(analysis, device)) as figure:
        left, right = figure.subplots(1, 2)
        left.set_title("Reserved memory at the end", loc="center")
        right.set_title("Categories at the peak", loc="center")
        _ring(left, reserved_parts(device), device.reserved_bytes or 0, "The file does not say\nhow much was reserved.")
        _ring(right, category_parts(device.by_category), device.peak.bytes, "Nothing was alive.")


def _ring(axes: Axes, parts: Sequence[Part], total: int, otherwise: str) -> None:
    if not parts or total <= 0:
        title = axes.get_title()
        say(axes, otherwise)
        axes.set_title(title, loc="center")
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
    # beside the slices small ones would write over each other
    axes.legend(wedges, words, loc="upper center", bbox_to_anchor=(0.5, -0.01), handlelength=1, handleheight=1)


def draw_top(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Bars of the largest allocations at the peak, in the colours of their categories."""
    top = device.top[:_TOP]
    height = 2.2 + 0.265 * max(len(top), 6)
    title = f"The {len(top)} largest allocations at the peak" if len(top) > 1 else "The largest allocation at the peak"
    with picture(path, title, heading(analysis, device), width=13, height=height) as figure:
        axes = figure.subplots()
        if not top:
            say(axes, "No allocation was alive at the peak.")
            return
        unit = byte_axis(axes, top[0].bytes, "x")
        places = range(len(top))
        axes.barh(places, [one.bytes / unit for one in top], 0.76, color=[category_colour(one.category) for one in top])
        for place, one in zip(places, top, strict=True):
            axes.text(one.bytes / unit, place, f" {format_bytes(one.bytes)}", va="center", fontsize=8.5)
        axes.set_yticks(places, [_what(one) for one in top], fontsize=8.5)
        axes.set_ylim(len(top) - 0.4, -0.6)
        axes.set_xlim(0, top[0].bytes / unit * 1.12 or 1)
        axes.spines["left"].set_visible(False)
        _categories_key(axes, [one.category for one in top])


def _what(one: Allocation) -> str:
    """Name in the model, and the line; the innermost word that is known."""
    name = one.name or (one.module.rpartition(".")[2] if one.module else "") or one.operator
    words = [shortened(word, 40 if one.line and name else 72) for word in (name, one.line) if word]
    return "  ·  ".join(dict.fromkeys(words)) or "no stack recorded"


def _categories_key(axes: Axes, categories: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    names = list(dict.fromkeys(categories))
    patches = [Patch(color=category_colour(name), label=word_of(name)) for name in names]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.005, 1), borderaxespad=0)


def draw_categories(analysis: Analysis, device: DeviceAnalysis, path: Path) -> None:
    """Bars of all categories: at the peak, and marks for the most at any moment and at the end."""
    shares = [share for share in device.by_category if share.bytes or share.max_bytes or share.end_bytes][:_BARS]
    height = 2.2 + 0.42 * max(len(shares), 5)
    with picture(path, "Memory by category", heading(analysis, device), height=height) as figure:
        axes = figure.subplots()
        if not shares:
            say(axes, "Nothing was alive.")
            return
        largest = max(max(one.bytes, one.max_bytes or 0, one.end_bytes) for one in shares)
        unit = byte_axis(axes, largest, "x")
        places = list(range(len(shares)))
        axes.barh(
            places, [one.bytes / unit for one in shares], 0.7, color=[category_colour(one.name) for one in shares]
        )
        _marks(axes, shares, unit)
        for place, one in zip(places, shares, strict=True):
            right = max(one.bytes, one.max_bytes or 0, one.end_bytes) / unit
            text = f"{format_bytes(one.bytes)}  {one.percent:.1f} %"
            if (one.max_bytes or 0) > 1.05 * one.bytes:
                # beside a mark that lies far from the bar's end
                text = f"{text} at the peak, {format_bytes(one.max_bytes or 0)} at most"
            axes.annotate(text, (right, place), xytext=(9, 0), textcoords="offset points", va="center", fontsize=9)
        labels = [word_of(one.name) + (" (inferred)" if one.basis == "inferred" else "") for one in shares]
        axes.set_yticks(places, labels)
        axes.set_ylim(len(shares) - 0.4, -0.6)
        axes.set_xlim(0, largest / unit * 1.42 or 1)
        axes.spines["left"].set_visible(False)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1.0), ncols=2, labelcolor=MUTED)


def _marks(axes: Axes, shares: Sequence[Share], unit: float) -> None:
    """What a bar at the peak does not show: the most at any moment, and what is left at the end."""
    most = [(place, one.max_bytes) for place, one in enumerate(shares) if one.max_bytes]
    axes.scatter(
        [size / unit for _, size in most],
        [place for place, _ in most],
        marker="|",
        s=240,
        linewidths=2.2,
        color=INK,
        label="most at any moment",
    )
    axes.scatter(
        [one.end_bytes / unit for one in shares],
        range(len(shares)),
        marker="o",
        s=26,
        facecolor="white",
        edgecolor=INK,
        label="at the end",
        zorder=3,
    )
