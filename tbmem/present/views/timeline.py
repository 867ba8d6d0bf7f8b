"""Memory over time, stacked by category and by single allocations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tbmem.analysis.plots.stacked_series import Bands, Layers, bands_of, layers_of
from tbmem.analysis.recordings.result import DeviceAnalysis
from tbmem.model.category import Category, Phase, word_of
from tbmem.model.columns import I64
from tbmem.model.timeline_tables import MarkKind, RangeKind
from tbmem.present.figures.timeline import Span, spans
from tbmem.present.palette import LIGHT, PHASES, category_colour
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_view import EventRange, RecordingView, columns_of, rounded, select_range
from tbmem.present.views.tensors import RowLabels

POINTS = 2000
LARGEST = 300
MOST_BANDS = 2500
_LEAST_WIDTH = 0.001


def timeline_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    points: int = POINTS,
    largest: int = LARGEST,
) -> dict[str, Any]:
    """Memory over time; at each x the categories add up to ``total``.

    ``points`` is twice the number of columns that the range from ``begin`` to ``end``, in x, is drawn in: of each the
    highest, lowest and last moment are kept. ``largest`` allocations have a band of their own.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    selected = recording.device(device)
    shown_range = select_range(recording, selected.number, axis, begin, end)
    curve = recording.curve(selected.number)
    between = None if shown_range.is_full else (shown_range.before, shown_range.last)
    layers = _layers(recording, selected.number, shown_range, between, points)
    bands = bands_of(recording.analysis, selected.number, layers, min(largest, MOST_BANDS), between)
    inside = (curve.event > shown_range.before) & (curve.event <= shown_range.last)
    return {
        "head": recording.head(selected),
        "axis": shown_range.axis_info(),
        "x": shown_range.x(layers.event),
        "names": list(layers.names),  # the lowest layer first
        "words": _words(selected, layers),
        "colours": [category_colour(name) for name in layers.names],
        "bytes": layers.bytes.tolist(),
        "total": layers.total.tolist(),
        "reserved": None if layers.reserved is None else layers.reserved.tolist(),
        "capacity": selected.total_bytes,
        "phases": _phases(layers, shown_range),
        "steps": _steps(recording, selected, layers, shown_range),
        "marks": _marks(recording, selected, shown_range),
        "peak": peak_of(recording, selected, shown_range.axis),
        "points": int(inside.sum()),  # changes in the range; more than ``x`` has where it was thinned
        "allocations": _allocations(recording, shown_range, layers, bands),
        "empty": None if selected.events else NOTHING_RECORDED,
    }


def _words(device: DeviceAnalysis, layers: Layers) -> list[str]:
    """Names of the layers; of torch's categories those that are only inferred say so."""
    inferred = {share.name for share in device.by_category if share.basis == "inferred"} & set(Category.__members__)
    return [word_of(name) + " (inferred)" * (name in inferred) for name in layers.names]


