"""Records go in; console lines, lines of monitor.jsonl and points of TensorBoard scalars come out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from tbmem.model.monitor_log import LogRecord, SampleRow, to_line
from tbmem.present.console import get_logger, memory_line, signal_line
from tbmem.present.scalars import ScalarWriter
from tbmem.runtime.guard import WRITING


class LineSink:
    """Shows a memory line for every row that ends on a multiple of the logging interval, and a signal that came.

    Args:
        every: Steps between two lines.
    """

    part = "console lines"

    def __init__(self, every: int) -> None:
        self._every = every

    def write(self, records: Sequence[LogRecord]) -> None:
        """Log the lines that are due."""
        logger = get_logger()
        if not logger.isEnabledFor(logging.INFO):
            return
        for record in records:
            if isinstance(record, SampleRow):
                if record.sample.step % self._every == 0:
                    logger.info("step %d · %s", record.sample.step, memory_line(record.sample))
            elif isinstance(record, Mapping) and record["type"] == "signal":
                logger.warning("%s", signal_line(record))

    def close(self) -> None:
        """Nothing is open."""


class LogSink:
    """Appends to ``monitor.jsonl``; each batch is handed to the operating system, so a kill loses no more.

    Args:
        path: The log; continued if it exists.

    Raises:
        OSError: The file cannot be opened.
    """

    part = WRITING

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115  (open as long as the run)
        self._mend_last_line()

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append a line per record."""
        data = "\n".join([*map(to_line, records), ""]).encode()
        while data:
            # an unbuffered file may take only a part, on a disk that is nearly full
            data = data[self._file.write(data) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _mend_last_line(self) -> None:
        """A run that was killed may have left half a line: what comes next must not be glued to it."""
        size = self._file.seek(0, 2)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")


class ScalarSink:
    """Writes TensorBoard scalars for each row of samples.

    Args:
        folder: The run folder.

    Raises:
        OSError: The event file cannot be created.
    """

    part = WRITING

    def __init__(self, folder: Path) -> None:
        self._writer = ScalarWriter(folder)
        self._devices: set[str] = set()

    def write(self, records: Sequence[LogRecord]) -> None:
        """Add the points of every row of samples."""
        samples = [record.sample for record in records if isinstance(record, SampleRow)]
        self._devices.update([sample.device for sample in samples])
        self._writer.write(samples, several=len(self._devices) > 1)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
