"""Records of a running monitor go in, lines of monitor.jsonl come out, and back, even after a kill.

Each line is one JSON object with a ``type``: ``header`` (a run begins or is resumed), ``samples`` (one device over
a few steps), ``finding``, ``window`` (the profiler recorded), ``end``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tbmem.errors import FileFormatError
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample

SCHEMA_VERSION = 1
_SAMPLE_FIELDS = MemorySample._fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """Consecutive samples of one device, as one line of the log."""

    first_step: int
    count: int
    """Samples that the row stands for."""
    allocated_min: int | None
    allocated_max: int | None
    sample: MemorySample
    """The last of them, with the largest peaks of all."""

    def to_dict(self) -> dict[str, Any]:
        """The row as plain JSON values; counters that the device does not have are left out."""
        known = zip(_SAMPLE_FIELDS, self.sample, strict=True)
        row: dict[str, Any] = {name: value for name, value in known if value is not None and value is not False}
        row["first_step"] = self.first_step
        row["count"] = self.count
        if self.allocated_min is not None:
            row["allocated_min"] = self.allocated_min
            row["allocated_max"] = self.allocated_max
        return row

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SampleRow:
        """The row that ``to_dict`` gave; unknown keys are ignored.

        Raises:
            KeyError: A required key is missing.
        """
        known = {name: data[name] for name in _SAMPLE_FIELDS if name in data}
        try:
            sample = MemorySample(**known)
        except TypeError as error:
            raise KeyError(str(error)) from error
        return cls(
            first_step=data["first_step"],
            count=data["count"],
            allocated_min=data.get("allocated_min"),
            allocated_max=data.get("allocated_max"),
            sample=sample,
        )


_UNKNOWN = -1
"""Inside a builder only: no peak was seen yet."""


def _known(peak: int) -> int | None:
    return None if peak == _UNKNOWN else peak


class RowBuilder:
    """Gathers samples of one device until they become one row; cheap enough for every step.

    Args:
        before: The builder of the row before, whose level stands in where reading malloc is rationed.
    """

    def __init__(self, before: RowBuilder | None = None) -> None:
        self._counted: MemorySample | None = before._counted if before is not None else None
        self._clear()

    def _clear(self) -> None:
        self._last: MemorySample | None = None
        self._count = 0
        self._first_step = 0
        self._low: int | None = None
        self._high: int | None = None
        self._peak_allocated = self._peak_reserved = self._host_peak = _UNKNOWN
        self._profiled = False

    def add(self, sample: MemorySample) -> None:
        """Take one more sample in."""
        if self._last is None:
            self._first_step = sample.step
        self._last = sample
        self._count += 1
        level = sample.allocated
        if level is not None:
            self._counted = sample
            if self._low is None or level < self._low:
                self._low = level
            if self._high is None or level > self._high:
                self._high = level
        if sample.peak_allocated is not None:
            self._peak_allocated = max(self._peak_allocated, sample.peak_allocated)
        if sample.peak_reserved is not None:
            self._peak_reserved = max(self._peak_reserved, sample.peak_reserved)
        if sample.host_peak_rss is not None:
            self._host_peak = max(self._host_peak, sample.host_peak_rss)
        self._profiled |= sample.profiled

    def build(self) -> SampleRow | None:
        """The row of everything since the last call, or ``None`` if there was nothing."""
        last = self._last
        if last is None:
            return None
        # where reading malloc is rationed, the last reading stands for those that were left out
        counted = self._counted or last
        sample = last._replace(
            allocated=counted.allocated,
            reserved=counted.reserved,
            peak_allocated=_known(self._peak_allocated),
            peak_reserved=_known(self._peak_reserved),
            host_peak_rss=_known(self._host_peak),
            profiled=self._profiled,
        )
        row = SampleRow(
            first_step=self._first_step,
            count=self._count,
            allocated_min=self._low,
            allocated_max=self._high,
            sample=sample,
        )
        self._clear()
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """A window in which the profiler or the memory history recorded."""

    number: int
    """1 for the first window of a run."""
    first_step: int
    last_step: int
    complete: bool
    """False if the run ended inside the window."""
    files: tuple[str, ...] = ()
    """Names of what was written, relative to the run folder."""

    def to_dict(self) -> dict[str, Any]:
        """The window as plain JSON values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


LogRecord = Mapping[str, Any] | SampleRow | Finding | WindowRecord
"""What can be logged; a mapping is a header or an end, and carries its own ``type``."""


def to_line(record: LogRecord) -> str:
    """One record as one line of the log, without the line break."""
    if isinstance(record, SampleRow):
        return json.dumps({"type": "samples", **record.to_dict()}, separators=(",", ":"))
    if isinstance(record, Finding):
        return json.dumps({"type": "finding", **record.to_dict()}, separators=(",", ":"))
    if isinstance(record, WindowRecord):
        return json.dumps({"type": "window", **record.to_dict()}, separators=(",", ":"))
    return json.dumps(record, separators=(",", ":"))


@dataclass(slots=True, kw_only=True)
class MonitorLog:
    """Everything that a log holds, in order."""

    headers: list[dict[str, Any]] = field(default_factory=list)
    rows: list[SampleRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    """The last line of a run that ended in order; ``None`` if it was killed or still runs."""
    damaged_lines: int = 0
    """Lines that could not be read: a kill leaves at most one, at the end."""


def read_monitor_log(path: str | os.PathLike[str]) -> MonitorLog:
    """Read a log, also one that is still being written or was cut off.

    Raises:
        FileFormatError: Not one line of the file is a monitor log's.
        OSError: The file cannot be read.
    """
    log = MonitorLog()
    with open(path, "rb") as lines:
        for line in lines:
            if not take_line(line, log):
                log.damaged_lines += 1
    read = (log.headers, log.rows, log.findings, log.windows, log.end)
    if log.damaged_lines and not any(read):
        raise FileFormatError(f"{Path(path)}: not a monitor log of tbmem")
    return log


def take_line(line: bytes, log: MonitorLog) -> bool:
    """Add one line of a log to what was read before; ``False`` if it is none, as half a line after a kill."""
    try:
        data = json.loads(line)
        kind = data["type"]
        if kind == "samples":
            log.rows.append(SampleRow.from_dict(data))
        elif kind == "finding":
            log.findings.append(Finding.from_dict(data))
        elif kind == "header":
            log.headers.append(data)
            log.end = None
        elif kind == "window":
            log.windows.append(data)
        elif kind == "end":
            log.end = data
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return True
