"""The command ``tbmem report``: memory, findings and windows of a run, as text, JSON or a page."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from tbmem.cli.analyze import processes, skipped, terminal
from tbmem.cli.arguments import AsJson, Rules


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Name of the report, by default the run's.")] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the report's folder is made; 'results' unless --json.")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the page alone, as this one file.")
    ] = None,
    rules: Rules = None,
    as_json: AsJson = False,
) -> None:
    """Say what happened in a run: memory over the steps, findings, windows and what they recorded."""
    from tbmem.offline.analyze import load_rules
    from tbmem.offline.reports.folders import RESULTS, read_run_report, recordings_of, write_run_report
    from tbmem.present.text.readme import run_lines

    if html is not None:
        _write_page(run, html, as_json)
        return
    if as_json and out is None:
        typer.echo(json.dumps(read_run_report(run).to_dict(), indent=2))
        return
    folder = read_run_report(run).path
    table = load_rules(rules) if rules is not None else None
    with processes(len(recordings_of(folder))) as executor:
        written = write_run_report(run, out=out or RESULTS, name=name, table=table, executor=executor, on_skip=skipped)
    if as_json:
        typer.echo(json.dumps(written.report.to_dict(), indent=2))
        return
    console = terminal()
    for line in run_lines(written.report, written.recorded):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"wrote {written.folder}{os.sep}: look at report.html", soft_wrap=True, markup=False)


def _write_page(run: str, html: str, as_json: bool) -> None:
    from tbmem.offline.reports.pages import write_html

    path = write_html(run, html)
    if as_json:
        typer.echo(json.dumps({"html": str(path), "bytes": path.stat().st_size}))
    else:
        print(f"wrote {path}: open it in a browser, it needs no network")
