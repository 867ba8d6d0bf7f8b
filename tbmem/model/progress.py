"""How far a thread's long work has come, for another thread that shows it and may cancel it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


class CancelledError(BaseException):
    """The work was cancelled; not an ``Exception``, which a reader would take for a damaged file."""


@dataclass(slots=True)
class Work:
    """One piece of work."""

    name: str
    stage: str = "reading"
    share: float | None = None
    """Done of the stage, from 0 to 1; ``None`` if that is unknown."""
    is_cancelled: bool = False
    begun: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""
    show: Callable[[Any], object] = lambda result: None
    """Called with a first result, after which the work goes on for long."""


_current: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def working(work: Work) -> Iterator[None]:
    """Make a piece of work the thread's own."""
    token = _current.set(work)
    try:
        yield
    finally:
        _current.reset(token)


def progress(stage: str, share: float | None = None) -> None:
    """Note how far the thread's work has come, if somebody follows it.

    Raises:
        CancelledError: It was cancelled.
    """
    work = _current.get()
    if work is None:
        return
    if work.is_cancelled:
        raise CancelledError(f"reading {work.name} was cancelled")
    work.stage, work.share = stage, share


def show_first(result: Any) -> None:
    """Hand over a result that will be a part of the whole, if somebody follows the thread's work."""
    work = _current.get()
    if work is not None:
        work.show(result)
