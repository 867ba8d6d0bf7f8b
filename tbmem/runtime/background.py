"""Records go in from the training's thread; a daemon thread hands them to files and the console."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tbmem.model.monitor_log import LogRecord, RowBuilder
from tbmem.runtime.guard import Guard

INTERVAL = 0.1
"""Seconds between two rounds of writing: how late a console line can be. A kill loses this and the open row."""
CHORES_EVERY = 1.0
"""Seconds between two rounds of dear readings."""
_SHARE_OF_TIME = 0.01
"""Share of the time that dear readings may take; slow ones make the pause longer."""
_JOIN_SECONDS = 10.0
"""How long the end of a run waits for a disk that does not answer."""
_QUEUE = 100_000
"""Records that wait at most; the oldest are dropped if a disk hangs that long."""


Pending = LogRecord | RowBuilder
"""What can be left: a record, or samples that are yet to be made one."""


class Sink(Protocol):
    """Somewhere that records go to."""

    part: str
    """What the guard calls it; sinks of the same name are switched off together."""

    def write(self, records: Sequence[LogRecord]) -> None:
        """Take records in; may raise OSError."""

    def close(self) -> None:
        """The run has ended."""


class Background:
    """Keeps slow things out of the training's way: files, and readings that cost milliseconds.

    Args:
        sinks: Where records go. If one fails, all of the same part are switched off, with one line in the log.
        chores: Called once a round.
        guard: Where errors go.
        interval: Seconds between two rounds.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        chores: Sequence[Callable[[], None]],
        guard: Guard,
        interval: float = INTERVAL,
    ) -> None:
        self._sinks = list(sinks)
        self._chores = list(chores)
        self._guard = guard
        self._interval = interval
        self._chores_due = 0.0
        self._queue: deque[Pending] = deque(maxlen=_QUEUE)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tbmem", daemon=True)
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def put(self, record: Pending) -> None:
        """Leave a record for the next round; costs a fraction of a microsecond."""
        self._queue.append(record)

    def put_all(self, records: Iterable[Pending]) -> None:
        """Leave records that belong to one step, so that they are handed on together."""
        self._queue.extend(records)

    def stop(self) -> None:
        """Write what is left and end the thread; waits a few seconds at most."""
        if os.getpid() != self._pid or self._stopping.is_set() or self._thread.ident is None:
            return
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)

    def _work(self) -> None:
        while not self._stopping.wait(self._interval):
            self._do_chores()
            self._write()
        self._write()
        for sink in self._sinks:
            with contextlib.suppress(OSError):
                # what it could not write has been said already
                sink.close()

    def _do_chores(self) -> None:
        began = time.monotonic()
        if began < self._chores_due:
            return
        for number, chore in enumerate(self._chores):
            self._guard.run(f"background reading {number + 1}", chore)
        took = time.monotonic() - began
        self._chores_due = began + max(CHORES_EVERY, took / _SHARE_OF_TIME)

    def _write(self) -> None:
        queue = self._queue
        left = [queue.popleft() for _ in range(len(queue))]
        built = [each.build() if isinstance(each, RowBuilder) else each for each in left]
        records = [record for record in built if record is not None]
        if records:
            for sink in self._sinks:
                self._guard.run(sink.part, sink.write, records)
