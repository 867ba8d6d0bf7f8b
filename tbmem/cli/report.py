"""The command ``tbmem report``: memory, findings and windows of a run, as text, JSON or a page."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from tbmem.cli import analyze
from tbmem.cli.analyze import processes, skipped, terminal
from tbmem.cli.arguments import AsJson, Name, Out, Rules, category_table


def command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, or recordings without a run, as of an estimate.")
    ],
    name: Name = None,
    out: Out = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write only the page, to this one file.")] = None,
    rules: Rules = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run: memory over the steps, findings, windows and their recordings."""
    from tbmem.offline.live_logs import recordings_alone
    from tbmem.offline.reports.folders import RESULTS, read_run_report, recordings_of, write_run_report
    from tbmem.offline.reports.pages import write_html
    from tbmem.present.text.readme import run_lines

    if html is not None:
        path = write_html(run, html)
        figures = {"html": str(path), "bytes": path.stat().st_size}
        typer.echo(json.dumps(figures) if as_json else f"wrote {path}: open it in a browser, it needs no network")
        return
    if (alone := recordings_alone(run)) is not None:
        analyze.command([str(alone)], name=name, out=out, rules=rules, as_json=as_json)
        return
    report = read_run_report(run)
    if as_json and out is None:
        typer.echo(json.dumps(report.to_dict(), indent=2))
        return
    table = category_table(rules)
    with processes(len(recordings_of(report.path))) as executor:
        written = write_run_report(run, out=out or RESULTS, name=name, table=table, executor=executor, on_skip=skipped)
    if as_json:
        typer.echo(json.dumps(written.report.to_dict(), indent=2))
        return
    console = terminal()
    for line in run_lines(written.report, written.recorded):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"wrote {written.folder}{os.sep}: look at report.html", soft_wrap=True, markup=False)
