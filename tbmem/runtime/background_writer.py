"""BackgroundWriter: a daemon thread that hands records to files and the console, and reads what is slow."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from tbmem.model.monitor_log import LogRecord, RowBuilder, SampleRow
from tbmem.model.sample import MemorySample
from tbmem.runtime.process.guard import Guard

INTERVAL = 0.5
"""Seconds between two rounds of writing: how late a memory line can be, and what a kill loses besides the open row.
Each round takes the interpreter away from the training for a moment; a finding does not wait for one."""
_SHARE_OF_TIME = 0.01
"""Share of the time that a dear reading may take; a slow one makes its pause longer."""
_JOIN_SECONDS = 10.0
"""How long the end of a run waits for a disk that does not answer."""
_MOST_SAMPLES = 128
"""Samples that wait, whatever the time: more of them would be seen as growth in the figures that are watched."""
_QUEUE = 100_000
"""Records that wait at most; the oldest are dropped if a disk hangs that long."""


Pending = LogRecord | list[MemorySample]
"""What can be left: a record, or samples that shall become rows."""
CLOSE_ROWS: Pending = []
"""No more samples come: what there is of a row is a row."""


class PeriodicTask:
    """Something dear that is done now and then.

    Args:
        call: What to do.
        early: Seconds after the start at which it is done at first, so that short runs have something of it.
        every: Seconds between two times after that; more where it takes long.
    """

    def __init__(self, call: Callable[[], None], early: Sequence[float] = (), every: float = 1.0) -> None:
        self.call = call
        self.due = early[0] if early else every
        """Seconds after the start at which it is done next."""
        self._early = early
        self._every = every

    def plan(self, began: float, ended: float) -> None:
        """It has been done from ``began`` to ``ended``, seconds after the start: when is it next?"""
        later = began + max(self._every, (ended - began) / _SHARE_OF_TIME)
        self.due = next((date for date in self._early if date > ended), later)


class Sink(Protocol):
    """Somewhere that records go to."""

    part: str
    """What the guard calls it; sinks of the same name are switched off together."""

    def write(self, records: Sequence[LogRecord]) -> None:
        """Take records in; may raise OSError."""

    def close(self) -> None:
        """The run has ended."""


class BackgroundWriter:
    """Keeps slow things out of the training's way: files, and readings that cost milliseconds."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        tasks: Sequence[PeriodicTask],
        guard: Guard,
        interval: float = INTERVAL,
        row_steps: int = 1,
    ) -> None:
        self._sinks = list(sinks)
        self._tasks = list(tasks)
        self._guard = guard
        self._interval = interval
        self._queue: deque[Pending] = deque(maxlen=_QUEUE)
        self._rows: defaultdict[str, RowBuilder] = defaultdict(partial(RowBuilder, row_steps, time.time()))
        self._samples = 0
        self._hurry = threading.Event()
        self._stopping = False
        self._is_writing = False
        self._thread = threading.Thread(target=self._work, name="tbmem", daemon=True)
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def put(self, record: Pending) -> None:
        """Leave something for the next round; costs a fraction of a microsecond."""
        self._queue.append(record)
        if isinstance(record, list):
            self._samples += len(record)
            if self._samples >= _MOST_SAMPLES:
                self._samples = 0
                self._hurry.set()

    def hurry(self) -> None:
        """Do not wait for the next round: write what is left now."""
        self._hurry.set()

    def flush(self, seconds: float) -> bool:
        """Wait some seconds at most until what is left has been written; whether it was."""
        ends = time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < ends:
            if not self._queue and not self._is_writing:
                return True
            self._hurry.set()
            time.sleep(0.002)
        return False

    def stop(self) -> None:
        """Write what is left and end the thread; waits a few seconds at most."""
        if os.getpid() != self._pid or self._stopping or self._thread.ident is None:
            return
        self._stopping = True
        self._hurry.set()
        self._thread.join(_JOIN_SECONDS)

    def _work(self) -> None:
        start = time.monotonic()
        write_at = self._interval
        while not self._stopping:
            dates = [write_at, *(task.due for task in self._tasks)]
            hurried = self._hurry.wait(max(min(dates) - (time.monotonic() - start), 0))
            now = time.monotonic() - start
            if hurried or now >= write_at:
                self._hurry.clear()
                self._write()
                write_at = now + self._interval
            self._run_due_tasks(start)
        self._write()
        for sink in self._sinks:
            with contextlib.suppress(OSError):
                # what it could not write has been said already
                sink.close()

    def _run_due_tasks(self, start: float) -> None:
        for number, task in enumerate(self._tasks, start=1):
            began = time.monotonic() - start
            if task.due <= began and not self._stopping:
                self._guard.run(f"background reading {number}", task.call)
                task.plan(began, time.monotonic() - start)

    def _write(self) -> None:
        self._is_writing = True
        records = self._guard.run("rows of samples", self._take)
        if records:
            for sink in self._sinks:
                self._guard.run(sink.part, sink.write, records)
        self._is_writing = False

    def _take(self) -> list[LogRecord]:
        """What is waiting, samples as rows."""
        records: list[LogRecord] = []
        for _ in range(len(self._queue)):
            waiting = self._queue.popleft()
            if isinstance(waiting, list):
                records += self._rows_of(waiting)
            else:
                records.append(waiting)
        return records

    def _rows_of(self, samples: Sequence[MemorySample]) -> list[SampleRow]:
        if not samples:
            return [row for builder in self._rows.values() for row in builder.close()]
        devices = dict.fromkeys([sample.device for sample in samples])
        if len(devices) == 1:
            return self._rows[samples[0].device].add(samples)
        # of several devices each step's rows stay together
        return [row for sample in samples for row in self._rows[sample.device].add((sample,))]
