"""Facts known to the running process only, which tbmem adds to a trace of torch.profiler.

They are stored in the trace file under one key after the events; other viewers ignore it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tbmem.model.columns import I64

KEY = "tbmem"
_TAIL = 4096
"""Bytes at the end of a trace that contain its last brace."""
_ROUNDING_NS = 2


def _empty() -> I64:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLines:
    """Line numbers by Unix time in nanoseconds, in order of time."""

    ns: I64 = field(default_factory=_empty)
    line: I64 = field(default_factory=_empty)

    @classmethod
    def of(cls, lines: Mapping[int, int]) -> TimedLines:
        """From lines by time, in any order."""
        ns = np.array(list(lines), np.int64)
        order = np.argsort(ns)
        return cls(ns=ns[order], line=np.array(list(lines.values()), np.int64)[order])

    @classmethod
    def of_differences(cls, ns: I64, line: I64) -> TimedLines:
        """From columns of differences to the previous value."""
        return cls(ns=np.cumsum(ns), line=np.cumsum(line))

    def differences(self) -> tuple[I64, I64]:
        """The columns as written: small numbers."""
        return np.diff(self.ns, prepend=0), np.diff(self.line, prepend=0)

    def at(self, moments: I64) -> I64:
        """The line recorded at each moment; 0 for none.

        Traces have microseconds with three decimals, which floating point may round by a nanosecond.
        """
        if not len(self.ns):
            return np.zeros(len(moments), np.int64)
        after = np.minimum(np.searchsorted(self.ns, moments), len(self.ns) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(moments - self.ns[before] <= self.ns[after] - moments, before, after)
        lines: I64 = np.where(np.abs(self.ns[nearest] - moments) <= _ROUNDING_NS, self.line[nearest], 0)
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderStorages:
    """CPU storages that were alive when recording began, unknown to torch."""

    address: I64 = field(default_factory=_empty)
    bytes: I64 = field(default_factory=_empty)
    freed_ns: I64 = field(default_factory=_empty)
    """Unix time in nanoseconds; -1 if alive when recording ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAdditions:
    """Everything that tbmem adds to one trace."""

    calls: TimedLines | None = None
    """The line from which each Python function was called, by the beginning of the call."""
    operators: TimedLines = field(default_factory=TimedLines)
    """The line of an operator that Python calls without a function (``a * b``), by the time of the allocation."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths of files of installed packages and Python, by the short path in the trace."""
    older: OlderStorages | None = None

    def append_to(self, trace: Path) -> None:
        """Add to an uncompressed trace that torch.profiler has written."""
        with open(trace, "r+b") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            begin, tail = file.tell(), file.read()
            brace = tail.rfind(b"}")
            if brace < 0:
                return
            file.seek(begin + brace)
            file.write(b',\n"%b": %b}' % (KEY.encode(), msgspec.json.encode(self._to_json())))
            file.truncate()

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
            calls=None if calls is None else TimedLines.of_differences(*calls),
            operators=TimedLines() if operators is None else TimedLines.of_differences(*operators),
            files={str(key): str(value) for key, value in files.items()} if isinstance(files, dict) else {},
            older=None if older is None else OlderStorages(address=older[0], bytes=older[1], freed_ns=older[2]),
        )

    def _to_json(self) -> dict[str, Any]:
        parts = {
            "calls": None if self.calls is None else self.calls.differences(),
            "operators": self.operators.differences(),
            "older": None if self.older is None else (self.older.address, self.older.bytes, self.older.freed_ns),
        }
        lists = {key: [column.tolist() for column in columns] for key, columns in parts.items() if columns is not None}
        return {"files": dict(self.files), **lists}


def _columns(value: Any, count: int) -> list[I64] | None:
    """Columns of equal length; ``None`` if the value is something else."""
    if not isinstance(value, list) or len(value) != count:
        return None
    try:
        columns = [np.array(column, np.int64) for column in value]
    except (TypeError, ValueError, OverflowError):
        return None
    alike = all(column.ndim == 1 and len(column) == len(columns[0]) for column in columns)
    return columns if alike else None
