"""`tbmem analyze`: recordings of memory go in; what they mean comes out, on the terminal or as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tbmem.cli.arguments import AsJson, Rules

if TYPE_CHECKING:
    from rich.console import Console

    from tbmem.analysis.report import Analysis

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Memory snapshots, profiler traces, run folders, or patterns.", show_default=False
    ),
]


def command(
    paths: Paths,
    name: Annotated[str | None, typer.Option(help="Name of the recording, by default from its path.")] = None,
    rules: Rules = None,
    as_json: AsJson = False,
) -> None:
    """Say what memory snapshots and profiler traces mean: peak, categories, fragmentation, leaks, advice."""
    analyses = _analyze(paths, name, rules)
    from tbmem.analysis.comparison import odd_one
    from tbmem.present.analysis import analyses_view, analysis_screen, overview_screen

    odd = odd_one(analyses)
    if as_json:
        typer.echo(json.dumps(analyses_view(analyses, odd), indent=2))
        return
    console = terminal()
    if len(analyses) == 1:
        console.print(analysis_screen(analyses[0]))
        return
    console.print(overview_screen(analyses, odd))
    chosen = next((one for one in analyses if odd is not None and one.name == odd.name), None)
    console.print(analysis_screen(chosen or max(analyses, key=lambda one: one.main.peak.bytes)))


def _analyze(paths: list[str], name: str | None, rules: str | None) -> tuple[Analysis, ...]:
    from dataclasses import replace

    from tbmem.offline.recordings import find_recordings
    from tbmem.offline.rules_file import load_rules
    from tbmem.offline.study import analyze_all

    table = load_rules(rules) if rules is not None else None
    count = len(find_recordings(paths))
    with processes(count) as executor:
        analyses = analyze_all(*paths, table=table, executor=executor, rows=False, on_skip=_tell)
    if name is None:
        return analyses
    if len(analyses) == 1:
        return (replace(analyses[0], name=name),)
    return tuple(replace(one, name=f"{name}_{one.name}") for one in analyses)


def _tell(reason: str) -> None:
    print(f"tbmem: passed over: {reason}", file=sys.stderr)


@contextmanager
def processes(files: int) -> Iterator[Executor | None]:
    """A process for each core, where there is more than one file.

    Args:
        files: How many there are.
    """
    if files < 2:
        yield None
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    workers = min(files, os.cpu_count() or 1)
    # fresh processes: numpy's threads do not survive a fork
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def terminal() -> Console:
    """Standard output; wide enough for tables where it is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


_WIDTH = 140
