"""Facts that only the running process knows: stored in a trace of torch.profiler, under one key after the events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from tbmem.model.columns import I64

KEY = "tbmem"
_TAIL = 4096  # bytes at the end of a trace that contain its last brace
_ROUNDING_NS = 2
_NONE: I64 = np.zeros(0, np.int64)


class TimedLines(NamedTuple):
    """Line numbers by Unix time in nanoseconds, in order of time."""

    ns: I64 = _NONE
    line: I64 = _NONE

    @classmethod
    def of(cls, lines: Mapping[int, int]) -> TimedLines:
        """From lines by time, in any order."""
        ns, line = (np.array(list(values), np.int64) for values in (lines, lines.values()))
        order = np.argsort(ns)
        return cls(ns[order], line[order])

    def at(self, moments: I64) -> I64:
        """The line recorded at each moment; 0 for none. A trace's microseconds may be rounded by a nanosecond."""
        if not len(self.ns):
            return np.zeros(len(moments), np.int64)
        after = np.minimum(np.searchsorted(self.ns, moments), len(self.ns) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(moments - self.ns[before] <= self.ns[after] - moments, before, after)
        lines: I64 = np.where(np.abs(self.ns[nearest] - moments) <= _ROUNDING_NS, self.line[nearest], 0)
        return lines


class OlderStorages(NamedTuple):
    """CPU storages that were alive when recording began, unknown to torch."""

    address: I64
    bytes: I64
    freed_ns: I64  # Unix time in nanoseconds; -1 if alive when recording ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAdditions:
    """Everything that tbmem adds to one trace."""

    calls: TimedLines | None = None  # the line from which each Python function was called, by the beginning of the call
    operators: TimedLines = TimedLines()
    """The line of an operator that Python calls without a function (``a * b``), by the time of the allocation."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths of files of installed packages and Python, by the short path in the trace."""
    older: OlderStorages | None = None

    def append_to(self, trace: BinaryIO) -> None:
        """Add to an uncompressed trace that torch.profiler has written, in a file opened for reading and writing."""
        trace.seek(max(trace.seek(0, os.SEEK_END) - _TAIL, 0))
        begin, tail = trace.tell(), trace.read()
        brace = tail.rfind(b"}")
        if brace < 0:
            return
        trace.seek(begin + brace)
        trace.write(b',\n"%b": %b}' % (KEY.encode(), msgspec.json.encode(self._to_json())))
        trace.truncate()
        trace.flush()

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> TraceAdditions:
        """Read from the keys beside a trace's events; damaged or missing parts are left out."""
        data = about.get(KEY)
        if not isinstance(data, dict):
            return cls()
        calls, operators = (_columns(data.get(key), 2) for key in ("calls", "operators"))
        older = _columns(data.get("older"), 3)
        files = data.get("files")
        return cls(
            calls=None if calls is None else TimedLines(*map(np.cumsum, calls)),
            operators=TimedLines(*map(np.cumsum, operators or ())),
            files={str(key): str(value) for key, value in files.items()} if isinstance(files, dict) else {},
            older=None if older is None else OlderStorages(*older),
        )

    def _to_json(self) -> dict[str, Any]:
        """Times and lines are written as differences to the previous value: small numbers."""
        lines = {key: value for key in ("calls", "operators") if (value := getattr(self, key)) is not None}
        lists = {key: [np.diff(column, prepend=0).tolist() for column in columns] for key, columns in lines.items()}
        older = {} if self.older is None else {"older": [column.tolist() for column in self.older]}
        return {"files": dict(self.files), **lists, **older}


def _columns(value: Any, count: int) -> list[I64] | None:
    """Columns of equal length; ``None`` if the value is something else."""
    try:
        columns = np.array(value, np.int64)
    except (TypeError, ValueError, OverflowError):
        return None
    return list(columns) if isinstance(value, list) and columns.ndim == 2 and len(columns) == count else None
