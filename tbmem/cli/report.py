"""The command ``tbmem report``: memory, findings and windows of a run, as text, JSON or a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tbmem.cli.analyze import print_recordings, processes, skipped, terminal
from tbmem.cli.arguments import AsJson, MaxSize, Name, Out, Rules

if TYPE_CHECKING:
    from tbmem.api.report import Report


def command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, or recordings without a run, as of an estimate.")
    ],
    name: Name = None,
    out: Out = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write only the page, to this one file.")] = None,
    rules: Rules = None,
    max_size: MaxSize = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run: memory over the steps, findings, windows and their recordings."""
    del max_size  # kept by its callback
    from tbmem.api.report import report
    from tbmem.offline.live_logs import recordings_alone
    from tbmem.offline.reports.folders import RESULTS, recordings_of
    from tbmem.offline.reports.pages import write_html

    if html is not None and not as_json and recordings_alone(run) is None:
        _print(report(run, html=html, recordings=False, on_skip=skipped))
        return
    if html is not None:
        path = write_html(run, html, on_skip=skipped)
        figures = {"html": str(path), "bytes": path.stat().st_size}
        typer.echo(json.dumps(figures) if as_json else f"wrote {path}: open it in a browser, it needs no network")
        return
    if (alone := recordings_alone(run)) is not None:
        print_recordings([str(alone)], name, rules, out, as_json)
        return
    with processes(len(recordings_of(run))) as executor:
        written_to = out or (None if as_json else RESULTS)
        options: dict[str, Any] = {"name": name, "rules": rules, "executor": executor, "on_skip": skipped}
        result = report(run, out=written_to, recordings=not as_json, **options)
    if as_json:
        typer.echo(result.to_json())
        return
    _print(result)


def _print(result: Report) -> None:
    console = terminal()
    for line in str(result).splitlines():
        console.print(line, soft_wrap=True, markup=False)
