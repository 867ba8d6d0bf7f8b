"""A recording and a range go in; each of its largest allocations as a band comes out (``recordings.Allocations``)."""

from __future__ import annotations

from functools import partial

import numpy as np

from tbmem.analysis.bands import Bands, bands_of
from tbmem.analysis.thinning import even_stretches, extremes
from tbmem.model.category import word_of
from tbmem.model.columns import I64
from tbmem.present.colours import category_colour
from tbmem.present.views.recordings import Allocations
from tbmem.present.views.recordings import Bands as BandColumns
from tbmem.present.views.subject import Stretch, Subject, stretch_of
from tbmem.present.views.tensors import Words
from tbmem.present.views.texts import NOTHING_RECORDED

LARGEST = 300
MOST = 5000
_CORNERS = 50_000
_PIXELS = 2000
_REST_POINTS = 1500


def allocations_view(
    subject: Subject,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    largest: int = LARGEST,
) -> Allocations:
    """The largest allocations as bands.

    Args:
        subject: The recording.
        device: Name; by default the main one.
        axis: ``time`` or ``event``.
        begin: From where, in x.
        end: Until where.
        largest: How many.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    one = subject.device(device)
    part = stretch_of(subject, one.number, axis, begin, end)
    timeline = subject.analysis.timeline
    bands = bands_of(timeline, one.number, part.before, part.last, min(largest, MOST), _CORNERS, partial(_pixels, part))
    rest_event, rest, total = _rest(subject, one.number, part, bands)
    words = Words(subject)
    names, code = words.table("category", bands.row)
    labels, label = _labels(words, bands.row)
    lines, line = words.table("line", bands.row)
    modules, module = words.table("module", bands.row)
    rows = timeline.rows
    columns: BandColumns = {
        "row": bands.row.tolist(),
        "bytes": rows.bytes[bands.row].tolist(),
        "x0": part.x(bands.begin),
        "x1": part.x(bands.end),
        "before": (rows.alloc_event[bands.row] <= part.before).tolist(),
        "alive": (rows.free_event[bands.row] < 0).tolist(),
        "category": code,
        "label": label,
        "line": line,
        "module": module,
        "start": bands.start.tolist(),
    }
    return {
        "head": subject.head(one),
        "axis": part.about(),
        "names": names,
        "words": [word_of(name) for name in names],
        "colours": [category_colour(name) for name in names],
        "labels": labels,
        "lines": lines,
        "modules": modules,
        "bands": columns,
        "corner_x": part.x(bands.corner),
        "corner_y": bands.base.tolist(),
        "rest_x": part.x(rest_event),
        "rest_bytes": rest.tolist(),
        "total": total.tolist(),
        "shown": len(bands.row),
        "largest": largest,
        "count": bands.found,
        "shown_bytes": int(rows.bytes[bands.row].sum()),
        "count_bytes": bands.bytes,
        "empty": None if bands.found else NOTHING_RECORDED,
    }


def _pixels(part: Stretch, event: I64) -> I64:
    """Which pixels events lie in."""
    x = part.clock.x(event, part.axis)
    span = part.end - part.begin or 1.0
    places: I64 = np.clip((x - part.begin) / span * _PIXELS, 0, _PIXELS).astype(np.int64)
    return places


def _labels(words: Words, which: I64) -> tuple[list[str], list[int]]:
    """Name, else module, else operator of each band, as a table."""
    columns = [words.of(column, which) for column in ("name", "module", "operator")]
    told = [next(filter(None, one), "") for one in zip(*columns, strict=True)]
    table = {word: number for number, word in enumerate(dict.fromkeys(told))}
    return list(table), [table[word] for word in told]


def _rest(subject: Subject, device: int, part: Stretch, bands: Bands) -> tuple[I64, I64, I64]:
    """Events, bytes of what is no band, and all bytes."""
    curve = subject.curve(device)
    first = max(int(np.searchsorted(curve.event, part.before, side="right")) - 1, 0)
    end = max(int(np.searchsorted(curve.event, part.last, side="right")), first + 1)
    event, total = curve.event[first:end], curve.bytes[first:end]
    if len(event) > 2 * _REST_POINTS:
        kept = extremes(total, even_stretches(len(event), _REST_POINTS))
        kept = np.unique(np.concatenate([[0], kept, [len(event) - 1]]))
        event, total = event[kept], total[kept]
    rows = subject.analysis.timeline.rows
    size, begin, free = rows.bytes[bands.row], rows.alloc_event[bands.row], rows.free_event[bands.row]
    shown = np.zeros(len(event) + 1, np.int64)
    np.add.at(shown, np.searchsorted(event, begin, side="left"), size)
    gone = free >= 0
    np.subtract.at(shown, np.searchsorted(event, free[gone], side="left"), size[gone])
    return event, np.maximum(total - np.cumsum(shown)[:-1], 0), total
