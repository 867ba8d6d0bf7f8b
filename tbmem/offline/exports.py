"""Writes an analysed recording as a file that another tool opens."""

from __future__ import annotations

import errno
import json
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tbmem.model.files import atomic_write

if TYPE_CHECKING:
    from tbmem.analysis.recordings.result import Analysis


class ExportFormat(str, Enum):
    """Formats that recordings are exported to."""

    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    CSV = "csv"
    JSON = "json"
    MEMORY_VIZ = "memory_viz"


_SUFFIXES = {
    ExportFormat.PERFETTO: ".perfetto.json",
    ExportFormat.SPEEDSCOPE: ".speedscope.json",
    ExportFormat.CSV: ".csv",
    ExportFormat.JSON: ".analysis.json",
    ExportFormat.MEMORY_VIZ: ".memory_viz.pickle",
}


def default_name(analysis: Analysis, format: ExportFormat) -> str:
    """Default file name of an export: ``'iter1_rank0.perfetto.json'``."""
    return analysis.name + _SUFFIXES[format]


def export(analysis: Analysis, format: ExportFormat | str, path: str | os.PathLike[str]) -> Path:
    """Write a recording in another tool's format, completely or not at all.

    Args:
        analysis: With its rows.
        format: The format.
        path: File to write.

    Raises:
        ValueError: There is no such format.
        OSError: The file cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(target.parent))
    data = _content(analysis, ExportFormat(format))
    with atomic_write(target) as partial:
        partial.write_bytes(data)
    return target


def _content(analysis: Analysis, format: ExportFormat) -> bytes:
    """Content of the file; each format's module is imported only when needed."""
    if format is ExportFormat.PERFETTO:
        from tbmem.present.exports.perfetto import perfetto_json

        return perfetto_json(analysis).encode()
    if format is ExportFormat.SPEEDSCOPE:
        from tbmem.present.exports.speedscope import speedscope_json

        return speedscope_json(analysis).encode()
    if format is ExportFormat.CSV:
        from tbmem.present.exports.allocations_csv import allocations_csv

        return allocations_csv(analysis).encode()
    if format is ExportFormat.MEMORY_VIZ:
        from tbmem.present.exports.memory_viz import memory_viz_pickle

        return memory_viz_pickle(analysis)
    return json.dumps(analysis.to_dict(), indent=2).encode()
