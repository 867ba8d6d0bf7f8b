"""Records of a run's live log, monitor.jsonl, and their encoding as lines.

Each line is one JSON object with a ``type``: ``header`` (a run begins or is resumed), ``samples`` (one device over
a few steps), ``finding``, ``window`` (the profiler recorded), ``framework`` (an adapter's), ``caught`` (a request for
memory failed and the run went on), ``signal`` (SIGTERM came), ``gap`` (the log could not be written for a while, or was
deleted), ``end``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, TypeVar, cast

import msgspec

from tbmem.errors import FileFormatError
from tbmem.model.finding import Finding
from tbmem.model.json_values import Count, Size, UnixTime, read_json
from tbmem.model.sample import MemorySample
from tbmem.regular_files import open_regular
from tbmem.units import format_duration

SCHEMA_VERSION = 1
_ROW_SECONDS = 1.0
_STALE_SECONDS = 5.0
"""Age of a reading of malloc above which it is no longer said to be the level: in a heap of a million holes one takes a
quarter of a second, and comes once in minutes."""
FRESH_SECONDS = 0.1
"""Age of a reading of malloc up to which a row does not say of what step it is: a long run of short steps reads every
20 to 100 ms."""
STEP_ENDS, STEP_CALLED, OPTIMIZER_STEPPED = "step_ends", "call", "optimizer"
"""Key of a header that says when steps end, and its values: with a call of ``step()``, or when an optimizer steps."""
_NAMED_GAPS = 3
ROW_FIELDS = (
    *MemorySample._fields,
    *("first_step", "count", "allocated_min", "allocated_max", "peak_step", "level_step"),
)
"""Keys of a line of samples beside its type."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Consecutive samples of one device, as one line of the log."""

    first_step: int
    count: int  # samples that the row stands for
    allocated_min: int | None
    allocated_max: int | None
    sample: MemorySample  # the last of them, with the largest peaks of all
    peak_step: int | None = None
    """Step of the highest peak, or of the highest level where there are no peaks; ``None`` where there is one step."""
    level_step: int | None = None
    """Step after which the level was read, where that is a while ago; ``None`` where it was read at the row's end."""

    @property
    def highest(self) -> int | None:
        """The highest peak of its steps; the highest level where no peak is known."""
        levels = self.sample.peak is None and self.allocated_max is not None
        return self.allocated_max if levels else self.sample.highest

    @property
    def as_read(self) -> MemorySample:
        """The sample with what was read in its steps alone, without a level that is that of an earlier row."""
        repeats = self.level_step is not None and self.level_step < self.first_step
        return self.sample._replace(allocated=None, reserved=None) if repeats else self.sample

    @property
    def values(self) -> tuple[Any, ...]:
        """Values in the order of ``ROW_FIELDS``."""
        levels = (self.allocated_min, self.allocated_max, self.peak_step, self.level_step)
        return (*self.sample, self.first_step, self.count, *levels)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SampleRow:
        """The row of a line; unknown keys are ignored, and a missing or odd value raises ValueError."""
        return _row_of(msgspec.convert(data, _Line))


