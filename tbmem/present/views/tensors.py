"""Tables of single allocations, filtered and sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.model.category import Basis, Phase
from tbmem.model.columns import I64, Bools
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_view import EventRange, RecordingView, select_range
from tbmem.present.views.text_table import TextTable

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

    Each word of ``search`` must occur in name, module, operator, line or category, ignoring case, or is a limit of the
    size as ``>10MiB``; ``category`` is the only one to list. ``sort`` is a column of the answer, ``order`` is ``asc``
    or ``desc``.

    Raises:
        UsageError: There is no such device or column.
    """
    selected = recording.device(device)
    alive = recording.analysis.timeline.alive_at(selected.number, selected.peak.event)
    row_labels = RowLabels(recording)
    chosen = alive[row_labels.of_category(alive, category)]
    matches = chosen[row_labels.matches(chosen, search, _SEARCHED)]
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


class RowLabels(TextTable):
    """Columns of the rows of a recording."""

    def __init__(self, recording: RecordingView) -> None:
        timeline, labels = recording.analysis.timeline, recording.analysis.labels
        rows, (module, paths) = timeline.rows, recording.modules()
        texts: dict[str, tuple[Sequence[str], NDArray[Any]]] = {
            "category": (labels.names, labels.code),
            "name": (timeline.names, rows.name),
            "module": (paths, module),
            "operator": (timeline.operators, rows.operator),
            "line": (recording.line_of_stack(), rows.stack),
            "phase": (tuple(phase.name for phase in Phase), rows.phase),
            "basis": (tuple(basis.name.lower() for basis in Basis), rows.basis),
        }
        never = np.iinfo(np.int64).max
        numbers: dict[str, NDArray[Any]] = {
            "bytes": rows.bytes,
            "row": np.arange(len(rows)),
            "step": rows.step,
            "x0": rows.alloc_event,
            "x1": np.where(rows.free_event < 0, never, rows.free_event),
        }
        super().__init__(texts, numbers)
        self._rows = rows

    def columns(self, row: I64, shown_range: EventRange | None = None) -> dict[str, list[Any]]:
        """Rows as a table; a step of -1 is not known.

        With a range also x where each begins and ends; ``None``: before the recording, alive at the end.
        """
        rows = self._rows
        columns = {name: self.numbers[name][row].tolist() for name in ("row", "bytes", "step")}
        columns |= {name: self.of(name, row) for name in self.texts}
        if shown_range is not None:
            for name, event in (("x0", rows.alloc_event[row]), ("x1", rows.free_event[row])):
                x = shown_range.clock.x(event, shown_range.axis).tolist()
                pairs = zip(event.tolist(), x, strict=True)
                columns[name] = [None if number < 0 else round(at, 6) for number, at in pairs]
        return columns

    def table(self, column: str, row: I64) -> tuple[list[str], list[int]]:
        """The texts that rows use, and each row's index in them; -1 for none."""
        words, code = self.texts[column]
        used, index = np.unique(code[row], return_inverse=True)
        index = index.reshape(-1)
        if len(used) and used[0] < 0:
            used, index = used[1:], index - 1
        return [words[number] for number in used.tolist()], index.tolist()

    def of_category(self, row: I64, category: str) -> Bools:
        """Whether each row is of a category; all are of the empty one."""
        names, code = self.texts["category"]
        if not category:
            return np.ones(len(row), np.bool_)
        return np.isin(code[row], [number for number, name in enumerate(names) if name == category])
