"""The command ``tbmem analyze``: analysis of recordings, on the terminal, as JSON or as a report folder."""

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
from tbmem.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tbmem.analysis.recordings.result import Analysis

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Memory snapshots, profiler traces, run folders, or patterns.", show_default=False
    ),
]
WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="SETTINGS",
        help="Only replay the allocator under other settings: expandable_segments:True; may be given several times.",
    ),
]


def command(
    paths: Paths,
    name: Annotated[str | None, typer.Option(help="Name of the report, by default from the path.")] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the report's folder is made; 'results' unless --json.")
    ] = None,
    rules: Rules = None,
    what_if: WhatIf = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="With --what-if: replay on this GPU, a100-40gb, ...; by default on one without end."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what memory snapshots and profiler traces mean: peak, categories, fragmentation, leaks, advice.

    Pictures, texts and a page for the browser go into a folder of their own.
    """
    if what_if:
        for option, value in (("--out", out), ("--name", name), ("--rules", rules)):
            if value is not None:
                raise UsageError(f"{option} {value}: belongs to a report; --what-if only replays, and writes nothing")
        _what_if(paths, what_if, gpu, as_json)
        return
    if gpu is not None:
        raise UsageError(f"--gpu {gpu}: belongs to --what-if SETTINGS, which replays the allocator on it")
    if as_json and out is None:
        analyses, folder = _analyze(paths, name, rules), None
    else:
        analyses, folder = _report(paths, name, rules, out)
    from tbmem.analysis.runs.comparison import odd_one
    from tbmem.present.text.analysis_tables import analyses_view, analysis_screen, overview_screen

    odd = odd_one(analyses)
    if as_json:
        typer.echo(json.dumps(analyses_view(analyses, odd), indent=2))
        return
    console = terminal()
    outlier = next((analysis for analysis in analyses if odd is not None and analysis.name == odd.name), None)
    if len(analyses) > 1:
        console.print(overview_screen(analyses, odd))
    console.print(analysis_screen(outlier or max(analyses, key=lambda analysis: analysis.main.peak.bytes)))
    if folder is not None:
        console.print(f"\nwrote {folder}{os.sep}: look at report.html", soft_wrap=True, markup=False)


def _what_if(paths: list[str], texts: list[str], gpu: str | None, as_json: bool) -> None:
    from tbmem.analysis.allocator.settings import idle
    from tbmem.model.gpus import gpu_named
    from tbmem.offline.analyze import replay_all
    from tbmem.present.text.what_if import what_if_lines, what_if_view

    for sentence in dict.fromkeys(sentence for text in texts for sentence in idle(text)):
        print(f"tbmem: {sentence}", file=sys.stderr)
    results = replay_all(paths, texts, gpu_named(gpu) if gpu is not None else None, on_skip=skipped)
    if as_json:
        typer.echo(json.dumps([what_if_view(name, result) for name, result in results.items()], indent=2))
        return
    for name, result in results.items():
        typer.echo("\n".join(what_if_lines(name, result)))


def _report(
    paths: list[str], name: str | None, rules: str | None, out: str | None
) -> tuple[tuple[Analysis, ...], Path | None]:
    from tbmem.offline.analyze import load_rules
    from tbmem.offline.reports.folders import RESULTS, write_report
    from tbmem.sources.runs.recording_files import find_recordings

    table = load_rules(rules) if rules is not None else None
    with processes(len(find_recordings(paths))) as executor:
        report = write_report(*paths, out=out or RESULTS, name=name, table=table, executor=executor, on_skip=skipped)
    return report.analyses, report.folder


def _analyze(paths: list[str], name: str | None, rules: str | None) -> tuple[Analysis, ...]:
    from dataclasses import replace

    from tbmem.offline.analyze import analyze_all, load_rules
    from tbmem.sources.runs.recording_files import find_recordings

    table = load_rules(rules) if rules is not None else None
    count = len(find_recordings(paths))
    with processes(count) as executor:
        analyses = analyze_all(*paths, table=table, executor=executor, rows=False, on_skip=skipped)
    return (replace(analyses[0], name=name),) if name is not None and len(analyses) == 1 else analyses


def skipped(reason: str) -> None:
    """Report a skipped file on standard error."""
    print(f"tbmem: passed over: {reason}", file=sys.stderr)


@contextmanager
def processes(files: int) -> Iterator[Executor | None]:
    """A pool with a process for each core, or ``None`` for a single file."""
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
    """Console on standard output, wide enough for tables where that is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140)
