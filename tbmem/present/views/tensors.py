"""Tables of single allocations, filtered and sorted (``recordings.Tensors``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.errors import UsageError
from tbmem.model.category import Basis, Phase
from tbmem.model.columns import I64, Bools
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_schema import TensorColumns, Tensors
from tbmem.present.views.recording_view import Stretch, Subject, stretch_of

LIMIT = 1000
MOST = 5000
_BASIS = {Basis.NONE: "none", Basis.INFERRED: "inferred", Basis.KNOWN: "known"}
_WORDS = ("category", "name", "module", "operator", "line", "phase", "basis")


def tensors_view(
    subject: Subject,
    device: str | None = None,
    search: str = "",
    category: str = "",
    sort: str = "bytes",
    order: str = "desc",
    offset: int = 0,
    limit: int = LIMIT,
) -> Tensors:
    """What was alive at the peak.

    Args:
        subject: The recording.
        device: Name; by default the main one.
        search: Words that must all be in name, module, operator, line or category, in any case.
        category: The only one.
        sort: A column of ``TensorColumns``.
        order: ``asc`` or ``desc``.
        offset: Rows to pass over.
        limit: Rows at most.

    Raises:
        UsageError: There is no such device or column.
    """
    one = subject.device(device)
    alive = subject.analysis.timeline.alive_at(one.number, one.peak.event)
    table = Words(subject)
    kept = alive[table.matches(alive, search, category)]
    ordered = kept[table.order(kept, sort, order)]
    part = stretch_of(subject, one.number)
    size = subject.analysis.timeline.rows.bytes
    return {
        "head": subject.head(one),
        "columns": tensor_columns(subject, ordered[offset : offset + min(limit, MOST)], part, table),
        "offset": offset,
        "found": len(kept),
        "found_bytes": int(size[kept].sum()),
        "count": len(alive),
        "categories": [share.name for share in one.by_category if share.count],
        "empty": None if len(alive) else NOTHING_RECORDED,
    }


class Words:
    """What rows are called: a table of words and its numbers by row, for each column of words."""

    def __init__(self, subject: Subject) -> None:
        timeline, labels = subject.analysis.timeline, subject.analysis.labels
        rows, (module, paths) = timeline.rows, subject.modules()
        self._rows = rows
        self._tables: dict[str, tuple[Sequence[str], NDArray[Any]]] = {
            "category": (labels.names, labels.code),
            "name": (timeline.names, rows.name),
            "module": (paths, module),
            "operator": (timeline.operators, rows.operator),
            "line": (subject.line_of_stack(), rows.stack),
            "phase": (tuple(phase.name for phase in Phase), rows.phase),
            "basis": (tuple(_BASIS[basis] for basis in Basis), rows.basis),
        }

    def of(self, column: str, which: I64) -> list[str]:
        """Words of rows."""
        words, code = self._tables[column]
        return [words[number] if number >= 0 else "" for number in code[which].tolist()]

    def table(self, column: str, which: I64) -> tuple[list[str], list[int]]:
        """The words that rows use, and the number of each row's word in it; -1 for none."""
        words, code = self._tables[column]
        used, place = np.unique(code[which], return_inverse=True)
        place = place.reshape(-1)
        if len(used) and used[0] < 0:
            used, place = used[1:], place - 1
        return [words[number] for number in used.tolist()], place.tolist()

    def matches(self, which: I64, search: str, category: str) -> Bools:
        """Rows that agree with a search."""
        kept = np.ones(len(which), np.bool_)
        for word in search.lower().split():
            kept &= np.logical_or.reduce([self._has(column, which, word) for column in _WORDS[:5]])
        if category:
            names, code = self._tables["category"]
            kept &= np.isin(code[which], [number for number, name in enumerate(names) if name == category])
        return kept

    def _has(self, column: str, which: I64, word: str) -> Bools:
        words, code = self._tables[column]
        hits = np.array([word in one.lower() for one in words] + [False], np.bool_)
        found: Bools = hits[code[which]]
        return found

    def order(self, which: I64, sort: str, order: str) -> I64:
        """Places of rows in the order that is asked for; of equal ones the first in the recording first.

        Raises:
            UsageError: There is no such column, or no such order.
        """
        if order not in ("asc", "desc"):
            raise UsageError(f"order={order}: write asc or desc")
        rows = self._rows
        if sort in self._tables:
            words, code = self._tables[sort]
            ranks = np.append(np.argsort(np.argsort(np.array(words, dtype=object), kind="stable")) + 1, 0)
            values: NDArray[Any] = ranks[code[which]]
        else:
            by_sort = {
                "bytes": rows.bytes,
                "row": None,
                "step": rows.step,
                "x0": rows.alloc_event,
                "x1": rows.free_event,
            }
            if sort not in by_sort:
                raise UsageError(f"sort={sort}: write one of {', '.join((*by_sort, *self._tables))}")
            column = by_sort[sort]
            values = which if column is None else column[which]
            if sort == "x1":
                values = np.where(values < 0, np.iinfo(np.int64).max, values)
        found: I64 = np.argsort(-values if order == "desc" else values, kind="stable")
        return found


def tensor_columns(subject: Subject, which: I64, part: Stretch, table: Words | None = None) -> TensorColumns:
    """Rows as a table."""
    rows = subject.analysis.timeline.rows
    words = table or Words(subject)
    begin, end = rows.alloc_event[which], rows.free_event[which]
    x0, x1 = part.clock.x(begin, part.axis), part.clock.x(end, part.axis)
    return {
        "row": which.tolist(),
        "bytes": rows.bytes[which].tolist(),
        "category": words.of("category", which),
        "basis": words.of("basis", which),
        "name": words.of("name", which),
        "module": words.of("module", which),
        "operator": words.of("operator", which),
        "phase": words.of("phase", which),
        "step": rows.step[which].tolist(),
        "line": words.of("line", which),
        "x0": [None if event < 0 else round(x, 6) for event, x in zip(begin.tolist(), x0.tolist(), strict=True)],
        "x1": [None if event < 0 else round(x, 6) for event, x in zip(end.tolist(), x1.tolist(), strict=True)],
    }