def _layers(
    recording: RecordingView, device: int, shown_range: EventRange, between: tuple[int, int] | None, points: int
) -> Layers:
    columns = max(points // 2, 2)
    return layers_of(
        recording.analysis,
        device,
        intervals=columns,
        between=between,
        curve=recording.curve(device),
        stacking=recording.stacking(device),
        cut=lambda event: shown_range.columns(event, columns),
    )


def peak_of(recording: RecordingView, device: DeviceAnalysis, axis: str) -> dict[str, Any]:
    """The peak of the whole recording."""
    (x,) = recording.clock(device.number).x(np.array([device.peak.event]), axis).tolist()
    fields = ("bytes", "event", "step", "phase", "line")
    return {"x": round(x, 6), **{name: getattr(device.peak, name) for name in fields}}


def _phases(layers: Layers, shown_range: EventRange) -> dict[str, list[Any]]:
    x = np.array(shown_range.x(layers.event))
    phase_spans = spans(layers.phase, x, least=_LEAST_WIDTH * (shown_range.end - shown_range.begin))
    names = [Phase(span.value).name for span in phase_spans]
    return _spans(phase_spans, names, [PHASES.get(name, LIGHT) for name in names])


def _steps(
    recording: RecordingView, device: DeviceAnalysis, layers: Layers, shown_range: EventRange
) -> dict[str, list[Any]]:
    """Steps from the ranges of the recording, or without them from the steps of its allocations."""
    ranges = recording.analysis.timeline.ranges
    is_step = (ranges.kind == RangeKind.STEP) & ((ranges.device < 0) | (ranges.device == device.number))
    if is_step.any() and len(shown_range.clock.event_ns):
        rows = ranges.take(is_step)
        begin, end = shown_range.x_of_time(rows.begin_ns), shown_range.x_of_time(rows.end_ns)
        end = np.where(rows.end_ns < 0, shown_range.end, end)
        shown = (end >= shown_range.begin) & (begin <= shown_range.end)
        labels = [f"step {number}" for number in rows.step[shown].tolist()]
        begins, ends = (rounded(np.clip(x[shown], shown_range.begin, shown_range.end)) for x in (begin, end))
        return {"begin": begins, "end": ends, "label": labels, "colour": [""] * len(labels)}
    step_spans = [span for span in spans(layers.step, np.array(shown_range.x(layers.event))) if span.value >= 0]
    return _spans(step_spans, [f"step {span.value}" for span in step_spans], [""] * len(step_spans))


def _spans(axis_spans: Sequence[Span], labels: list[str], colours: list[str]) -> dict[str, list[Any]]:
    return {**columns_of(axis_spans, "begin", "end"), "label": labels, "colour": colours}


def _marks(recording: RecordingView, device: DeviceAnalysis, shown_range: EventRange) -> dict[str, list[Any]]:
    """Out-of-memory errors and snapshots in the range."""
    marks = recording.analysis.timeline.marks
    shown = (marks.device == device.number) & (marks.event > shown_range.before) & (marks.event <= shown_range.last)
    rows = marks.take(shown)
    return {
        "x": shown_range.x(rows.event),
        "kind": [MarkKind(kind).name.lower() for kind in rows.kind.tolist()],
        "bytes": rows.bytes.tolist(),  # of the failed request
        "device_free": rows.device_free_bytes.tolist(),
    }


def _allocations(recording: RecordingView, shown_range: EventRange, layers: Layers, bands: Bands) -> dict[str, Any]:
    """The allocations that cover most of the chart, each a band in the layer of its category.

    The other allocations of a layer are drawn on top of its bands, up to ``bytes``. ``layer``, ``first``, ``last``,
    ``label``, ``line`` and ``module`` of a band are indices into ``names``, ``x`` (the number of points if it stays
    alive), ``labels``, ``lines`` and ``modules``.
    """
    rows, row_labels = recording.analysis.timeline.rows, RowLabels(recording)
    labels, label = _band_labels(row_labels, bands.row)
    lines, line = row_labels.table("line", bands.row)
    modules, module = row_labels.table("module", bands.row)
    begin, free = rows.alloc_event[bands.row], rows.free_event[bands.row]
    freed_here = (free >= 0) & (free <= shown_range.last)
    columns = {
        "row": bands.row.tolist(),
        "bytes": rows.bytes[bands.row].tolist(),
        "layer": bands.layer.tolist(),
        "first": bands.first.tolist(),
        "last": bands.last.tolist(),
        "x0": shown_range.x(np.maximum(begin, shown_range.before)),
        "x1": rounded(np.where(freed_here, shown_range.x(free), shown_range.end)),
        "before": (begin <= shown_range.before).tolist(),
        "alive": (free < 0).tolist(),  # at the end of the recording
        "label": label,
        "line": line,
        "module": module,
    }
    return {
        "labels": labels,
        "lines": lines,
        "modules": modules,
        "bands": columns,
        "unlisted": layers.unlisted.tolist(),  # by layer: bytes without a listed allocation, present all the time
        "shown": len(bands.row),
        "count": bands.alive,
    }


def _band_labels(row_labels: RowLabels, rows: I64) -> tuple[list[str], list[int]]:
    """The name, else module, else operator of each band: a table of labels and each band's index in it."""
    columns = [row_labels.of(column, rows) for column in ("name", "module", "operator")]
    labels = [next(filter(None, candidates), "") for candidates in zip(*columns, strict=True)]
    table = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return list(table), [table[label] for label in labels]
