"""Calls the user's functions, and those of installed packages, with each finding."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points

from tbmem.model.finding import Finding
from tbmem.model.monitor_log import LogRecord
from tbmem.runtime.process.guard import Guard

Listener = Callable[[Finding], object]
GROUP = "tbmem.on_finding"
"""Entry points by which a package adds a listener of its own."""
_JOIN_SECONDS = 5.0
"""Maximum time that the end of a run waits for listeners: a web server may not answer."""
_WAITING = 100
"""Findings that may wait; of more the latest are left out."""


class FindingListeners:
    """A sink that passes findings on, in a thread of its own: what a listener does may take any time.

    A listener that raises is logged once and called no more. Suspicions and what they turn out to be are left out, as
    they are on the console.
    """

    part = "on_finding"

    def __init__(self, listeners: Iterable[Listener], guard: Guard) -> None:
        self._listeners = list(listeners)
        self._guard = guard
        self._has_loaded = self._has_ended = False
        self._queue: queue.Queue[Finding | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None

    def write(self, records: Sequence[LogRecord]) -> None:
        """Queue the findings among some records."""
        for record in records:
            if isinstance(record, Finding) and not record.kind.is_quiet and not self._queue.full():
                self._queue.put_nowait(record)
                self._start()

    def close(self) -> None:
        """Wait for the listeners, but not for ever."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._has_ended = True
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)
            thread.join(_JOIN_SECONDS)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tbmem on_finding", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not (self._has_ended and self._queue.empty()):
            finding = self._queue.get()
            if finding is None:
                return
            if not self._has_loaded:
                # not before the first finding: reading the metadata of all packages takes some 20 ms
                self._has_loaded = True
                self._listeners += self._guard.run(self.part, _installed) or ()
            for listener in list(self._listeners):
                self._call(listener, finding)

    def _call(self, listener: Listener, finding: Finding) -> None:
        try:
            listener(finding)
        except Exception as error:
            self._listeners.remove(listener)
            self._guard.fail(f"on_finding {getattr(listener, '__qualname__', listener)!s}", error)


def _installed() -> list[Listener]:
    """The listeners of installed packages."""
    return [entry.load() for entry in entry_points(group=GROUP)]
