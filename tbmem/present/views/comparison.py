"""Runs and recordings compared: ``runs.Compare``, ``runs.Sides`` and the curves of ``runs.Estimated``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tbmem.analysis.plots.curves import downsampled
from tbmem.analysis.runs.comparison import Change, Comparison, DeviceComparison, OddOne, changes
from tbmem.model.category import word_of
from tbmem.model.timeline_tables import RangeKind
from tbmem.present.lines import device_label
from tbmem.present.palette import category_colour
from tbmem.present.text.comparison_headline import headline
from tbmem.present.views.recording_schema import columns_of
from tbmem.present.views.recording_view import Subject
from tbmem.present.views.run_schema import (
    Changes,
    Compare,
    ComparedDevice,
    Curves,
    Empty,
    EstimateCurve,
    FileItem,
    Sides,
    StackChanges,
)

_CHANGES = 300
_STACKS = 100
_POINTS = 1000
_CATEGORIES = 14
"""Per cent below which two runs are called the same."""


def compare_view(
    comparison: Comparison,
    files: tuple[str | None, str | None],
    *,
    most: int = _CHANGES,
    errors: Sequence[FileItem] = (),
    empty: Empty | None = None,
) -> Compare:
    """What grew from one to the other."""
    runs = [_device(one, most) for one in comparison.runs]
    recordings = [_device(one, most) for one in comparison.devices]
    grown = comparison.grown_percent
    return {
        "before": comparison.before,
        "after": comparison.after,
        "before_file": files[0],
        "after_file": files[1],
        "grown_percent": grown if math.isfinite(grown) else None,
        "headline": headline(comparison) if runs or recordings else None,
        "runs": runs,
        "recordings": recordings,
        "notes": list(comparison.notes),
        "errors": list(errors),
        "empty": None if runs or recordings else empty,
    }


def _device(one: DeviceComparison, most: int) -> ComparedDevice:
    return {
        "device": one.name,
        "before_device": one.before_name,
        "name": device_label(one.name),
        "totals": changes_of(one.totals, most),
        "by_category": changes_of(one.by_category, most),
        "by_module": changes_of(one.by_module, most),
        "by_line": changes_of(one.by_line, most),
        "by_stack": _stacks_of(one.by_stack, min(most, _STACKS)),
        "by_operator": changes_of(one.by_operator, most),
    }


def changes_of(found: Sequence[Change], most: int = _CHANGES) -> Changes:
    """Changes as columns."""
    columns: Changes = columns_of(found[:most], "name", "before", "after", "percent", "percent_text")
    columns["change"] = [one.bytes for one in found[:most]]
    return columns


def _stacks_of(found: Sequence[Change], most: int) -> StackChanges:
    return {**changes_of(found, most), "frames": [list(one.stack) for one in found[:most]]}


def estimate_curve(subject: Subject, device: str | None, points: int) -> EstimateCurve:
    """A recording's curve over the share of its events, 0 to 100."""
    one = subject.device(device)
    curve = subject.curve(one.number)
    kept = downsampled(curve.bytes, points)
    share = 100 / max(one.events - 1, 1)
    return {
        "file": subject.file,
        "device": one.name,
        "x": np.round(np.maximum(curve.event[kept], 0) * share, 4).tolist(),
        "bytes": curve.bytes[kept].tolist(),
        "peak": one.peak.bytes,
        "peak_x": round(max(one.peak.event, 0) * share, 4),
        "steps": [round(event * share, 4) for event in _step_events(subject, one.number)],
    }


def _step_events(subject: Subject, device: int) -> list[int]:
    """First event of each step."""
    timeline = subject.analysis.timeline
    clock = subject.clock(device)
    steps = timeline.ranges.take(timeline.ranges.kind == RangeKind.STEP)
    if len(steps) and len(clock.event_ns):
        found: list[int] = np.searchsorted(clock.event_ns[1:], steps.begin_ns, side="left").tolist()
        return found
    rows = timeline.rows
    own = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0) & (rows.step >= 0))
    own = own[np.argsort(rows.alloc_event[own], kind="stable")]
    _, first = np.unique(rows.step[own], return_index=True)
    return [int(event) for event in rows.alloc_event[own[first]]]


def predicted_categories(predicted: Subject, measured: Subject) -> Changes:
    """Categories at the two peaks."""
    return changes_of(changes(predicted.analysis.main.by_category, measured.analysis.main.by_category))


class Side(NamedTuple):
    """What is shown of one recording: its main device; small enough to be sent from process to process."""

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


def side_of(subject: Subject) -> Side:
    """One of the recordings."""
    main = subject.analysis.main
    curve, clock = subject.curve(main.number), subject.clock(main.number)
    kept = downsampled(curve.bytes, _POINTS)
    event = curve.event[kept]
    return Side(
        run=subject.run,
        file=subject.file,
        name=subject.name,
        device=main.name,
        peak=main.peak.bytes,
        reserved=main.reserved_bytes,
        efficiency_percent=main.efficiency_percent,
        suspects=len(main.suspects),
        categories={share.name: share.bytes for share in main.by_category},
        event=event.tolist(),
        ms=np.round(clock.x(event, "time"), 6).tolist() if "time" in clock.axes else None,
        bytes=curve.bytes[kept].tolist(),
    )


def sides_view(sides: Sequence[Side], odd: OddOne | None = None, links: Sequence[str] = ()) -> Sides:
    """All of them.

    Args:
        sides: In the order in which they are shown.
        odd: The one that stands out.
        links: Address of each one's own page, relative; without them their views are in the page that is open.
    """
    names = _categories(sides)
    fields = ("run", "file", "name", "device", "peak", "reserved", "efficiency_percent", "suspects")
    columns: Sides = columns_of(sides, *fields) | {
        "link": list(links) or [""] * len(sides),
        "odd": [odd is not None and one.name == odd.name for one in sides],
        "message": None if odd is None else odd.message,
        "categories": names,
        "words": [word_of(name) for name in names],
        "colours": [category_colour(name) for name in names],
        "bytes": [[one.categories.get(name, 0) for one in sides] for name in names],
        "others": [sum(size for name, size in one.categories.items() if name not in names) for one in sides],
        "curves": _curves(sides),
    }
    return columns


def _categories(sides: Sequence[Side]) -> list[str]:
    """Those that are large somewhere, the largest first: a colour means the same in every row."""
    most: dict[str, int] = {}
    for one in sides:
        for name, size in one.categories.items():
            most[name] = max(most.get(name, 0), size)
    return sorted((name for name in most if most[name]), key=lambda name: -most[name])[:_CATEGORIES]


def _curves(sides: Sequence[Side]) -> Curves:
    """Over time where all of them have times, over events else."""
    times = [one.ms for one in sides if one.ms is not None]
    by_time = len(times) == len(sides)
    return {
        "axis": "time" if by_time else "event",
        "x": [list(one) for one in times] if by_time else [[float(at) for at in one.event] for one in sides],
        "bytes": [list(one.bytes) for one in sides],
    }
