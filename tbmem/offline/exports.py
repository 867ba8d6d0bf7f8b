"""An analysis and a format go in; a file that another tool opens comes out."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from tbmem.analysis.report import Analysis
from tbmem.model.files import complete_or_nothing
from tbmem.offline.export_format import ExportFormat
from tbmem.present.allocations_csv import allocations_csv
from tbmem.present.memory_viz import memory_viz_pickle
from tbmem.present.perfetto import perfetto_json
from tbmem.present.speedscope import speedscope_json


def _text(make: Callable[[Analysis], str]) -> Callable[[Analysis], bytes]:
    return lambda analysis: make(analysis).encode()


_MAKERS: dict[ExportFormat, tuple[Callable[[Analysis], bytes], str]] = {
    ExportFormat.PERFETTO: (_text(perfetto_json), ".perfetto.json"),
    ExportFormat.SPEEDSCOPE: (_text(speedscope_json), ".speedscope.json"),
    ExportFormat.CSV: (_text(allocations_csv), ".csv"),
    ExportFormat.JSON: (_text(lambda analysis: json.dumps(analysis.to_dict(), indent=2)), ".analysis.json"),
    ExportFormat.MEMORY_VIZ: (memory_viz_pickle, ".memory_viz.pickle"),
}


def default_name(analysis: Analysis, wanted: ExportFormat) -> str:
    """Name of the file that an export gets: ``'iter1_rank0.perfetto.json'``."""
    return analysis.name + _MAKERS[wanted][1]


def export(analysis: Analysis, wanted: ExportFormat | str, path: str | os.PathLike[str]) -> Path:
    """Write a recording in another tool's format, completely or not at all.

    Args:
        analysis: With its rows.
        wanted: The format.
        path: Where to write.

    Raises:
        ValueError: There is no such format.
        OSError: The file cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(target.parent))
    data = _MAKERS[ExportFormat(wanted)][0](analysis)
    with complete_or_nothing(target) as partial:
        partial.write_bytes(data)
    return target
