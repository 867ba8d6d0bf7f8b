"""What each operator allocated and freed in a range of a recording."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbmem.analysis.recordings.operator_table import OperatorTable, operator_table, table_of_rows
from tbmem.present.views.empty_states import NO_OPERATORS
from tbmem.present.views.recording_view import EventRange, RecordingView, select_range


def operators_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
) -> dict[str, Any]:
    """The table of the profiler's old Memory view, by operator; all figures but ``self_...`` include its callees.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    selected = recording.device(device)
    shown_range = select_range(recording, selected.number, axis, begin, end)
    table = _table(recording, selected.number, shown_range)
    order = np.argsort(-table.self_increase, kind="stable")
    columns: dict[str, list[Any]] = {"name": [table.name[row] for row in order.tolist()]}
    for field, values in table._asdict().items():
        if field != "name":
            # a recording without the operators' calls (a snapshot) has only what they did themselves
            name = field.replace("increase", "size_increase")
            columns[name] = [None] * len(order) if values is None else values[order].tolist()
    return {
        "head": recording.head(selected),
        "axis": shown_range.axis_info(),
        "columns": columns,
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
        ends = np.round(np.array([shown_range.begin, shown_range.end]) * 1e6).astype(np.int64)
        ends += shown_range.clock.origin_ns
    else:
        ends = shown_range.clock.event_ns[[shown_range.before + 1, shown_range.last + 1]]
    return operator_table(recording.calls, device, int(ends[0]), int(ends[1]))
