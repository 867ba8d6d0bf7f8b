"""The command ``tbmem watch``: a live view of running or finished runs on the terminal."""

from __future__ import annotations

import contextlib
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
    path: Annotated[Path, typer.Argument(metavar="RUN|LOGDIR", help="Run folder, or the folder of all runs.")],
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show all runs of the folder, not only active ones.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show the memory of running or finished runs, until the run ends or Ctrl-C is pressed."""
    watched = _Watched(path, show_all)
    watched.update()
    console = Console()
    if as_json:
        typer.echo(json.dumps(watched.views(), indent=2))
    elif once or not console.is_terminal:
        for line in watched.lines(console.width if console.is_terminal else 80):
            typer.echo(line.plain)
    else:
        # an interrupt is the usual way to leave
        with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(Group(*watched.lines(console.width)), refresh=True)
                if watched.is_over:
                    break
                time.sleep(interval)
                watched.update()


class _Watched:
    """The runs on the screen."""

    def __init__(self, path: Path, show_all: bool) -> None:
        self._path, self._show_all = path, show_all
        self._followed: dict[Path, FollowedRun] = {}
        self._found: list[RunFiles] = []
        self._found_at = -math.inf
        self._shown: list[FollowedRun] = []
        self.is_over = False
        """Whether a single run was requested, and it has ended."""

    def update(self) -> None:
        """Search for new runs, and read what was written since the last call."""
        if time.monotonic() - self._found_at > _SEARCH_SECONDS:
            self._found, self._found_at = find_runs(self._path), time.monotonic()
        runs = self._found
        live = [run for run in runs if time.time() - run.changed < _LIVE_SECONDS]
        self._shown = []
        for files in runs if self._show_all else live or runs[-1:]:
            run = self._followed.get(files.path)
            if run is None or run.files.logs != files.logs:
                run = self._followed[files.path] = FollowedRun(files)
            run.read()
            self._shown.append(run)
        is_single = len(runs) == 1 and runs[0].path.resolve() == self._path.expanduser().resolve()
        self.is_over = is_single and all(state.has_ended for run in self._shown for state in run.states)

    def views(self) -> list[dict[str, object]]:
        """The runs as plain JSON values."""
        now = time.time()
        return [run_view(run.files.name, run.states, now) for run in self._shown]

    def lines(self, width: int) -> list[Text]:
        """The runs as lines of a terminal, separated by empty lines."""
        return [line for view in self.views() for line in (Text(""), *run_lines(view, width=width))][1:]
