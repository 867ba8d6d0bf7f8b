"""The command ``tbmem watch``: a live view of running or finished runs on the terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tbmem.cli.arguments import AsJson
from tbmem.offline.live_logs import FollowedRun, require_records
from tbmem.present.text.run_status import run_lines, run_view
from tbmem.present.text.watch_table import gpu_process_lines, runs_by_pid
from tbmem.sources.runs.catalog import find_runs
from tbmem.sources.runs.gpu_processes import GpuProcesses

Updates = Iterator[tuple[list[FollowedRun], bool]]

_LIVE_SECONDS = 60.0
"""A run of a folder is shown if it was written to within this time; if there is none, the latest is."""
_SEARCH_SECONDS = 5.0
"""Time between two searches of a folder for new runs."""
_BEGINS_SECONDS = 5.0
"""Time within which a log without a record may be that of a run that has just begun."""


def command(
    path: Annotated[
        str,
        typer.Argument(metavar="RUN|LOGDIR|PID", help="Run folder, the folder of all runs, or a process that trains."),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show all runs of the folder, not only active ones.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    plain: Annotated[bool, typer.Option("--plain", help="The view without keys, also where textual is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the memory of running or finished runs, until the run ends or Ctrl-C is pressed.

    Into a file or a pipe the current state is printed once.
    """
    updates = _updates(_folder(path), show_all)
    runs, is_over = next(updates)
    console = Console()
    is_once = once or as_json or not console.is_terminal
    if is_once and len(runs) == 1 and time.time() - runs[0].files.changed > _BEGINS_SECONDS:
        require_records(path, runs[0].states)
    if as_json:
        typer.echo(json.dumps(_views(runs), indent=2))
        return
    gpus = GpuProcesses()
    try:
        if is_once:
            if not (once or is_over):
                print("the output is no terminal: the current state, once", file=sys.stderr)
            for line in _lines(runs, gpus, console.width if console.is_terminal else 80, max_lines=None):
                typer.echo(line.plain)
        elif is_over or plain or not _has_textual():
            _show_plain(console, updates, (runs, is_over), gpus, interval)
        else:
            _show_with_keys(console, updates, gpus, interval)
    finally:
        gpus.close()


def _folder(text: str) -> Path:
    """What a path or a process id names; a file or folder of that name comes first."""
    path = Path(text)
    if not text.isdecimal() or path.exists():
        return path
    from tbmem.sources.runs.attached import run_of_process

    return run_of_process(int(text))


def _has_textual() -> bool:
    return importlib.util.find_spec("textual") is not None


def _show_plain(
    console: Console, updates: Updates, first: tuple[list[FollowedRun], bool], gpus: GpuProcesses, interval: float
) -> None:
    runs, is_over = first
    # an interrupt is the usual way to leave
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(Group(*_lines(runs, gpus, console.width)), refresh=True)
            if is_over:
                break
            time.sleep(interval)
            runs, is_over = next(updates)


def _show_with_keys(console: Console, updates: Updates, gpus: GpuProcesses, interval: float) -> None:
    from tbmem.cli.watch_app import WatchApp

    app = WatchApp(updates, _views, gpus, interval)
    app.run()
    if app.error is not None:
        raise app.error
    # the state at the end stays on the terminal
    for view in app.views:
        console.print(*run_lines(view, width=console.width), sep="\n")


def _updates(path: Path, show_all: bool) -> Updates:
    """The runs to show, read up to now, and whether a single run was requested and has ended."""
    followed: dict[Path, FollowedRun] = {}
    found, found_at = find_runs(path), time.monotonic()
    while True:
        if time.monotonic() - found_at > _SEARCH_SECONDS:
            found, found_at = find_runs(path), time.monotonic()
        live = [run for run in found if time.time() - run.changed < _LIVE_SECONDS]
        shown = []
        for files in found if show_all else live or found[-1:]:
            run = followed.get(files.path)
            if run is None or run.files.logs != files.logs:
                run = followed[files.path] = FollowedRun(files)
            run.read()
            if run.errors and len(found) == 1 and len(run.errors) == len(files.logs):
                raise run.errors[0]
            shown.append(run)
        is_single = len(found) == 1 and found[0].path.resolve() == path.expanduser().resolve()
        yield shown, is_single and all(state.has_ended for run in shown for state in run.states)


def _views(runs: Sequence[FollowedRun]) -> list[dict[str, object]]:
    now = time.time()
    return [run_view(run.files.name, run.states, now, tuple(map(str, run.errors))) for run in runs]


def _lines(runs: Sequence[FollowedRun], gpus: GpuProcesses, width: int, max_lines: int | None = 3) -> list[Text]:
    """The runs as lines of a terminal, separated by empty lines, and the processes on GPUs."""
    views = _views(runs)
    lines = [line for view in views for line in (Text(""), *run_lines(view, width=width, max_lines=max_lines))][1:]
    by_pid = runs_by_pid({run.files.name: run.states for run in runs}, socket.gethostname())
    processes = [Text(line) for line in gpu_process_lines(gpus.read(), by_pid)]
    for line in processes:
        line.truncate(width, overflow="ellipsis")
    return [*lines, Text(""), *processes] if processes else lines
