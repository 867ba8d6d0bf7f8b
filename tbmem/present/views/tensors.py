"""Tables of single allocations, filtered and sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.errors import UsageError
from tbmem.model.category import Basis, Phase
from tbmem.model.columns import I64, Bools
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_view import EventRange, RecordingView, select_range

LIMIT = 1000
MOST = 5000
_SEARCHED = ("category", "name", "module", "operator", "line")


def tensors_view(
    recording: RecordingView,
    device: str | None = None,
    search: str = "",
    category: str = "",
    sort: str = "bytes",
    order: str = "desc",
    offset: int = 0,
    limit: int = LIMIT,
) -> dict[str, Any]:
    """Allocations that were alive at the peak, filtered and sorted.

    Each word of ``search`` must occur in name, module, operator, line or category, ignoring case; ``category`` is the
    only one to list. ``sort`` is a column of the answer, ``order`` is ``asc`` or ``desc``.

    Raises:
        UsageError: There is no such device or column.
    """
    selected = recording.device(device)
    alive = recording.analysis.timeline.alive_at(selected.number, selected.peak.event)
    row_labels = RowLabels(recording)
    matches = alive[row_labels.matches(alive, search, category)]
    ordered = matches[row_labels.order(matches, sort, order)]
    shown_range = select_range(recording, selected.number)
    size = recording.analysis.timeline.rows.bytes
    return {
        "head": recording.head(selected),
        "columns": row_labels.columns(ordered[offset : offset + min(limit, MOST)], shown_range),
        "offset": offset,
        "found": len(matches),  # by ``search`` and ``category``
        "found_bytes": int(size[matches].sum()),
        "count": len(alive),
        "categories": [share.name for share in selected.by_category if share.count],
        "empty": None if len(alive) else NOTHING_RECORDED,
    }


class RowLabels:
    """Text columns of the rows: for each column a table of texts and each row's index in it."""

    def __init__(self, recording: RecordingView) -> None:
        timeline, labels = recording.analysis.timeline, recording.analysis.labels
        rows, (module, paths) = timeline.rows, recording.modules()
        self._rows = rows
        self._tables: dict[str, tuple[Sequence[str], NDArray[Any]]] = {
            "category": (labels.names, labels.code),
            "name": (timeline.names, rows.name),
            "module": (paths, module),
            "operator": (timeline.operators, rows.operator),
            "line": (recording.line_of_stack(), rows.stack),
            "phase": (tuple(phase.name for phase in Phase), rows.phase),
            "basis": (tuple(basis.name.lower() for basis in Basis), rows.basis),
        }

    def columns(self, row: I64, shown_range: EventRange | None = None) -> dict[str, list[Any]]:
        """Rows as a table; a step of -1 is not known.

        With a range also x where each begins and ends; ``None``: before the recording, alive at the end.
        """
        rows = self._rows
        numbers: dict[str, NDArray[Any]] = {"row": row, "bytes": rows.bytes[row], "step": rows.step[row]}
        columns = {name: values.tolist() for name, values in numbers.items()}
        columns |= {name: self.of(name, row) for name in self._tables}
        if shown_range is not None:
            for name, event in (("x0", rows.alloc_event[row]), ("x1", rows.free_event[row])):
                x = shown_range.clock.x(event, shown_range.axis).tolist()
                pairs = zip(event.tolist(), x, strict=True)
                columns[name] = [None if number < 0 else round(at, 6) for number, at in pairs]
        return columns

    def of(self, column: str, row: I64) -> list[str]:
        """Texts of rows."""
        words, code = self._tables[column]
        return [words[number] if number >= 0 else "" for number in code[row].tolist()]

    def table(self, column: str, row: I64) -> tuple[list[str], list[int]]:
        """The texts that rows use, and each row's index in them; -1 for none."""
        words, code = self._tables[column]
        used, index = np.unique(code[row], return_inverse=True)
        index = index.reshape(-1)
        if len(used) and used[0] < 0:
            used, index = used[1:], index - 1
        return [words[number] for number in used.tolist()], index.tolist()

    def matches(self, row: I64, search: str, category: str) -> Bools:
        """Whether each row matches a search."""
        matches = np.ones(len(row), np.bool_)
        for word in search.lower().split():
            matches &= np.logical_or.reduce([self._contains(column, row, word) for column in _SEARCHED])
        if category:
            names, code = self._tables["category"]
            matches &= np.isin(code[row], [number for number, name in enumerate(names) if name == category])
        return matches

    def _contains(self, column: str, row: I64, word: str) -> Bools:
        words, code = self._tables[column]
        hits = np.array([word in text.lower() for text in words] + [False], np.bool_)
        matches: Bools = hits[code[row]]
        return matches

    def order(self, row: I64, sort: str, order: str) -> I64:
        """Indices that sort rows; equal rows stay in the order of the recording.

        Raises:
            UsageError: There is no such column, or no such order.
        """
        if order not in ("asc", "desc"):
            raise UsageError(f"order={order}: write asc or desc")
        rows = self._rows
        if sort in self._tables:
            words, code = self._tables[sort]
            ranks = np.append(np.argsort(np.argsort(np.array(words, dtype=object), kind="stable")) + 1, 0)
            values: NDArray[Any] = ranks[code[row]]
        else:
            columns: dict[str, NDArray[Any]] = {"bytes": rows.bytes, "row": np.arange(len(rows)), "step": rows.step}
            columns |= {"x0": rows.alloc_event, "x1": rows.free_event}
            if sort not in columns:
                raise UsageError(f"sort={sort}: write one of {', '.join((*columns, *self._tables))}")
            values = columns[sort][row]
            if sort == "x1":
                values = np.where(values < 0, np.iinfo(np.int64).max, values)
        indices: I64 = np.argsort(-values if order == "desc" else values, kind="stable")
        return indices
