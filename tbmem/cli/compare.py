"""The command ``tbmem compare``: changes between two recordings or runs, with exit code 1 above a limit."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from tbmem.cli.analyze import terminal
from tbmem.cli.arguments import AsJson, MaxSize, Rules, category_table
from tbmem.errors import UsageError

_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%?\s*")


def command(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="Snapshot, trace or run folder.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The one to compare with it.")],
    fail_if_grown: Annotated[str | None, typer.Option(metavar="PERCENT", help="Fail if a total grew by more.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Also write a page, to this one file.")] = None,
    rules: Rules = None,
    max_size: MaxSize = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs or recordings: growth by category, module and line."""
    limit = None if fail_if_grown is None else _limit(fail_if_grown)
    from tbmem.offline.analyze import read_pair
    from tbmem.present.lines import device_label
    from tbmem.present.text.analysis_tables import comparison_screen

    pair = read_pair(before, after, table=category_table(rules))
    comparison = pair.compared()
    excess = [] if limit is None else [figure for figure in comparison.grown if figure.change.growth > limit]
    if html is not None:
        from tbmem.offline.reports.pages import write_pair_html

        write_pair_html(pair, html)
    if as_json:
        verdict = {"fail_if_grown_percent": limit, "failed": bool(excess)}
        typer.echo(json.dumps({**comparison.to_dict(), **verdict}, indent=2))
    else:
        console = terminal()
        console.print(comparison_screen(comparison))
        if html is not None:
            console.print(f"wrote {html}: open it in a browser, it needs no network", soft_wrap=True, markup=False)
        for figure in excess:
            label = f"{figure.words} of {device_label(figure.device)}"
            line = f"{label} grew by more than {limit:g} %: {figure.change.text}"
            console.print(line, style="bold red", soft_wrap=True, markup=False)
    if excess:
        raise typer.Exit(1)


def _limit(text: str) -> float:
    match = _PERCENT.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-if-grown {text}: not a percentage; write 5%")
    return float(match[1])