class RowBuilder:
    """Collects one device's samples into rows.

    A row in which malloc was not read repeats the level of the row before for some seconds, and has none after that.

    Args:
        every: A row ends with each step whose number is a multiple of this.
        began: Unix time of the run's start in seconds, if known.
    """

    def __init__(self, every: int = 1, began: float = math.inf) -> None:
        self._every = every
        self._last_end = began
        self._open: list[MemorySample] = []
        self._counted: MemorySample | None = None

    def add(self, samples: Sequence[MemorySample]) -> list[SampleRow]:
        """The rows that are complete with these samples.

        A row also ends a second after the one before, so that slow steps are logged at once, and where a profiler
        starts or stops, so that its memory is in the figures of its own steps only.
        """
        rows = []
        for sample in samples:
            if self._open and self._open[-1].profiled != sample.profiled:
                rows += self.close()
            self._open.append(sample)
            if sample.step % self._every == 0 or sample.time - self._last_end >= _ROW_SECONDS:
                rows += self.close()
        return rows

    def close(self) -> list[SampleRow]:
        """The incomplete row, if there is one."""
        samples, self._open = self._open, []
        if not samples:
            return []
        last = samples[-1]
        self._last_end = last.time
        levels = [sample.allocated for sample in samples if sample.allocated is not None]
        if levels:
            self._counted = next(sample for sample in reversed(samples) if sample.allocated is not None)
        lowest, highest = min(levels, default=None), max(levels, default=None)
        counted = self._counted
        if counted is None or last.time - counted.time > _STALE_SECONDS:
            counted = last
        level_step = counted.step if last.time - counted.time > FRESH_SECONDS else None
        merged = last if len(samples) == 1 and levels else _merge(samples, counted)
        return [SampleRow(samples[0].step, len(samples), lowest, highest, merged, _peak_step(samples), level_step)]


def _peak_step(samples: Sequence[MemorySample]) -> int | None:
    """Step of the highest peak; ``None`` for a single sample."""
    if len(samples) == 1:
        return None
    known = [sample for sample in samples if sample.peak is not None]
    known = known or [sample for sample in samples if sample.allocated is not None]
    return max(known, key=lambda sample: sample.highest or 0).step if known else None


def _merge(samples: Sequence[MemorySample], counted: MemorySample) -> MemorySample:
    """The last sample with the largest peaks of all and the last known level."""
    peaks: dict[str, Any] = {}
    for name in ("peak_allocated", "peak_reserved", "host_peak_rss"):
        known = [peak for sample in samples if (peak := getattr(sample, name)) is not None]
        peaks[name] = max(known, default=None)
    updated = any(sample.updated for sample in samples) or samples[-1].updated
    return samples[-1]._replace(allocated=counted.allocated, reserved=counted.reserved, updated=updated, **peaks)


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


_TYPES: dict[str, Any] = {
    **dict.fromkeys(ROW_FIELDS, Size | None),
    **{"step": Count, "time": UnixTime, "device": str, "rank": Count, "profiled": bool, "updated": bool | None},
    **{"first_step": Count, "count": Count, "peak_step": Count | None, "level_step": Count | None},
}
_encode = json.JSONEncoder(separators=(",", ":")).encode
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(:[0-9]+)?")
_Line = msgspec.defstruct(
    "_Line",
    [
        *((name, _TYPES[name]) for name in ROW_FIELDS[:3]),
        *((name, _TYPES[name], False if name == "profiled" else None) for name in ROW_FIELDS[3:]),
    ],
    tag_field="type",
    tag="samples",
    omit_defaults=True,
)
"""Encodes a row five times faster than a dictionary; counters that the device does not have are left out."""
_line_of = msgspec.json.Decoder(_Line).decode
_values = attrgetter(*ROW_FIELDS)


@lru_cache
def is_device(name: str) -> bool:
    """Whether a name is one that torch gives to devices: ``'cpu'``, ``'cuda:0'``."""
    return _DEVICE.fullmatch(name) is not None


def _row_of(line: Any) -> SampleRow:
    """The row of a ``_Line``; ValueError if it does not say which steps and which device it stands for."""
    *sample, first_step, count, lowest, highest, peak_step, level_step = _values(line)
    if first_step is None or count is None or not is_device(line.device):
        raise ValueError("a row without its steps or its device")
    last = MemorySample(*sample)
    last = last._replace(rank=0) if last.rank is None else last
    return SampleRow(first_step, count, lowest, highest, last, peak_step, level_step)


def to_line(record: LogRecord) -> str:
    """One record as one line of the log, without the line break."""
    if isinstance(record, SampleRow):
        return msgspec.json.encode(_Line(*record.values)).decode()
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
        log.rows.append(_row_of(_line_of(line)))
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
