"""Writes a monitor's records to the console, to ``monitor.jsonl`` and to TensorBoard scalars."""

from __future__ import annotations

import logging
import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tbmem.config.schema import MonitorConfig
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import SCHEMA_VERSION, LogRecord, SampleRow, to_line
from tbmem.present.lines import get_logger, memory_line, signal_line
from tbmem.present.scalars import ScalarWriter
from tbmem.runtime.process.guard import WRITING
from tbmem.runtime.process.lifecycle import Rank
from tbmem.sources.runs.process_identity import this_process
from tbmem.sources.torch_state.out_of_memory import ran_out_of_memory


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
    steps: int, verdicts: Sequence[Finding], error: BaseException | None, findings: Sequence[Finding]
) -> LogRecord:
    """The live log's last record: how the run ended."""
    return {
        "type": "end",
        "time": time.time(),
        "steps": steps,
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        "exception": None if error is None else type(error).__name__,
        "out_of_memory": ran_out_of_memory(error, findings),
    }


class LineSink:
    """Logs a memory line for each row that ends on a multiple of ``every`` steps, and a line per signal."""

    part = "console lines"

    def __init__(self, every: int) -> None:
        self._every = every

    def write(self, records: Sequence[LogRecord]) -> None:
        """Log the lines of these records."""
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
        """Do nothing: there is no file."""


class LogSink:
    """Appends to ``monitor.jsonl``; each batch is passed to the operating system, so a kill cannot lose it."""

    part = WRITING

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115  (open as long as the run)
        self.close = self._file.close
        size = self._file.seek(0, 2)
        self._file.seek(max(size - 1, 0))
        if size and self._file.read(1) != b"\n":
            self._file.write(b"\n")  # a killed run has left an incomplete last line

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append a line per record."""
        data = "\n".join([*map(to_line, records), ""]).encode()
        while data:
            # an unbuffered write may be partial on a nearly full disk
            data = data[self._file.write(data) :]


class ScalarSink:
    """Writes TensorBoard scalars for each row of samples."""

    part = WRITING

    def __init__(self, folder: Path) -> None:
        self._writer = ScalarWriter(folder)
        self._devices: set[str] = set()
        self.close = self._writer.close

    def write(self, records: Sequence[LogRecord]) -> None:
        """Add the values of each row of samples."""
        samples = [record.sample for record in records if isinstance(record, SampleRow)]
        self._devices.update([sample.device for sample in samples])
        self._writer.write(samples, several=len(self._devices) > 1)
