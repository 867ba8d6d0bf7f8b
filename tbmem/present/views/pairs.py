"""A comparison, or a prediction and a measurement, goes in; columns and curves come out (``runs.Compare``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tbmem.analysis.comparison import Change, Comparison, DeviceComparison, Figure, changes
from tbmem.analysis.thinning import thinned
from tbmem.model.timeline_tables import RangeKind
from tbmem.present.console import device_label
from tbmem.present.views.runs import (
    Changes,
    Compare,
    ComparedDevice,
    Empty,
    EstimateCurve,
    FileItem,
    Headline,
    StackChanges,
)
from tbmem.present.views.subject import Subject

_CHANGES = 300
_STACKS = 100
_SAME_PERCENT = 1.0
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


def headline(comparison: Comparison) -> Headline:
    """The largest change of all, and the largest of those that went the other way."""
    figures = [figure for figure in comparison.figures if abs(figure.change.growth) >= _SAME_PERCENT]
    sides = f"{comparison.after} against {comparison.before}"
    if not figures:
        return {"label": "SAME", "grew": False, "text": f"{sides}: no figure changed by 1 % or more."}
    first = figures[0]
    grew = first.change.bytes > 0
    opposite = next((figure for figure in figures if (figure.change.bytes > 0) is not grew), None)
    told = [_told(figure, comparison) for figure in (first, opposite) if figure is not None]
    return {"label": "GREW" if grew else "SHRANK", "grew": grew, "text": f"{sides}: {'; '.join(told)}."}


def _told(figure: Figure, comparison: Comparison) -> str:
    several = len({one.name for one in (*comparison.devices, *comparison.runs)}) > 1
    place = f" of {device_label(figure.device)}" if several else ""
    return f"{figure.words}{place} {figure.change.text}"


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
    kept = found[:most]
    return {
        "name": [one.name for one in kept],
        "before": [one.before for one in kept],
        "after": [one.after for one in kept],
        "change": [one.bytes for one in kept],
        "percent": [one.percent for one in kept],
        "percent_text": [one.percent_text for one in kept],
    }


def _stacks_of(found: Sequence[Change], most: int) -> StackChanges:
    return {**changes_of(found, most), "frames": [list(one.stack) for one in found[:most]]}


def estimate_curve(subject: Subject, device: str | None, points: int) -> EstimateCurve:
    """A recording's curve over the share of its events, 0 to 100."""
    one = subject.device(device)
    curve = subject.curve(one.number)
    kept = thinned(curve.bytes, points)
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
