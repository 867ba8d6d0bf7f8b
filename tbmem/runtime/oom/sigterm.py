"""A SIGTERM handler that writes what is left, and then does what the signal would have done without it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tbmem.runtime.process.identity import Process

Flush = Callable[[bool], None]
"""Told whether the process ends now."""


class _Handler:
    """One installation: what it found there, and who is to be told. Others may still call it after it was removed."""

    installed: _Handler | None = None

    def __init__(self, previous: Any) -> None:
        self.flushes: list[Flush] = []
        self.previous = previous
        self.pid = Process.number
        self._busy = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # a handler of the program's own that calls this one has taken over: it decides what comes of the signal
        ends = self.previous is signal.SIG_DFL and signal.getsignal(number) is self
        if self.pid == Process.number and not self._busy:
            self._flush(ends)
        if callable(self.previous):
            self.previous(number, frame)
        elif ends:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _flush(self, ends: bool) -> None:
        self._busy = True
        try:
            for flush in list(self.flushes):
                with contextlib.suppress(Exception):
                    flush(ends)
        finally:
            self._busy = False

    def origin(self) -> Any:
        """What was there before any of ours."""
        return self.previous.origin() if isinstance(self.previous, _Handler) else self.previous

    def remove(self) -> None:
        """Put back what was there, unless the program has put something else there since."""
        current: object = signal.getsignal(signal.SIGTERM)
        if current is self:
            signal.signal(signal.SIGTERM, self.previous)


def on_sigterm(flush: Flush) -> None:
    """Have ``flush`` called at SIGTERM, until ``forget_sigterm``.

    Nothing is done outside of the main thread (Python sets handlers there only), and where the signal is ignored or
    a library written in C handles it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    handler = _Handler.installed
    if handler is None or handler.pid != Process.number:
        current: object = signal.getsignal(signal.SIGTERM)
        # a parent's, or one that was closed in another thread
        previous = current.origin() if isinstance(current, _Handler) else current
        if previous is None or previous is signal.SIG_IGN:
            return
        handler = _Handler.installed = _Handler(previous)
        signal.signal(signal.SIGTERM, handler)
    handler.flushes.append(flush)


def forget_sigterm(flush: Flush) -> None:
    """Call it no more; the last to leave puts back the handler that was there before."""
    handler = _Handler.installed
    if handler is None or flush not in handler.flushes:
        return
    handler.flushes.remove(flush)
    if not handler.flushes and handler.pid == Process.number:
        _Handler.installed = None
        if threading.current_thread() is threading.main_thread():
            handler.remove()
