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
    so short work writes none; ``hint`` says, once, how to do without what comes after the first result.
    """
    from rich.console import Console

    is_partly_done = threading.Event()

    def show_first(result: Any) -> None:
        is_partly_done.set()
        show(result)

    work, console = Work(what, stage="", show=show_first), Console(stderr=True)
    lines = _lines(work, lambda: hint if is_partly_done.is_set() else "", interval)
    with working(work), _spinner(work, console) if console.is_terminal else lines:
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
def _lines(work: Work, hint: Callable[[], str], interval: float) -> Iterator[None]:
    done = threading.Event()
    writer = threading.Thread(target=_write_lines, args=(work, hint, interval, done), daemon=True)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def _write_lines(work: Work, hint: Callable[[], str], interval: float, done: threading.Event) -> None:
    has_hinted = False
    while not done.wait(interval):
        now = "" if has_hinted else hint()
        print(f"{_description(work)}, {time.monotonic() - work.begun:.0f} s so far{now}", file=sys.stderr, flush=True)
        has_hinted = has_hinted or bool(now)


def _description(work: Work) -> str:
    return f"{work.name}: {work.stage}" if work.stage else work.name
