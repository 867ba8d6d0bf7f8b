"""Comparisons of runs and recordings, and of an estimate with a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.plots.curves import downsampled
from tbmem.analysis.runs.comparison import FIGURE_WORDS, Change, Comparison, DeviceComparison, OddOne
from tbmem.model.category import word_of
from tbmem.present.lines import device_label
from tbmem.present.palette import category_colour
from tbmem.present.text.comparison_headline import headline
from tbmem.present.views.recording_view import RecordingView, columns_of
from tbmem.present.views.run_schema import Empty, FileItem

_CHANGES = 300
_STACKS = 100
_BREAKDOWNS = ("by_category", "by_module", "by_line", "by_operator")
_POINTS = 1000
_CATEGORIES = 14


def compare_view(
    comparison: Comparison,
    files: tuple[str | None, str | None],
    *,
    most: int = _CHANGES,
    errors: Sequence[FileItem] = (),
    empty: Empty | None = None,
) -> dict[str, Any]:
    """Changes between two runs or recordings."""
    runs = [_device(device, most) for device in comparison.runs]
    recordings = [_device(device, most) for device in comparison.devices]
    grown = comparison.grown_percent
    return {
        "before": comparison.before,
        "after": comparison.after,
        "before_file": files[0],
        "after_file": files[1],
        "grown_percent": grown if math.isfinite(grown) else None,  # of any total; None if it is new
        "headline": headline(comparison) if runs or recordings else None,
        "runs": runs,
        "recordings": recordings,
        "notes": list(comparison.notes),
        "errors": list(errors),
        "empty": None if runs or recordings else empty,
    }


def _device(device: DeviceComparison, most: int) -> dict[str, Any]:
    stacks = device.by_stack[: min(most, _STACKS)]
    return {
        "device": device.name,
        "before_device": device.before_name,
        "name": device_label(device.name),
        **{name: _changes(getattr(device, name), most) for name in _BREAKDOWNS},
        "totals": {
            **_changes(device.totals, most),
            "words": [FIGURE_WORDS[change.name] for change in device.totals[:most]],
        },
        "by_stack": {**_changes(stacks, most), "frames": [list(change.stack) for change in stacks]},
    }


def _changes(changed: Sequence[Change], most: int = _CHANGES) -> dict[str, list[Any]]:
    """Changes as columns, the largest first."""
    columns = columns_of(changed[:most], "name", "before", "after", "percent", "percent_text")
    return columns | {"change": [change.bytes for change in changed[:most]]}


class Side(NamedTuple):
    """One recording of a side-by-side comparison: its main device, small enough to be sent between processes."""

    run: str
    file: str
    name: str
    device: str
    peak: int
    reserved: int | None
    efficiency_percent: float | None
    suspects: int
    categories: Mapping[str, int]
    """Bytes at the peak, the largest first."""
    event: Sequence[int]
    """Of each point of the curve."""
    ms: Sequence[float] | None
    """The same as milliseconds since the recording began, where it has times."""
    bytes: Sequence[int]


def side_of(recording: RecordingView) -> Side:
    """The side of a recording."""
    main = recording.analysis.main
    curve, clock = recording.curve(main.number), recording.clock(main.number)
    points_shown = downsampled(curve.bytes, _POINTS)
    event = curve.event[points_shown]
    return Side(
        run=recording.run,
        file=recording.file,
        name=recording.name,
        device=main.name,
        peak=main.peak.bytes,
        reserved=main.reserved_bytes,
        efficiency_percent=main.efficiency_percent,
        suspects=len(main.suspects),
        categories={share.name: share.bytes for share in main.by_category},
        event=event.tolist(),
        ms=np.round(clock.x(event, "time"), 6).tolist() if "time" in clock.axes else None,
        bytes=curve.bytes[points_shown].tolist(),
    )


def sides_view(sides: Sequence[Side], odd: OddOne | None = None, links: Sequence[str] = ()) -> dict[str, Any]:
    """Recordings side by side; without ``links`` to the page of each, their views are in the current page."""
    names = _categories(sides)
    # over time (x is milliseconds) if all recordings have times
    axis = "time" if all(side.ms is not None for side in sides) else "event"
    x = [list(side.ms or ()) if axis == "time" else list(map(float, side.event)) for side in sides]
    fields = ("run", "file", "name", "device", "peak", "reserved", "efficiency_percent", "suspects")
    return columns_of(sides, *fields) | {
        "link": list(links) or [""] * len(sides),
        "odd": [odd is not None and side.name == odd.name for side in sides],
        "message": None if odd is None else odd.message,
        "categories": names,
        "words": [word_of(name) for name in names],
        "colours": [category_colour(name) for name in names],
        # at the peak, by category, then by recording
        "bytes": [[side.categories.get(name, 0) for side in sides] for name in names],
        "others": [sum(size for name, size in side.categories.items() if name not in names) for side in sides],
        "curves": {"axis": axis, "x": x, "bytes": [list(side.bytes) for side in sides]},
    }


def _categories(sides: Sequence[Side]) -> list[str]:
    """The categories that are largest in any recording, so that a colour means the same in every row."""
    most: dict[str, int] = {}
    for side in sides:
        for name, size in side.categories.items():
            most[name] = max(most.get(name, 0), size)
    return sorted((name for name in most if most[name]), key=lambda name: -most[name])[:_CATEGORIES]
