"""Memory over time, stacked by category and by single allocations (``recordings.Timeline``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbmem.analysis.plots.allocation_bands import Bands, bands_of
from tbmem.analysis.plots.stacked_series import Layers, layers_of
from tbmem.analysis.recordings.result import DeviceAnalysis
from tbmem.model.category import Phase, word_of
from tbmem.model.columns import I64
from tbmem.model.timeline_tables import MarkKind, RangeKind
from tbmem.present.figures.timeline import stretches
from tbmem.present.palette import LIGHT, PHASES, category_colour
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_schema import Allocations, Marks, PeakPoint, Stretches, Timeline
from tbmem.present.views.recording_schema import Bands as BandColumns
from tbmem.present.views.recording_view import Stretch, Subject, numbers, stretch_of
from tbmem.present.views.tensors import Words

POINTS = 2000
LARGEST = 300
MOST_BANDS = 2500
_LEAST_WIDTH = 0.001


def timeline_view(
    subject: Subject,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    points: int = POINTS,
    largest: int = LARGEST,
) -> Timeline:
    """Memory over time.

    Args:
        subject: The recording.
        device: Name; by default the main one.
        axis: ``time`` or ``event``.
        begin: From where, in x.
        end: Until where.
        points: Twice the columns that the range is drawn in: of each the highest, lowest and last moment are kept.
        largest: Allocations that have a band of their own, at most ``MOST_BANDS``.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    one = subject.device(device)
    part = stretch_of(subject, one.number, axis, begin, end)
    curve = subject.curve(one.number)
    between = None if part.whole else (part.before, part.last)
    columns = max(points // 2, 2)
    layers = layers_of(
        subject.analysis,
        one.number,
        intervals=columns,
        between=between,
        curve=curve,
        stacking=subject.stacking(one.number),
        cut=lambda event: part.columns(event, columns),
    )
    bands = bands_of(subject.analysis, one.number, layers, min(largest, MOST_BANDS), between)
    event = layers.event
    inside = (curve.event > part.before) & (curve.event <= part.last)
    return {
        "head": subject.head(one),
        "axis": part.about(),
        "x": part.x(event),
        "names": list(layers.names),
        "words": [word_of(name) for name in layers.names],
        "colours": [category_colour(name) for name in layers.names],
        "bytes": layers.bytes.tolist(),
        "total": layers.total.tolist(),
        "reserved": None if layers.reserved is None else layers.reserved.tolist(),
        "capacity": one.total_bytes,
        "phases": _phases(layers, part),
        "steps": _steps(subject, one, layers, part),
        "marks": marks_of(subject, one, part),
        "peak": peak_of(subject, one, part.axis),
        "points": int(inside.sum()),
        "allocations": _bands_part(subject, part, layers, bands),
        "empty": None if one.events else NOTHING_RECORDED,
    }


def peak_of(subject: Subject, device: DeviceAnalysis, axis: str) -> PeakPoint:
    """The highest moment of the whole recording."""
    peak = device.peak
    return {
        "x": round(float(subject.clock(device.number).x(np.array([peak.event]), axis)[0]), 6),
        "bytes": peak.bytes,
        "event": peak.event,
        "step": peak.step,
        "phase": peak.phase,
        "line": peak.line,
    }


def _phases(layers: Layers, part: Stretch) -> Stretches:
    x = np.array(part.x(layers.event))
    found = stretches(layers.phase, x, least=_LEAST_WIDTH * (part.end - part.begin))
    names = [Phase(one.value).name for one in found]
    return _stretches(
        [one.begin for one in found], [one.end for one in found], names, [PHASES.get(name, LIGHT) for name in names]
    )


def _steps(subject: Subject, device: DeviceAnalysis, layers: Layers, part: Stretch) -> Stretches:
    """As the recording's own ranges say it, else by the steps of its allocations."""
    ranges = subject.analysis.timeline.ranges
    own = (ranges.kind == RangeKind.STEP) & ((ranges.device < 0) | (ranges.device == device.number))
    if own.any() and len(part.clock.event_ns):
        rows = ranges.take(own)
        begin, end = part.x_of_time(rows.begin_ns), part.x_of_time(rows.end_ns)
        end = np.where(rows.end_ns < 0, part.end, end)
        shown = (end >= part.begin) & (begin <= part.end)
        labels = [f"step {number}" for number in rows.step[shown].tolist()]
        begins, ends = (numbers(np.clip(x[shown], part.begin, part.end)) for x in (begin, end))
        return _stretches(begins, ends, labels, [""] * len(labels))
    found = [one for one in stretches(layers.step, np.array(part.x(layers.event))) if one.value >= 0]
    labels = [f"step {one.value}" for one in found]
    return _stretches([one.begin for one in found], [one.end for one in found], labels, [""] * len(labels))


def _stretches(begin: Sequence[float], end: Sequence[float], label: list[str], colour: list[str]) -> Stretches:
    return {"begin": list(begin), "end": list(end), "label": label, "colour": colour}


def marks_of(subject: Subject, device: DeviceAnalysis, part: Stretch) -> Marks:
    """Out of memory, snapshots taken."""
    marks = subject.analysis.timeline.marks
    shown = (marks.device == device.number) & (marks.event > part.before) & (marks.event <= part.last)
    rows = marks.take(shown)
    return {
        "x": part.x(rows.event),
        "kind": [MarkKind(kind).name.lower() for kind in rows.kind.tolist()],
        "bytes": rows.bytes.tolist(),
        "device_free": rows.device_free_bytes.tolist(),
    }


def _bands_part(subject: Subject, part: Stretch, layers: Layers, bands: Bands) -> Allocations:
    """Bands with what a user should know of each."""
    rows, words = subject.analysis.timeline.rows, Words(subject)
    labels, label = _labels(words, bands.row)
    lines, line = words.table("line", bands.row)
    modules, module = words.table("module", bands.row)
    begin, free = rows.alloc_event[bands.row], rows.free_event[bands.row]
    freed_here = (free >= 0) & (free <= part.last)
    columns: BandColumns = {
        "row": bands.row.tolist(),
        "bytes": rows.bytes[bands.row].tolist(),
        "layer": bands.layer.tolist(),
        "first": bands.first.tolist(),
        "last": bands.last.tolist(),
        "x0": part.x(np.maximum(begin, part.before)),
        "x1": numbers(np.where(freed_here, part.x(free), part.end)),
        "before": (begin <= part.before).tolist(),
        "alive": (free < 0).tolist(),
        "label": label,
        "line": line,
        "module": module,
    }
    return {
        "labels": labels,
        "lines": lines,
        "modules": modules,
        "bands": columns,
        "unlisted": layers.unlisted.tolist(),
        "shown": len(bands.row),
        "count": bands.alive,
    }


def _labels(words: Words, which: I64) -> tuple[list[str], list[int]]:
    """Name, else module, else operator of each band, as a table."""
    columns = [words.of(column, which) for column in ("name", "module", "operator")]
    told = [next(filter(None, one), "") for one in zip(*columns, strict=True)]
    table = {word: number for number, word in enumerate(dict.fromkeys(told))}
    return list(table), [table[word] for word in told]
