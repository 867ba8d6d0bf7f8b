"""A sign of life on standard error while a command works that prints nothing until it has a result."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tbmem.model.progress import Work, working

if TYPE_CHECKING:
    from rich.console import Console

_INTERVAL = 20.0
"""Seconds between lines where standard error is no terminal, as in a job's log."""


@contextmanager
def waiting(
    what: str, hint: str = "", interval: float = _INTERVAL, show: Callable[[Any], object] = lambda result: None
) -> Iterator[None]:
    """Show what is done, its stage and for how long; a first result is given to ``show``.

    On a terminal it is shown at once and nothing of it stays. Elsewhere a line is written each ``interval`` seconds,
    the first with the ``hint``; so short work writes none.
    """
    from rich.console import Console

    work, console = Work(what, stage="", show=show), Console(stderr=True)
    with working(work), _spinner(work, console) if console.is_terminal else _lines(work, hint, interval):
        yield


@contextmanager
def _spinner(work: Work, console: Console) -> Iterator[None]:
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Description(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_description(work))  # brackets of a name are no markup

    with Progress(SpinnerColumn(), Description(), TimeElapsedColumn(), console=console, transient=True) as progress:
        progress.add_task("", total=None)
        yield


@contextmanager
def _lines(work: Work, hint: str, interval: float) -> Iterator[None]:
    done = threading.Event()
    writer = threading.Thread(target=_write_lines, args=(work, hint, interval, done), daemon=True)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def _write_lines(work: Work, hint: str, interval: float, done: threading.Event) -> None:
    while not done.wait(interval):
        print(f"{_description(work)}, {time.monotonic() - work.begun:.0f} s so far{hint}", file=sys.stderr, flush=True)
        hint = ""


def _description(work: Work) -> str:
    return f"{work.name}: {work.stage}" if work.stage else work.name
