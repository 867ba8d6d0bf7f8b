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

from tbmem.cli.arguments import AsJson, MaxSize, Name, Out, Rules
from tbmem.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

_WHAT_IF = "Only replay the allocator with other settings: expandable_segments:True; may be given several times."
_GPU = "With --what-if: GPU of the replay, such as a100-40gb; by default memory is unlimited."


def command(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Snapshots, traces, run folders, or patterns.")],
    name: Name = None,
    out: Out = None,
    rules: Rules = None,
    what_if: Annotated[list[str] | None, typer.Option(metavar="SETTINGS", help=_WHAT_IF)] = None,
    gpu: Annotated[str | None, typer.Option(help=_GPU)] = None,
    max_size: MaxSize = None,
    as_json: AsJson = False,
) -> None:
    """Analyze memory snapshots and profiler traces: peak, categories, fragmentation, leaks, advice.

    Pictures, texts and a page for the browser are written into a folder.
    """
    del max_size  # kept by its callback
    if what_if:
        for option, value in (("--out", out), ("--name", name), ("--rules", rules)):
            if value is not None:
                raise UsageError(f"{option} {value}: belongs to a report; --what-if only replays, and writes nothing")
        _what_if(paths, what_if, gpu, as_json)
        return
    if gpu is not None:
        raise UsageError(f"--gpu {gpu}: belongs to --what-if SETTINGS, which replays the allocator on it")
    print_recordings(paths, name, rules, out, as_json)


def print_recordings(paths: list[str], name: str | None, rules: str | None, out: str | None, as_json: bool) -> None:
    """Print the report of recordings, and write its folder unless only JSON is wanted."""
    from tbmem.api.report import report_recordings
    from tbmem.offline.reports.folders import RESULTS
    from tbmem.present.text.analysis_tables import analyses_screens
    from tbmem.sources.runs.recording_files import find_recordings

    with processes(len(find_recordings(paths))) as executor:
        written_to = out or (None if as_json else RESULTS)
        result = report_recordings(*paths, out=written_to, name=name, rules=rules, executor=executor, on_skip=skipped)
    if as_json:
        typer.echo(result.to_json())
        return
    console = terminal()  # in colours, and as wide as it is
    for screen in analyses_screens(result.analyses, result.odd_one):
        console.print(screen)
    for line in result.of_its_run:
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"\nwrote {result.folder}{os.sep}: look at report.html", soft_wrap=True, markup=False)


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
