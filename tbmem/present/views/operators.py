"""What each operator allocated and freed in a range of a recording (``recordings.Operators``)."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.operator_table import OperatorTable, operator_table, table_of_rows
from tbmem.model.columns import I64
from tbmem.present.views.empty_states import NO_OPERATORS
from tbmem.present.views.recording_schema import Operators
from tbmem.present.views.recording_view import Stretch, Subject, stretch_of


def operators_view(
    subject: Subject,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
) -> Operators:
    """The operators' table.

    Raises:
        UsageError: There is no such device, axis or range.
    """
    one = subject.device(device)
    part = stretch_of(subject, one.number, axis, begin, end)
    table = _table(subject, one.number, part)
    order = np.argsort(-table.self_increase, kind="stable")
    return {
        "head": subject.head(one),
        "axis": part.about(),
        "columns": {
            "name": [table.name[at] for at in order.tolist()],
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


def _table(subject: Subject, device: int, part: Stretch) -> OperatorTable:
    if subject.calls is None:
        rows = subject.analysis.timeline.rows
        own = rows.device == device
        made = own & (rows.alloc_event > part.before) & (rows.alloc_event <= part.last)
        gone = own & (rows.free_event > part.before) & (rows.free_event <= part.last)
        return table_of_rows(subject.analysis.timeline, made, gone)
    if part.whole:
        return operator_table(subject.calls, device)
    if part.axis == "time":
        ends = np.round(np.array([part.begin, part.end]) * 1e6).astype(np.int64) + part.clock.origin_ns
    else:
        ends = part.clock.event_ns[[part.before + 1, part.last + 1]]
    return operator_table(subject.calls, device, int(ends[0]), int(ends[1]))


def _column(values: I64 | None, order: I64) -> list[int | None]:
    return [None] * len(order) if values is None else values[order].tolist()
