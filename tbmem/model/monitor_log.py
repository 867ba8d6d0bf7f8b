"""Records of a run's live log, monitor.jsonl, and their encoding as lines.

Each line is one JSON object with a ``type``: ``header`` (a run begins or is resumed), ``samples`` (one device over
a few steps), ``finding``, ``window`` (the profiler recorded), ``framework`` (an adapter's), ``caught`` (a request for
memory failed and the run went on), ``signal`` (SIGTERM came), ``gap`` (the log could not be written for a while, or was
deleted), ``end``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, TypeVar, cast

import msgspec

from tbmem.errors import FileFormatError
from tbmem.model.finding import Finding
from tbmem.model.json_values import Count, UnixTime, read_json
from tbmem.model.sample_row import SampleRow, line_of, row_of
from tbmem.regular_files import open_regular
from tbmem.units import format_duration

SCHEMA_VERSION = 1
STEP_ENDS, STEP_CALLED, OPTIMIZER_STEPPED = "step_ends", "call", "optimizer"
"""Key of a header that says when steps end, and its values: with a call of ``step()``, or when an optimizer steps."""
_NAMED_GAPS = 3
_Record = TypeVar("_Record")


class Process(TypedDict, total=False):
    """The process of a run, as ``sources.runs.process_identity`` describes it."""

    pid: Count
    started: str
    numbers: str


class _Patterns(TypedDict, total=False):
    warmup_steps: Count


class _Config(TypedDict, total=False):
    patterns: _Patterns | None


class Header(TypedDict, total=False):
    """What is read of a header; it has more keys."""

    started: UnixTime
    rank: Count
    host: str
    pid: Count
    process: Process
    torch: str
    config: _Config | None


class _Steps(TypedDict):
    first_step: Count
    last_step: Count


class Window(_Steps, total=False):
    """What is read of a window."""

    number: Count
    complete: bool
    files: list[str]


class End(TypedDict, total=False):
    """What is read of the end of a run."""

    time: UnixTime
    steps: Count
    verdicts: list[dict[str, Any]]
    exception: str | None
    exception_text: str | None
    exception_line: str | None
    out_of_memory: bool


class _Ends(TypedDict):
    ends: bool


class Signal(_Ends, total=False):
    """What is read of a signal; after one that ``ends`` the run nothing follows."""

    name: str
    step: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """A window in which the profiler or the memory history recorded."""

    number: int  # 1 for the first window of a run
    first_step: int
    last_step: int
    complete: bool  # False if the run ended inside the window
    files: tuple[str, ...] = ()  # names of what was written, relative to the run folder


LONGEST_LINE = 8 << 20
"""Bytes of the longest line that is read: a row has some hundred, a finding with its evidence some thousand."""


class _Between(TypedDict):
    time: UnixTime
    since: UnixTime


class _Gap(_Between, total=False):
    reason: str
    lost: Count
    deleted: bool


@dataclass(frozen=True, slots=True)
class LogGap:
    """A time in which the log could not be written, or after which it was found deleted."""

    since: float  # Unix time, in seconds
    until: float
    reason: str  # as the system says it: ``'No space left on device'``
    lost: int = 0  # records that were dropped
    is_deleted: bool = False
    """Everything that was written before is gone."""

    @property
    def sentence(self) -> str:
        """For people, after the name of the file."""
        lost = f"{self.lost} record{'s' * (self.lost != 1)} of this time are lost" if self.lost else "nothing is lost"
        if self.is_deleted:
            return "was deleted during the run; it is made again, and what was in it is gone"
        return f"could not be written for {format_duration(self.until - self.since)} ({self.reason}); {lost}"

    def to_dict(self) -> dict[str, Any]:
        """The record of the log."""
        times = {"time": self.until, "since": self.since}
        return {"type": "gap", **times, "reason": self.reason, "lost": self.lost, "deleted": self.is_deleted}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LogGap:
        """The gap of a line; raises ValueError if it is none."""
        gap = _checked(data, _Gap)
        return cls(gap["since"], gap["time"], gap.get("reason", ""), gap.get("lost", 0), gap.get("deleted", False))


def gap_notes(gaps: Sequence[LogGap], rank: int) -> list[str]:
    """Sentences about a rank's gaps, the first few one by one."""
    notes = [f"Rank {rank}: the live log {gap.sentence}." for gap in gaps[:_NAMED_GAPS]]
    more = len(gaps) - len(notes)
    return [*notes, *([f"Rank {rank}: the live log has {more} more gaps."] if more else [])]


