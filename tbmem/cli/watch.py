"""The command ``tbmem watch``: a live view of running or finished runs on the terminal."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tbmem.cli.arguments import AsJson
from tbmem.offline.live_logs import FollowedRun
from tbmem.present.text.run_status import run_lines, run_view
from tbmem.sources.runs.catalog import RunFiles, find_runs

_LIVE_SECONDS = 60.0
"""A run of a folder is shown if it was written to within this time; if there is none, the latest is."""
_SEARCH_SECONDS = 5.0
"""Time between two searches of a folder for new runs."""


def command(
    path: Annotated[Path, typer.Argument(metavar="RUN|LOGDIR", help="A run folder, or the folder of all runs.")],
    once: Annotated[bool, typer.Option("--once", help="Print where the runs stand, and exit.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every run of the folder, not only those that run.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Watch the memory of running or finished runs; ends with the run, or with Ctrl-C."""
    watched = _Watched(path, everything)
    watched.update()
    console = Console()
    if as_json:
        typer.echo(json.dumps(watched.views(), indent=2))
    elif once or not console.is_terminal:
        for line in watched.lines(console.width if console.is_terminal else 80):
            typer.echo(line.plain)
    else:
        _show(watched, console, interval)


def _show(watched: _Watched, console: Console, interval: float) -> None:
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(Group(*watched.lines(console.width)), refresh=True)
                if watched.is_over:
                    return
                time.sleep(interval)
                watched.update()
    except KeyboardInterrupt:
        return  # the usual way to leave


class _Watched:
    """The runs on the screen."""

    def __init__(self, path: Path, everything: bool) -> None:
        self._path = path
        self._everything = everything
        self._runs: dict[Path, FollowedRun] = {}
        self._found: list[RunFiles] = []
        self._found_at = -math.inf
        self._shown: list[FollowedRun] = []
        self._is_single = False

    @property
    def is_over(self) -> bool:
        """Whether a single run was requested, and it has ended."""
        return self._is_single and all(run.has_ended for run in self._shown)

    def update(self) -> None:
        """Search for new runs, and read what was written since the last call."""
        if time.monotonic() - self._found_at > _SEARCH_SECONDS:
            self._found, self._found_at = find_runs(self._path), time.monotonic()
        runs = self._found
        self._is_single = len(runs) == 1 and runs[0].path.resolve() == self._path.expanduser().resolve()
        live = [run for run in runs if time.time() - run.changed < _LIVE_SECONDS]
        chosen = runs if self._everything else live or runs[-1:]
        self._shown = []
        for files in chosen:
            run = self._runs.get(files.path)
            if run is None or run.files.logs != files.logs:
                run = self._runs[files.path] = FollowedRun(files)
            run.read()
            self._shown.append(run)

    def views(self) -> list[dict[str, object]]:
        """The runs as plain JSON values."""
        now = time.time()
        return [run_view(run.files.name, run.states, now) for run in self._shown]

    def lines(self, width: int) -> list[Text]:
        """The runs as lines of a terminal, separated by empty lines."""
        lines: list[Text] = []
        for view in self.views():
            lines += [*([Text("")] if lines else []), *run_lines(view, width=width)]
        return lines
