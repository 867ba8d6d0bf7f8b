"""A SIGTERM handler that writes pending records and then calls the previous handler."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tbmem.runtime.process.lifecycle import Process

Flush = Callable[[bool], None]


class _Handler:
    """An installed handler, with the previous one. Other handlers may still call it after its removal."""

    installed: _Handler | None = None

    def __init__(self, previous: Any) -> None:
        self.flushes: list[Flush] = []
        self.previous = previous
        self.pid = Process.number
        self._busy = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # if a handler of the program calls this one, the program decides whether it ends
        ends = self.previous is signal.SIG_DFL and signal.getsignal(number) is self
        if self.pid == Process.number and not self._busy:
            self._busy = True
            try:
                for flush in list(self.flushes):
                    with contextlib.suppress(Exception):
                        flush(ends)
            finally:
                self._busy = False
        if callable(self.previous):
            self.previous(number, frame)
        elif ends:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def on_sigterm(flush: Flush) -> None:
    """Call ``flush``, with whether the process ends now, at SIGTERM, until ``forget_sigterm``.

    Called again, it takes the place of a handler that was set since. Has no effect outside the main thread, and if the
    signal is ignored or handled by a C library.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    forget_sigterm(flush)
    handler = _Handler.installed
    if handler is None or handler.pid != Process.number:
        previous: Any = signal.getsignal(signal.SIGTERM)
        while isinstance(previous, _Handler):  # of the parent process, or closed in another thread
            previous = previous.previous
        if previous is None or previous is signal.SIG_IGN:
            return
        handler = _Handler.installed = _Handler(previous)
        signal.signal(signal.SIGTERM, handler)
    handler.flushes.append(flush)


def forget_sigterm(flush: Flush) -> None:
    """Stop calling ``flush``; the last removal restores the previous handler."""
    handler = _Handler.installed
    if handler is None or flush not in handler.flushes:
        return
    handler.flushes.remove(flush)
    if not handler.flushes and handler.pid == Process.number:
        _Handler.installed = None
        is_ours = signal.getsignal(signal.SIGTERM) is handler  # or the program has set another since
        if is_ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler.previous)
