"""The command ``tbmem export``: a recording as a file for Perfetto, speedscope, a spreadsheet or memory_viz."""

from __future__ import annotations

from typing import Annotated

import typer

from tbmem.cli.arguments import Rules, category_table
from tbmem.offline.analyze import analyze
from tbmem.offline.exports import ExportFormat, export


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Snapshot or trace.", show_default=False)],
    to: Annotated[ExportFormat, typer.Option("--to", help="Target format.", show_default=False)],
    out: Annotated[str | None, typer.Option(help="File to write; by default named after FILE, in this folder.")] = None,
    rules: Rules = None,
) -> None:
    """Convert a recording to the format of another tool, and print the file's name."""
    typer.echo(str(export(analyze(file, table=category_table(rules)), to, out)))
