"""The files of a run that grow with it: the live log and TensorBoard's scalars."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tbmem.model.monitor_log import LogGap, LogRecord, to_line
from tbmem.model.sample_row import SampleRow
from tbmem.present.lines import get_logger
from tbmem.present.scalars import ScalarEncoder
from tbmem.runtime.process.growing_file import GrowingFile, Record
from tbmem.runtime.process.guard import WRITING
from tbmem.runtime.process.run_folder import RunFolder, unwritten_line
from tbmem.sources.runs.log_edges import LogEdges

LIVE_LOG = "the live log"
SCALARS = "the file of scalars"
_MOST_FINDINGS = 1000
"""Findings and windows that are kept to be written again, should the log be deleted."""


class LogSink:
    """Appends records to ``monitor.jsonl``; each batch is passed to the operating system, so a kill cannot lose it.

    Should the file be deleted, a new one begins with the header, the gap, and what was found so far.
    """

    part = WRITING

    def __init__(self, folder: RunFolder, path: Path) -> None:
        self._header: dict[str, object] | None = None
        self._found: deque[bytes] = deque(maxlen=_MOST_FINDINGS)
        self.file = GrowingFile(
            LIVE_LOG,
            path,
            begin=self._begin,
            gap=_gap_line,
            is_ours=self._is_ours,
            prepare=folder.prepare,
            notice=folder.notice,
        )

    def write(self, records: Sequence[LogRecord]) -> None:
        """Queue a line per record."""
        self.file.put(map(self._record, records))

    def close(self) -> None:
        """Have the rest written; ``file.wait`` waits for that."""
        self.file.end()

    def _record(self, record: LogRecord) -> Record:
        line = _line(record)
        if isinstance(record, SampleRow):
            return Record(line, must=False)
        if isinstance(record, Mapping) and record["type"] == "header":
            self._header = dict(record)
        else:
            self._found.append(line)
        return Record(line)

    def _begin(self, gap: LogGap | None) -> Iterable[bytes]:
        if gap is None or self._header is None:
            return ()
        # a reader that follows the file finds other first bytes, and begins anew
        header = {"type": "header", "restored": gap.until, **self._header}
        waiting = self.file.waiting()
        return (_line(header), _gap_line(gap), *(line for line in list(self._found) if line not in waiting))

    def _is_ours(self, path: Path) -> bool:
        """Whether a log that has replaced this one was begun by this process, as one that was copied back."""
        header, found = self._header or {}, LogEdges(path).read().headers
        return not found or all(found[-1].get(key) == header.get(key) for key in ("started", "pid", "host"))


class ScalarSink:
    """Writes TensorBoard scalars for each row of samples."""

    part = WRITING

    def __init__(self, folder: RunFolder) -> None:
        self._encoder = ScalarEncoder(folder.redaction.host(socket.gethostname()))
        self._devices: set[str] = set()
        name = self._encoder.file_name(time.time())
        self.file = GrowingFile(
            SCALARS,
            folder.path / name,
            begin=lambda gap: [self._encoder.first_record(time.time())],
            prepare=folder.prepare,
            notice=folder.notice,
        )

    def write(self, records: Sequence[LogRecord]) -> None:
        """Queue the values of each row of samples."""
        samples = [record.as_read for record in records if isinstance(record, SampleRow)]
        self._devices.update([sample.device for sample in samples])
        encoded = self._encoder.records(samples, several=len(self._devices) > 1)
        self.file.put(Record(data, must=False) for data in encoded)

    def close(self) -> None:
        """Have the rest written; ``file.wait`` waits for that."""
        self.file.end()


class LogFiles:
    """Both of them, each with a thread of its own, since its disk may not answer.

    Args:
        folder: Of the run; without one nothing is written.
        log: Whether there is a live log.
        scalars: Whether there are scalars.
    """

    def __init__(self, folder: RunFolder | None, *, log: bool = True, scalars: bool = True) -> None:
        self._folder = folder
        self._log = LogSink(folder, folder.monitor_log) if folder is not None and log else None
        self._scalars = ScalarSink(folder) if folder is not None and scalars else None
        self._unwritten = ""
        self.sinks = [sink for sink in (self._log, self._scalars) if sink is not None]
        for sink in self.sinks:
            sink.file.write_now()  # opens it: by its open files a process is known to write a run
            sink.file.start()

    @property
    def has_log(self) -> bool:
        """Whether the live log is there, as far as the disk has said."""
        return self._log is not None and self._log.file.is_there

    @property
    def has_scalars(self) -> bool:
        """Whether the file of scalars is there, as far as the disk has said."""
        return self._scalars is not None and self._scalars.file.is_there

    @property
    def problems(self) -> list[str]:
        """What happened to the files, as lines for the summary; of two that share a disk the log stands for both."""
        problems = self.sinks[0].file.problems if self.sinks else []
        return [*problems, self._unwritten] if self._unwritten else problems

    def wait(self, deadline: float) -> None:
        """Wait until all is written, at most until ``deadline`` (``time.monotonic``)."""
        for sink in self.sinks:
            sink.file.wait(deadline)

    def end(self, deadline: float | None = None, *, with_folder: bool = False, others: Sequence[str] = ()) -> None:
        """Write the rest, end the threads, and say what was not written.

        Args:
            deadline: Until when to wait, of ``time.monotonic``; by default ``run.wait_seconds``.
            with_folder: Whether to end the writer of the folder's other files, too.
            others: Names of other files that were not written.
        """
        if deadline is None:
            deadline = time.monotonic() + (self._folder.wait_seconds if self._folder is not None else 0.0)
        for sink in self.sinks:
            sink.close()
        self.wait(deadline)
        left = [sink.file.name for sink in self.sinks if sink.file.records_waiting and not sink.file.is_taken]
        left += others
        if self._folder is not None:
            left += self._folder.writer.end(deadline) if with_folder else []
            if left:
                self._unwritten = unwritten_line(left, self._folder.wait_seconds)
                get_logger().warning("%s", self._unwritten)


def _line(record: LogRecord) -> bytes:
    return f"{to_line(record)}\n".encode()


def _gap_line(gap: LogGap) -> bytes:
    return _line(gap.to_dict())
