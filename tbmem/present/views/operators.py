"""What each operator allocated and freed in a range of a recording (``recording_schema.Operators``)."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.operator_table import OperatorTable, operator_table, table_of_rows
from tbmem.model.columns import I64
from tbmem.present.views.empty_states import NO_OPERATORS
from tbmem.present.views.recording_schema import Operators
from tbmem.present.views.recording_view import EventRange, RecordingView, select_range


def operators_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
) -> Operators:
    """The table of operators.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    selected = recording.device(device)
    shown_range = select_range(recording, selected.number, axis, begin, end)
    table = _table(recording, selected.number, shown_range)
    order = np.argsort(-table.self_increase, kind="stable")
    return {
        "head": recording.head(selected),
        "axis": shown_range.axis_info(),
        "columns": {
            "name": [table.name[row] for row in order.tolist()],
            "calls": _column(table.calls, order),
            "size_increase": _column(table.increase, order),
            "self_size_increase": table.self_increase[order].tolist(),
            "allocations": _column(table.allocations, order),
            "self_allocations": table.self_allocations[order].tolist(),
            "allocated": _column(table.allocated, order),
            "self_allocated": table.self_allocated[order].tolist(),
        },
        "empty": None if table.name else NO_OPERATORS,
    }


def _table(recording: RecordingView, device: int, shown_range: EventRange) -> OperatorTable:
    if recording.calls is None:
        rows = recording.analysis.timeline.rows
        on_device = rows.device == device
        allocated = on_device & (rows.alloc_event > shown_range.before) & (rows.alloc_event <= shown_range.last)
        freed = on_device & (rows.free_event > shown_range.before) & (rows.free_event <= shown_range.last)
        return table_of_rows(recording.analysis.timeline, allocated, freed)
    if shown_range.is_full:
        return operator_table(recording.calls, device)
    if shown_range.axis == "time":
        ends = (
            np.round(np.array([shown_range.begin, shown_range.end]) * 1e6).astype(np.int64)
            + shown_range.clock.origin_ns
        )
    else:
        ends = shown_range.clock.event_ns[[shown_range.before + 1, shown_range.last + 1]]
    return operator_table(recording.calls, device, int(ends[0]), int(ends[1]))


def _column(values: I64 | None, order: I64) -> list[int | None]:
    return [None] * len(order) if values is None else values[order].tolist()
