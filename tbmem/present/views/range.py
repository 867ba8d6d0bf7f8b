"""What was allocated, freed and alive in a range of a recording (``recordings.Brushed``)."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.plots.allocation_bands import brush
from tbmem.analysis.recordings.breakdown import sums
from tbmem.model.columns import I64
from tbmem.present.palette import category_colour
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_schema import Brushed, Sum
from tbmem.present.views.recording_view import Stretch, Subject, stretch_of
from tbmem.present.views.tensors import Words, tensor_columns

LIMIT = 50
MOST = 500


def brushed_view(
    subject: Subject,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    limit: int = LIMIT,
) -> Brushed:
    """What happened in a range.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    one = subject.device(device)
    part = stretch_of(subject, one.number, axis, begin, end)
    curve = subject.curve(one.number)
    first = max(int(np.searchsorted(curve.event, part.before, side="right")) - 1, 0)
    after = max(int(np.searchsorted(curve.event, part.last, side="right")), first + 1)
    found = brush(subject.analysis.timeline, one.number, part.before, part.last)
    words = Words(subject)
    allocated, freed, alive, throughout = (
        _sum(subject, which, part, words, min(limit, MOST))
        for which in (found.allocated, found.freed, found.alive, found.throughout)
    )
    return {
        "head": subject.head(one),
        "axis": part.about(),
        "at_begin": int(curve.bytes[first]),
        "at_end": int(curve.bytes[after - 1]),
        "highest": int(curve.bytes[first:after].max()),
        "allocated": allocated,
        "freed": freed,
        "alive": alive,
        "throughout": throughout,
        "empty": None if one.events else NOTHING_RECORDED,
    }


def _sum(subject: Subject, which: I64, part: Stretch, words: Words, limit: int) -> Sum:
    rows, labels = subject.analysis.timeline.rows, subject.analysis.labels
    size = rows.bytes[which]
    by_code = sums(labels.code[which], size, len(labels.names))
    filled = np.flatnonzero(by_code)
    filled = filled[np.argsort(-by_code[filled], kind="stable")]
    names = [labels.names[number] for number in filled.tolist()]
    largest = which[np.argsort(-size, kind="stable")[:limit]]
    return {
        "bytes": int(size.sum()),
        "count": len(which),
        "categories": names,
        "colours": [category_colour(name) for name in names],
        "by_category": by_code[filled].tolist(),
        "largest": tensor_columns(subject, largest, part, words),
    }
