"""Appends records to a file in a thread of its own, through full and hanging disks and the deletion of the file."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tbmem.model.monitor_log import LogGap
from tbmem.runtime.process.disk_notice import DiskNotice, FolderTaken

MOST_BYTES = 16 << 20
"""Bytes of records that wait for the disk at most: hours of samples."""
_BATCH_BYTES = 1 << 20
_NAMED = 3
"""Gaps that the summary names one by one."""
_RETRY_SECONDS = 1.0
"""Least time between two attempts to write to a disk that has refused."""


class Record(NamedTuple):
    """What is written as a whole, such as a line with its end."""

    data: bytes
    must: bool = True
    """Dropped only when nothing else can be: all but samples."""


class GrowingFile:
    """A file that records are appended to, each of them as a whole.

    Whatever the disk answers, later records are written once it takes them again. Until then they wait in memory, at
    most ``most`` bytes; of more the oldest are dropped. A time in which nothing could be written is a record of its own
    (``gap``) and a line on the console. A record of which the disk took a part is completed first.

    Args:
        name: What people call it.
        path: The file.
        begin: Returns what a new file begins with; with the gap if it replaces a deleted one.
        gap: The record of a gap; ``None`` for a format that has none.
        is_ours: Whether a file that has replaced this one is of this run.
        prepare: Makes the folder if it is missing.
        notice: Tells the console.
        most: Bytes that may wait.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        begin: Callable[[LogGap | None], Iterable[bytes]] = lambda gap: (),
        gap: Callable[[LogGap], bytes] | None = None,
        is_ours: Callable[[Path], bool] = lambda path: True,
        prepare: Callable[[], object] = lambda: None,
        notice: DiskNotice | None = None,
        most: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.path = path
        self.gaps: list[LogGap] = []
        self._begin, self._gap, self._is_ours, self._prepare = begin, gap, is_ours, prepare
        self._notice = notice or DiskNotice()
        self._most, self._clock = most, clock
        self._waiting: deque[Record] = deque()
        self._bytes = 0  # of all that waits or is being written
        self._half: tuple[bytes, int] | None = None  # a record of which the file has the first bytes, and how many
        self._file: int | None = None
        self._size, self._written_at = 0, clock()
        self._has_begun = self._ends = self._is_busy = False
        self._refused: tuple[float, str] | None = None  # since when, and why
        self._lost = 0  # records that were dropped since then
        self._retry_at = 0.0
        self.is_taken = False
        """Whether another run writes to the file now."""
        self.is_there = False
        """Whether the file existed when it was last written or looked for."""
        self._changed = threading.Condition()  # of a re-entrant lock: a signal's handler may wait here, too
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; without it ``write_now`` writes."""
        self._thread = threading.Thread(target=self._work, name="tbmem log", daemon=True)
        self._thread.start()

    def put(self, records: Iterable[Record]) -> None:
        """Queue records; never waits."""
        with self._changed:
            for record in records:
                self._waiting.append(record)
                self._bytes += len(record.data)
            if self._bytes > self._most:
                self._make_room()
            self._changed.notify_all()

    def end(self) -> None:
        """Have the thread write what waits, once, and end."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()

    def wait(self, deadline: float) -> bool:
        """Wait until all is written, or an ending thread has ended, until ``deadline`` (``time.monotonic``)."""
        thread = self._thread
        if self._ends and thread is not None:
            thread.join(max(deadline - time.monotonic(), 0.0))
        with self._changed:
            while thread is not None and thread.is_alive() and (self._is_busy or self._is_due()):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        return self.records_waiting == 0

    @property
    def records_waiting(self) -> int:
        """Number of records that are not written yet."""
        return len(self._waiting) + (self._half is not None) + self._is_busy

    def waiting(self) -> set[bytes]:
        """The records that are not written yet."""
        with self._changed:
            return {record.data for record in self._waiting}

    @property
    def problems(self) -> list[str]:
        """What happened to the file, as lines for the run's summary."""
        lines = [f"{self.name} {gap.sentence}" for gap in self.gaps[:_NAMED]]
        more = len(self.gaps) - len(lines)
        return [*lines, *([f"{self.name} had {more} further gaps"] if more else [])]

    def write_now(self) -> None:
        """Write what waits, or note why that is not possible; an OSError is not raised."""
        if self.is_taken:
            return
        try:
            self._look()
            self._write()
        except FolderTaken as error:
            self.is_taken, self.is_there = True, False
            self._close()
            self._notice.told(f"{self.name}: {error}; this run writes nothing more there")
        except OSError as error:
            self._close()
            reason = error.strerror or str(error)
            if self._refused is None:
                self._refused = (self._clock(), reason)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self._notice.refused(self.name, error)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._seconds_to_retry())
                ends, self._is_busy = self._ends, self._is_due()
            if sys.getprofile() is not None:
                sys.setprofile(None)  # torch's profiler would show this thread's calls, as in ``BackgroundWriter``
            if self._is_busy:
                self.write_now()
            if ends:
                self._end()
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
            if ends:
                return

    def _end(self) -> None:
        """Whether the file is still there, for the summary."""
        self.is_there = self._has_begun and not self.is_taken and self.path.is_file()
        self._close()

    def _is_due(self) -> bool:
        is_allowed = self._refused is None or time.monotonic() >= self._retry_at
        return self._ends or (bool(self._waiting) and is_allowed and not self.is_taken)

    def _seconds_to_retry(self) -> float | None:
        return max(self._retry_at - time.monotonic(), 0.01) if self._refused is not None and self._waiting else None

    def _make_room(self) -> None:
        """Drop the oldest that wait, samples first."""
        for droppable in (True, False):
            kept: deque[Record] = deque()
            for record in self._waiting:
                if self._bytes > self._most and (not record.must or not droppable):
                    self._bytes -= len(record.data)
                    self._lost += 1
                else:
                    kept.append(record)
            self._waiting = kept
            if self._bytes <= self._most:
                return

    def _look(self) -> None:
        """Open the file unless it is open and still there."""
        if self._file is not None:
            if self._is_same(self._file):
                return
            self._close()
        self._prepare()
        file = self._file = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666
        )
        size = os.fstat(file).st_size
        if not self._has_begun:
            self._size = size
            self._start_file(file, None)
            self._has_begun = self.is_there = True
        elif size != self._size:
            self._open_again(file, size)

    def _open_again(self, file: int, size: int) -> None:
        """The file is another one than before, or has lost its end: a record that was cut is written as a whole."""
        if size and not self._is_ours(self.path):
            raise FolderTaken("another run has begun in this folder")
        half, self._half = self._half, None
        if half is not None:
            self._put_first([half[0]], is_counted=True)
        self._size = size
        gap = None
        if not size:
            gap = LogGap(self._written_at, self._clock(), "deleted", self._lost, is_deleted=True)
            self._lost, self._refused = 0, None
            self.gaps.append(gap)
            self._notice.deleted()
        self._start_file(file, gap)

    def _start_file(self, file: int, gap: LogGap | None) -> None:
        """What stands before the first record: in a file that was cut off by a kill, the end of its last line."""
        if self._size == 0:
            self._put_first(self._begin(gap))
        elif self._gap is not None and os.pread(file, 1, self._size - 1) != b"\n":
            self._put_first([b"\n"])

    def _put_first(self, records: Iterable[bytes], *, is_counted: bool = False) -> None:
        first = [Record(data) for data in records]
        with self._changed:
            self._waiting.extendleft(reversed(first))
            self._bytes += 0 if is_counted else sum(len(record.data) for record in first)

    def _is_same(self, file: int) -> bool:
        own = os.fstat(file)
        try:
            there = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)

    def _write(self) -> None:
        if self._half is not None:
            record, there = self._half
            self._half = None
            self._append([Record(record)], there)
        gap = None
        if self._refused is not None:
            gap = LogGap(self._refused[0], self._clock(), self._refused[1], self._lost)
            if self._size == 0:
                self._append(self._take(1))
            if self._gap is not None:
                self._append([Record(self._gap(gap))], again=False)
                self._close_gap(gap)
        while batch := self._take(min(_BATCH_BYTES, self._most // 4)):
            self._append(batch)
        if gap is not None and self._gap is None:
            self._close_gap(gap)

    def _close_gap(self, gap: LogGap) -> None:
        self._refused = None
        self._lost -= gap.lost
        self.gaps.append(gap)
        self._notice.recovered(f"{self.name} {gap.sentence}; it goes on")

    def _take(self, most: int) -> list[Record]:
        """Take records that wait until they have ``most`` bytes."""
        batch: list[Record] = []
        size = 0
        with self._changed:
            while self._waiting and size < most:
                record = self._waiting.popleft()
                batch.append(record)
                size += len(record.data)
        return batch

    def _append(self, records: Sequence[Record], there: int = 0, *, again: bool = True) -> None:
        """Append records, of the first of which the file has ``there`` bytes; ``again``: those that fail wait again."""
        assert self._file is not None  # nosec B101  # for the type checker
        data = memoryview(b"".join(record.data for record in records))
        written = there
        try:
            while written < len(data):
                # an unbuffered write may be partial on a nearly full disk
                written += os.write(self._file, data[written:])
            self._written_at = self._clock()
        finally:
            self._size += written - there
            self._account(records, written, again)

    def _account(self, records: Sequence[Record], written: int, again: bool) -> None:
        """Count what was written, and keep the rest."""
        rest: list[Record] = []
        for record in records:
            length = len(record.data)
            if written >= length:
                self._bytes -= length if again else 0
            elif written > 0:
                self._half = (record.data, written)
                self._bytes += 0 if again else length
            elif again:
                rest.append(record)
            written = max(written - length, 0)
        with self._changed:
            self._waiting.extendleft(reversed(rest))

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)