LogRecord = Mapping[str, Any] | SampleRow | Finding | WindowRecord
"""A record of the log; a mapping is a header or an end with its own ``type``."""


_encode = json.JSONEncoder(separators=(",", ":")).encode


def to_line(record: LogRecord) -> str:
    """One record as one line of the log, without the line break."""
    if isinstance(record, SampleRow):
        return line_of(record)
    if isinstance(record, Finding):
        return _encode({"type": "finding", **record.to_dict()})
    if isinstance(record, WindowRecord):
        return _encode({"type": "window", **asdict(record)})
    return _encode(record)


@dataclass(slots=True, kw_only=True)
class MonitorLog:
    """All records of a log, in order."""

    headers: list[Header] = field(default_factory=list)
    rows: list[SampleRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    end: End | None = None
    """Last line of a run that ended in order; ``None`` if it was killed or is still running."""
    signal: Signal | None = None
    gaps: list[LogGap] = field(default_factory=list)
    damaged_lines: int = 0
    """Records that could not be read and were left out, beside the one at the end that a kill has cut off."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be written, according to the log."""
        return self.end is not None or self.signal is not None


def not_a_log(path: str | os.PathLike[str]) -> FileFormatError:
    """The error of a file of which no line is a monitor log's."""
    return FileFormatError(
        f"{Path(path)}: not a monitor log of tbmem: none of its lines can be read; give a run's folder"
    )


def read_monitor_log(path: str | os.PathLike[str]) -> MonitorLog:
    """Read a log, also one that is still being written or was cut off.

    Raises:
        FileFormatError: Not one line of the file is a monitor log's.
    """
    log, is_cut_off = MonitorLog(), False
    with open_regular(path) as file:
        for line in lines_of(file):
            if line.strip():
                is_cut_off = not (parse_line(line, log) or line.endswith(b"\n"))
    if log.damaged_lines and not any((log.headers, log.rows, log.findings, log.windows, log.end)):
        raise not_a_log(path)
    log.damaged_lines -= is_cut_off  # who follows a run that is still being written waits for the rest of it
    return log


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a log; of one that is too long only its first bytes, which are no valid line."""
    while line := file.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)


def parse_line(line: bytes, log: MonitorLog) -> bool:
    """Add one line to a log, each record checked by its type; ``False`` if it is not a valid one.

    That is the incomplete line that a kill leaves, or a record with a value that no program of tbmem writes: it is
    counted in ``damaged_lines`` and left out, so that who reads the log need not check it again.
    """
    try:
        _add(line, log)
    except (ValueError, RecursionError):
        log.damaged_lines += 1
        return False
    return True


def _add(line: bytes, log: MonitorLog) -> None:
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):  # nearly all lines are of samples
        log.rows.append(row_of(line))
        return
    data = read_json(line)
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise ValueError("no type")
    if kind == "samples":
        log.rows.append(SampleRow.from_dict(data))
    elif kind == "finding":
        log.findings.append(Finding.from_dict(data))
    elif kind == "header":
        log.headers.append(_checked(data, Header))
        log.end = log.signal = None
    elif kind == "window":
        log.windows.append(_checked(data, Window))
    elif kind == "end":
        log.end = _with_valid_verdicts(_checked(data, End), log)
    elif kind == "gap":
        log.gaps.append(LogGap.from_dict(data))
    elif kind == "signal" and _checked(data, Signal)["ends"]:
        log.signal = data


def _checked(data: Any, record: type[_Record]) -> _Record:
    """A record as it was written, of which the keys that are read have the types of ``record``."""
    msgspec.convert(data, record)
    return cast("_Record", data)


def _with_valid_verdicts(end: End, log: MonitorLog) -> End:
    """The end with those of its verdicts that are findings; the others are counted as damaged."""
    valid = []
    for verdict in end.get("verdicts", ()):
        try:
            Finding.from_dict(verdict)
        except ValueError:
            log.damaged_lines += 1
        else:
            valid.append(verdict)
    return {**end, "verdicts": valid} if "verdicts" in end else end
