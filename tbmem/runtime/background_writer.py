"""Passes records on to console, files and other loggers, and takes slow readings, in a daemon thread."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import socket
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

import torch

from tbmem.config.schema import MonitorConfig
from tbmem.errors import described
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import SCHEMA_VERSION, LogRecord
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import RowBuilder, SampleRow
from tbmem.present.lines import get_logger, signal_line, step_line
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Process, Rank
from tbmem.sources.program.raised import raised_at
from tbmem.sources.runs.process_identity import this_process
from tbmem.sources.torch_state.out_of_memory import ran_out_of_memory

INTERVAL = 0.5
"""Seconds between two writes, each of which takes the interpreter lock for a moment; findings are written at once."""
_SETTLED, _LATER = 10.0, 1.0
"""Seconds after which a run is long, and between two writes then: to wake costs the program more than what is done."""
_TOGETHER = 0.25
"""Seconds by which writes and readings of a long run may come too early, so that the thread wakes once for several."""
_SHARE_OF_TIME = 0.01
"""Share of the time that a slow reading may take of a processor; its interval is extended accordingly."""
_EARLY = (0.02, 0.05, 0.1, 0.2, *(0.5 * half for half in range(1, 21)))
"""Seconds after the start at which child processes are first read."""
_CHILDREN_SHARE = 0.05  # of a processor; what is dear of it, their private memory, rations itself
_JOIN_SECONDS = 10.0
"""Maximum time that the end of a run waits for this thread: sinks may be slow."""
_STALLED_SECONDS = 1.0
"""Time without a record after which an incomplete row is written: no step may come any more."""
_MOST_SAMPLES = 128
"""Samples that trigger a write: more of them would appear as growth in the monitored figures."""
_QUEUE = 100_000
"""Maximum number of queued records; the oldest are dropped if the disk does not respond."""
Pending = LogRecord | list[MemorySample]
"""An item of the queue: a record, or samples to be combined into rows."""
CLOSE_ROWS: Pending = []


@dataclass
class PeriodicTask:
    """A slow reading that is repeated."""

    call: Callable[[], None]
    early: Sequence[float] = ()
    """Seconds after the start of the first readings, for short runs."""
    every: float = 1.0
    """Seconds between two readings after that; more if a reading takes long."""
    share: float = _SHARE_OF_TIME
    """Share of the time that it may take of a processor."""

    @classmethod
    def of_children(cls, call: Callable[[], None]) -> PeriodicTask:
        """The reading of child processes, of which some live for a second only."""
        return cls(call, early=_EARLY, share=_CHILDREN_SHARE)

    def __post_init__(self) -> None:
        self.due = self.early[0] if self.early else self.every
        """Time of the next call, in seconds after the start."""

    def plan(self, began: float, ended: float, took: float) -> None:
        """Schedule the next call after one from ``began`` to ``ended`` (seconds after the start).

        ``took``: seconds of processor time, which a busy machine does not make longer.
        """
        later = began + max(self.every, took / self.share)
        self.due = next((date for date in self.early if date > ended), later)


class Sink(Protocol):
    """A destination of records; ``write`` and ``close`` may raise OSError."""

    part: str
    """Name for the guard; sinks of the same name are switched off together."""

    def write(self, records: Sequence[LogRecord]) -> None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class LineSink:
    """Logs memory lines, and a line per signal.

    Args:
        every: Steps; a row that ends on a multiple of them has a line.
        seconds: Least time between two lines about a device; of several rows at once the latest is shown.
    """

    part = "console lines"

    def __init__(self, every: int, seconds: float = 0.0) -> None:
        self._every = every
        self._seconds = seconds
        self._due: dict[str, float] = {}
        self._explains = every != MonitorConfig().log_every_n_steps
        """Whether to say, once, that lines are held back: those who chose their number wait for them."""
        self._held_back = False

    def write(self, records: Sequence[LogRecord]) -> None:
        """Log the lines of these records."""
        logger = get_logger()
        if not logger.isEnabledFor(logging.INFO):
            return
        shown = self._shown(records)
        for row in shown:
            logger.info("%s", step_line(row))
        if shown and self._held_back and self._explains:
            self._explains = False
            logger.info(
                "these lines: the latest step, every %g s at most; monitor.line_seconds=0 shows each", self._seconds
            )
        for record in records:
            if isinstance(record, Mapping) and record["type"] == "signal":
                logger.warning("%s", signal_line(record))

    def _shown(self, records: Sequence[LogRecord]) -> Collection[SampleRow]:
        rows = [record for record in records if isinstance(record, SampleRow)]
        due = [row for row in rows if row.count and row.sample.step % self._every == 0]
        if not self._seconds:
            return due
        latest = {row.sample.device: row for row in due if row.sample.time >= self._due.get(row.sample.device, 0.0)}
        self._due.update((device, row.sample.time + self._seconds) for device, row in latest.items())
        self._held_back |= len(latest) < len(due)
        return latest.values()

    def close(self) -> None:
        """Do nothing: there is no file."""


class BackgroundWriter:
    """Writes records to sinks and runs periodic tasks outside the training thread."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        tasks: Sequence[PeriodicTask],
        guard: Guard,
        interval: float = INTERVAL,
        row_steps: int = 1,
    ) -> None:
        self._sinks = sinks
        self._tasks = tasks
        self._guard = guard
        self._interval = interval
        self._queue: deque[Pending] = deque(maxlen=_QUEUE)
        self._rows: defaultdict[str, RowBuilder] = defaultdict(partial(RowBuilder, row_steps, time.time()))
        self._samples = 0
        self._last_taken = time.monotonic()
        self._hurry = threading.Event()
        self._stopping = self._is_writing = False
        self._thread = threading.Thread(target=self._work, name="tbmem", daemon=True)
        self._pid = Process.number

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, record: Pending) -> None:
        """Queue a record or samples; takes a fraction of a microsecond."""
        self._queue.append(record)
        if isinstance(record, list):
            self._samples += len(record)
            if self._samples >= _MOST_SAMPLES:
                self._samples = 0
                self._hurry.set()

    def hurry(self) -> None:
        """Write the queue now."""
        self._hurry.set()

    def flush(self, seconds: float) -> None:
        """Wait at most ``seconds`` until the queue is written."""
        ends = time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < ends and (self._queue or self._is_writing):
            self._hurry.set()
            time.sleep(0.002)

    def stop(self) -> None:
        """Write the queue and end the thread; waits ten seconds at most."""
        if Process.number != self._pid or self._stopping or self._thread.ident is None:
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
            if sys.getprofile() is not None:
                # torch's profiler has set its function in all threads: a trace would show this thread's calls, which
                # are not the program's. torch removes it only where it is still set.
                sys.setprofile(None)
            now = time.monotonic() - start
            early, least = (_TOGETHER, _LATER) if now >= _SETTLED else (0.0, 0.0)
            if hurried or now + early >= write_at:
                self._hurry.clear()
                self._write()
                write_at = now + max(self._interval, least)
            for number, task in enumerate(self._tasks, start=1):
                began = time.monotonic() - start
                if task.due <= began + early and not self._stopping:
                    used = time.thread_time()
                    self._guard.run(f"background reading {number}", task.call)
                    task.plan(began, time.monotonic() - start, time.thread_time() - used)
        self._write()
        for sink in self._sinks:
            with contextlib.suppress(OSError):  # write errors were reported already
                sink.close()

    def _write(self) -> None:
        self._is_writing = True
        records = self._guard.run("rows of samples", self._take)
        if records:
            for sink in self._sinks:
                self._guard.run(sink.part, sink.write, records)
        self._is_writing = False

    def _take(self) -> list[LogRecord]:
        records: list[LogRecord] = []
        now = time.monotonic()
        if self._queue:
            self._last_taken = now
        elif now >= self._last_taken + _STALLED_SECONDS:
            return [*self._rows_of(())]
        for _ in range(len(self._queue)):
            pending = self._queue.popleft()
            records += self._rows_of(pending) if isinstance(pending, list) else [pending]
        return records

    def _rows_of(self, samples: Sequence[MemorySample]) -> list[SampleRow]:
        if not samples:
            return [row for builder in self._rows.values() for row in builder.close()]
        devices = dict.fromkeys([sample.device for sample in samples])
        if len(devices) == 1:
            return self._rows[samples[0].device].add(samples)
        # with several devices the rows of a step stay together
        return [row for sample in samples for row in self._rows[sample.device].add((sample,))]


def log_header(rank: Rank, config: MonitorConfig, about: Mapping[str, Any]) -> LogRecord:
    """The live log's first record: process, start time and settings of the run."""
    return {
        "type": "header",
        "schema": SCHEMA_VERSION,
        "started": time.time(),
        "rank": rank.rank,
        "world_size": rank.world_size,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": this_process(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "monitor": asdict(config),
        **about,
    }


def log_end(
    steps: int,
    verdicts: Sequence[Finding],
    error: BaseException | None,
    findings: Sequence[Finding],
    *,
    ended: float | None,
    redacts: bool,
) -> LogRecord:
    """The live log's last record: how the run ended.

    ``ended``: the Unix time at which it did, if that is not now; ``redacts``: without an exception's text, which may
    hold data.
    """
    line = None if error is None else raised_at(error)
    return {
        "type": "end",
        "time": time.time() if ended is None else ended,
        "steps": steps,
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        "exception": None if error is None else type(error).__name__,
        "exception_text": None if error is None or redacts else described(error).partition(": ")[2],
        "exception_line": None if line is None else str(line),
        "out_of_memory": ran_out_of_memory(error, findings),
    }
