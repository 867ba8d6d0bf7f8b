"""The command ``tbmem export``: a recording as a file for Perfetto, speedscope, a spreadsheet or memory_viz."""

from __future__ import annotations

from typing import Annotated

import typer

from tbmem.cli.arguments import Rules
from tbmem.offline.exports import ExportFormat, default_name, export


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A snapshot or trace.", show_default=False)],
    to: Annotated[ExportFormat, typer.Option("--to", help="The tool that shall open it.", show_default=False)],
    out: Annotated[str | None, typer.Option(help="File to write; by default named after FILE, here.")] = None,
    rules: Rules = None,
) -> None:
    """Turn a recording into a file for another tool, and print the file's name."""
    from tbmem.offline.analyze import analyze, load_rules

    analysis = analyze(file, table=load_rules(rules) if rules is not None else None)
    typer.echo(str(export(analysis, to, out or default_name(analysis, to))))
