"""The command ``tbmem export``: a recording as a file for Perfetto, speedscope, a spreadsheet or memory_viz."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tbmem.analysis.recordings.result import Analysis
from tbmem.cli.arguments import MaxSize, Rules, category_table
from tbmem.model.files import atomic_write
from tbmem.offline.analyze import analyze
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


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Snapshot or trace.")],
    to: Annotated[ExportFormat, typer.Option("--to", help="Target format.")],
    out: Annotated[str | None, typer.Option(help="File to write; by default named after FILE, in this folder.")] = None,
    rules: Rules = None,
    max_size: MaxSize = None,
) -> None:
    """Convert a recording to the format of another tool, and print the file's name."""
    del max_size  # kept by its callback
    analysis = analyze(file, table=category_table(rules))
    suffix, content = _FORMATS[to]
    target = Path(out or analysis.name + suffix)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(target.parent))
    data = content(analysis)
    with atomic_write(target) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)
    typer.echo(str(target))
