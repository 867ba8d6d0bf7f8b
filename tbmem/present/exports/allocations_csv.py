"""Exports the allocations of a recording as CSV, one line each."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.category import Basis, Phase

_NUMBERS = ("bytes", "rounded_bytes", "stream", "address", "alloc_event", "free_event", "alloc_ns", "free_ns", "step")


def allocations_csv(analysis: Analysis) -> str:
    """Rows as CSV text with a header; -1 means not known, for a free also still alive."""
    timeline, rows = analysis.timeline, analysis.timeline.rows
    lines = SourceLines(timeline.stacks)
    columns: dict[str, list[Any]] = {
        "device": _words([device.name for device in timeline.devices], rows.device),
        **{name: getattr(rows, name).tolist() for name in _NUMBERS},
        "phase": _words([phase.name for phase in Phase], rows.phase),
        "category": _words(list(analysis.labels.names), analysis.labels.code),
        "basis": _words([basis.name.lower() for basis in Basis], rows.basis),
        "name": _words(list(timeline.names), rows.name),
        "module": _words(list(timeline.modules), rows.module),
        "operator": _words(list(timeline.operators), rows.operator),
        "line": _words([lines.line(stack) for stack in range(len(timeline.stacks))], rows.stack),
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _words(table: list[str], column: NDArray[Any]) -> list[str]:
    # -1 selects the last entry, the empty text
    return list(np.array([*table, ""], object)[column])
