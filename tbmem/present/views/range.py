"""What was allocated, freed and alive in a range of a recording."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbmem.analysis.plots.stacked_series import brush
from tbmem.analysis.recordings.breakdown import sums
from tbmem.model.columns import I64
from tbmem.present.palette import category_colour
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_view import EventRange, RecordingView, select_range
from tbmem.present.views.tensors import RowLabels

LIMIT = 50
MOST = 1_000_000


def brushed_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    limit: int = LIMIT,
) -> dict[str, Any]:
    """Sums and the largest allocations of a range.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    selected = recording.device(device)
    shown_range = select_range(recording, selected.number, axis, begin, end)
    curve = recording.curve(selected.number)
    first = max(int(np.searchsorted(curve.event, shown_range.before, side="right")) - 1, 0)
    after = max(int(np.searchsorted(curve.event, shown_range.last, side="right")), first + 1)
    brushed = brush(recording.analysis.timeline, selected.number, shown_range.before, shown_range.last)
    row_labels = RowLabels(recording)
    return {
        "head": recording.head(selected),
        "axis": shown_range.axis_info(),
        "at_begin": int(curve.bytes[first]),  # bytes, as the next two
        "at_end": int(curve.bytes[after - 1]),
        "highest": int(curve.bytes[first:after].max()),
        **{
            # of what was allocated, freed, allocated and not freed in the range, and of what was alive all the time
            name: _sum(recording, getattr(brushed, name), shown_range, row_labels, min(limit, MOST))
            for name in ("allocated", "freed", "alive", "throughout")
        },
        "empty": None if selected.events else NOTHING_RECORDED,
    }


def _sum(
    recording: RecordingView, rows: I64, shown_range: EventRange, row_labels: RowLabels, limit: int
) -> dict[str, Any]:
    labels = recording.analysis.labels
    size = recording.analysis.timeline.rows.bytes[rows]
    by_code = sums(labels.code[rows], size, len(labels.names))
    filled = np.flatnonzero(by_code)
    filled = filled[np.argsort(-by_code[filled], kind="stable")]
    names = [labels.names[number] for number in filled.tolist()]
    largest = rows[np.argsort(-size, kind="stable")[:limit]]
    return {
        "bytes": int(size.sum()),
        "count": len(rows),
        "categories": names,
        "colours": [category_colour(name) for name in names],
        "by_category": by_code[filled].tolist(),
        "largest": row_labels.columns(largest, shown_range),
    }
