"""Records go in from the training's thread; a daemon thread hands them to files once a second."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from tbmem.model.monitor_log import LogRecord
from tbmem.runtime.guard import WRITING, Guard

INTERVAL = 1.0
"""Seconds between two rounds: what a kill can lose at most."""
_SHARE_OF_TIME = 0.01
"""Share of the time that a round may take; a slower one makes the pause longer."""
_JOIN_SECONDS = 10.0
"""How long the end of a run waits for a disk that does not answer."""
_QUEUE = 100_000
"""Records that wait at most; the oldest are dropped if a disk hangs that long."""


class Sink(Protocol):
    """Somewhere that records go to."""

    def write(self, records: Sequence[LogRecord]) -> None:
        """Take records in; may raise OSError."""

    def close(self) -> None:
        """The run has ended."""


class Background:
    """Keeps slow things out of the training's way: files, and readings that cost milliseconds.

    Args:
        sinks: Where records go. If one fails all are switched off, with one line in the log.
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
        self._queue: deque[LogRecord] = deque(maxlen=_QUEUE)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tbmem", daemon=True)
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def put(self, record: LogRecord) -> None:
        """Leave a record for the next round; costs a fraction of a microsecond."""
        self._queue.append(record)

    def stop(self) -> None:
        """Write what is left and end the thread; waits a few seconds at most."""
        if os.getpid() != self._pid or self._stopping.is_set() or self._thread.ident is None:
            return
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)

    def _work(self) -> None:
        pause = self._interval
        while not self._stopping.wait(pause):
            began = time.perf_counter()
            self._round()
            pause = max(self._interval, (time.perf_counter() - began) / _SHARE_OF_TIME)
        self._write()
        for sink in self._sinks:
            self._guard.run(f"closing {type(sink).__name__}", sink.close)

    def _round(self) -> None:
        for number, chore in enumerate(self._chores):
            self._guard.run(f"background reading {number + 1}", chore)
        self._write()

    def _write(self) -> None:
        queue = self._queue
        records = [queue.popleft() for _ in range(len(queue))]
        if records:
            for sink in self._sinks:
                self._guard.run(WRITING, sink.write, records)
