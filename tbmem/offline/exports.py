"""Writes an analyzed recording as a file that another tool opens."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from tbmem.analysis.recordings.result import Analysis
from tbmem.model.files import atomic_write
from tbmem.present.exports.allocations_csv import allocations_csv
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.present.exports.perfetto import perfetto_json
from tbmem.present.exports.speedscope import speedscope_json


class ExportFormat(str, Enum):
    """Formats that recordings are exported to."""

    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    CSV = "csv"
    JSON = "json"
    MEMORY_VIZ = "memory_viz"


def _analysis_json(analysis: Analysis) -> str:
    return json.dumps(analysis.to_dict(), indent=2)


_FORMATS: dict[ExportFormat, tuple[str, Callable[[Analysis], str | bytes]]] = {
    ExportFormat.PERFETTO: (".perfetto.json", perfetto_json),
    ExportFormat.SPEEDSCOPE: (".speedscope.json", speedscope_json),
    ExportFormat.CSV: (".csv", allocations_csv),
    ExportFormat.JSON: (".analysis.json", _analysis_json),
    ExportFormat.MEMORY_VIZ: (".memory_viz.pickle", memory_viz_pickle),
}
"""Suffix and content of each format."""


def export(analysis: Analysis, format: ExportFormat, path: str | os.PathLike[str] | None = None) -> Path:
    """Write a recording in another tool's format, completely or not at all.

    Args:
        analysis: With its rows.
        format: The format.
        path: File to write; by default ``iter1_rank0.perfetto.json`` in the current folder.

    Raises:
        OSError: The file cannot be written.
    """
    suffix, content = _FORMATS[format]
    target = Path(path or analysis.name + suffix)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(target.parent))
    data = content(analysis)
    with atomic_write(target) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)
    return target
