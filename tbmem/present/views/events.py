"""The allocator's log in a range of a recording, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline_tables import AllocationRows, MarkKind, ReservationKind
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_view import EventRange, RecordingView, rounded, select_range
from tbmem.present.views.text_table import TextTable

LIMIT = 500
MOST = 5000
_OF_ROWS = {"alloc": "alloc_event", "free_requested": "free_requested_event", "free_completed": "free_event"}
ACTIONS = (
    *_OF_ROWS,
    *(f"segment_{kind.name.lower()}" for kind in ReservationKind if kind is not ReservationKind.REPORTED),
    "reserved",
    *(kind.name.lower() for kind in MarkKind),
)
"""Kinds of events, as snapshots name them; ``reserved`` is a change whose segment the file does not name."""
_SEGMENT, _MARK = ACTIONS.index("segment_alloc"), ACTIONS.index("oom")


def events_view(
    recording: RecordingView,
    device: str | None = None,
    axis: str | None = None,
    begin: float | None = None,
    end: float | None = None,
    rare: bool = False,
    search: str = "",
    sort: str = "event",
    order: str = "asc",
    offset: int = 0,
    limit: int = LIMIT,
) -> dict[str, Any]:
    """Events of a range, filtered and sorted; with ``rare`` only those that are no allocation and no free.

    Each word of ``search`` must occur in action, address, name or line, or is a limit of the size as ``>10MiB``.
    ``sort`` is a column of the answer.

    Raises:
        UsageError: There is no such device, axis, range or column.
    """
    selected = recording.device(device)
    shown = select_range(recording, selected.number, axis, begin, end)
    table = _events(recording, selected.number, shown)
    counts = np.bincount(table[1], minlength=len(ACTIONS)).tolist()
    if rare:
        table = table[:, table[1] >= _SEGMENT]
    texts = _texts(recording, table)
    every = np.arange(table.shape[1])
    found = every[texts.matches(every, search, ("action", "address", "name", "line"))]
    page = found[texts.order(found, sort, order)][offset : offset + min(limit, MOST)]
    columns = {name: texts.numbers[name][page].tolist() for name in ("event", "bytes", "row")}
    columns |= {name: texts.of(name, page) for name in texts.texts}
    return {
        "head": recording.head(selected),
        "axis": shown.axis_info(),
        "count": table.shape[1],
        "found": len(found),  # by ``search``
        "offset": offset,
        "counts": {name: count for name, count in zip(ACTIONS, counts, strict=True) if count},
        "columns": columns | {"x": rounded(shown.clock.x(table[0][page], shown.axis))},
        "empty": None if selected.events else NOTHING_RECORDED,
    }


def _texts(recording: RecordingView, table: I64) -> TextTable:
    timeline = recording.analysis.timeline
    event, action, address, size, row, stack = table
    addresses, of_address = np.unique(address, return_inverse=True)
    texts: dict[str, tuple[Sequence[str], I64]] = {
        "action": (ACTIONS, action),
        "address": ([f"0x{one:x}" if one > 0 else "" for one in addresses.tolist()], of_address.reshape(-1)),
        "name": (timeline.names, np.append(timeline.rows.name, -1)[row].astype(np.int64)),
        "line": (recording.line_of_stack(), stack),
    }
    return TextTable(texts, {"event": event, "x": event, "bytes": size, "row": row})


def _events(recording: RecordingView, device: int, shown: EventRange) -> I64:
    """Rows of event, action, address, bytes, row and stack, as columns in order of events."""
    timeline = recording.analysis.timeline
    rows, changes, marks = timeline.rows, timeline.reservations, timeline.marks
    parts = [
        _of_rows(rows, getattr(rows, column), number, device, shown) for number, column in enumerate(_OF_ROWS.values())
    ]
    at = _inside(changes.event, changes.device, device, shown)
    kinds = changes.kind[at].astype(np.int64) + _SEGMENT
    parts.append(
        _columns(changes.event[at], kinds, changes.address[at], np.abs(changes.bytes[at]), -1, changes.stack[at])
    )
    at = _inside(marks.event, marks.device, device, shown)
    parts.append(
        _columns(marks.event[at], marks.kind[at].astype(np.int64) + _MARK, 0, marks.bytes[at], -1, marks.stack[at])
    )
    table = np.concatenate(parts, axis=1)
    return table[:, np.argsort(table[0], kind="stable")]


def _of_rows(rows: AllocationRows, event: I64, action: int, device: int, shown: EventRange) -> I64:
    at = _inside(event, rows.device, device, shown)
    if action == 1:
        # an estimate has one event for both
        at = at[event[at] != rows.free_event[at]]
    return _columns(event[at], action, rows.address[at], rows.bytes[at], at, rows.stack[at])


def _inside(event: I64, owner: Any, device: int, shown: EventRange) -> I64:
    return np.flatnonzero((owner == device) & (event > shown.before) & (event <= shown.last) & (event >= 0))


def _columns(*columns: Any) -> I64:
    table: I64 = np.stack(np.broadcast_arrays(*(np.asarray(column).astype(np.int64) for column in columns)))
    return table
