"""Reads a run's live log as far as it is written: as records, or its samples as numpy columns, a million in seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tbmem.errors import FileFormatError
from tbmem.model.columns import F64
from tbmem.model.monitor_log import ROW_FIELDS, MonitorLog, SampleRow, parse_line

COLUMNS = (
    *("step", "time", "allocated", "reserved", "peak_allocated", "peak_reserved", "device_used", "device_total"),
    *("host_rss", "host_peak_rss", "workers_rss", "profiled", "first_step", "count", "allocated_min", "allocated_max"),
    "peak_step",
)
"""What is kept of a row; NaN where a counter was not read."""
_CHUNK = 1 << 20
_NAN = float("nan")
_Numbers = msgspec.defstruct(
    "_Numbers",
    [
        *(("step", float), ("time", float), ("device", str), ("rank", int, 0), ("profiled", bool, False)),
        *((name, float, _NAN) for name in COLUMNS if name not in ("step", "time", "profiled")),
    ],
    tag_field="type",
    tag="samples",
    gc=False,
)
_decoder = msgspec.json.Decoder(_Numbers)
_numbers = attrgetter(*COLUMNS)
_key = attrgetter("rank", "device")


class _Lines:
    """Lines of a file that may still be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position, self._tail = 0, b""
        self._understood = self._damaged = 0

    def _new(self) -> Iterator[bytes]:
        """Lines that were completed since the last call, many at a time; a line half written waits.

        Raises:
            FileFormatError: Not one line is a monitor log's.
            OSError: The file cannot be read.
        """
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self._position:
                self.__init__(self.path)  # type: ignore[misc]  # it was replaced
            file.seek(self._position)
            while chunk := file.read(_CHUNK):
                self._position += len(chunk)
                lines, end, rest = (self._tail + chunk).rpartition(b"\n")
                self._tail = rest
                if end:
                    yield lines
        if self._damaged and not self._understood:
            raise FileFormatError(f"{self.path}: not a monitor log of tbmem")

    def _taken(self, line: bytes, log: MonitorLog) -> None:
        """Add a line to what was read before, and count it."""
        if parse_line(line, log):
            self._understood += 1
        else:
            self._damaged += 1


class FollowedLog(_Lines):
    """The records of a live log that may still be written."""

    def read(self) -> Iterator[MonitorLog]:
        """What was written since the last call, in pieces; a header begins a piece, a line half written waits.

        Raises:
            FileFormatError: Not one line is a monitor log's.
            OSError: The file cannot be read.
        """
        for lines in self._new():
            piece, begun = MonitorLog(), 0
            for line in lines.split(b"\n"):
                ended = piece.end, piece.signal
                self._taken(line, piece)
                if len(piece.headers) > begun:
                    header = piece.headers.pop()
                    piece.end, piece.signal = ended
                    yield piece
                    piece, begun = MonitorLog(headers=[header]), 1
            yield piece


class DeviceColumns(NamedTuple):
    """One device of one rank; all columns have one length, steps ascend."""

    rank: int
    device: str
    columns: Mapping[str, F64]
    """By the names of ``COLUMNS``."""


class ColumnLog(_Lines):
    """A live log that may still be written, its samples as columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rest = MonitorLog()
        """Everything but the samples: headers, findings, windows, the end."""
        self._parts: dict[tuple[int, str], list[tuple[int, F64]]] = {}
        self._joined: tuple[DeviceColumns, ...] | None = ()

    def read(self) -> None:
        """Take in what was written since the last call; a line half written waits.

        Raises:
            FileFormatError: Not one line is a monitor log's.
            OSError: The file cannot be read.
        """
        for lines in self._new():
            self._joined = None
            self._take(lines)
            self.rest.damaged_lines = self._damaged

    def devices(self) -> tuple[DeviceColumns, ...]:
        """Samples by rank and device; of a run that was resumed, the later ones count from where it was resumed."""
        if self._joined is None:
            self._joined = tuple(DeviceColumns(*key, _joined(parts)) for key, parts in sorted(self._parts.items()))
        return self._joined

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(columns.shape[1] for parts in self._parts.values() for _, columns in parts)

    def _take(self, text: bytes) -> None:
        try:
            self._keep(_decoder.decode_lines(text))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._take_each(text.split(b"\n"))

    def _take_each(self, lines: Sequence[bytes]) -> None:
        """Take in lines of which one at least is no sample, or none as JSON has it."""
        rows: list[Any] = []
        for line in lines:
            try:
                rows.append(_decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                if line.strip():
                    self._keep(rows)  # what was before a header belongs to the beginning before it
                    rows.clear()
                    self._take_other(line)
        self._keep(rows)

    def _take_other(self, line: bytes) -> None:
        self._taken(line, self.rest)
        for row in self.rest.rows:
            known = dict(zip(ROW_FIELDS, row.values, strict=True))
            numbers = np.array([known[name] for name in COLUMNS], np.float64)
            self._part(row.sample.rank, row.sample.device, numbers[:, None])
        self.rest.rows.clear()

    def _keep(self, rows: Sequence[Any]) -> None:
        self._understood += len(rows)
        keys = set(map(_key, rows))
        for key in keys:
            own = rows if len(keys) == 1 else [row for row in rows if _key(row) == key]
            numbers = np.fromiter(chain.from_iterable(map(_numbers, own)), np.float64, len(own) * len(COLUMNS))
            self._part(*key, numbers.reshape(len(own), -1).T.copy())

    def _part(self, rank: int, device: str, columns: F64) -> None:
        self._parts.setdefault((rank, device), []).append((len(self.rest.headers), columns))


def _joined(parts: Sequence[tuple[int, F64]]) -> Mapping[str, F64]:
    """Parts by the number of the run's beginning they belong to; where it was resumed the earlier ones end."""
    found = np.zeros((len(COLUMNS), 0))
    for epoch in sorted({epoch for epoch, _ in parts}):
        own = np.concatenate([columns for at, columns in parts if at == epoch], axis=1)
        # what is not finite is not known, and a row of which step or time are not known has no place
        own[np.isinf(own)] = _NAN
        whole = ~np.isnan(own[:2]).any(axis=0)
        own = own if whole.all() else own[:, whole]
        if (np.diff(own[0]) < 0).any():
            own = own[:, np.argsort(own[0], kind="stable")]
        if own.size:
            found = np.concatenate([found[:, found[0] < own[0, 0]], own], axis=1) if found.size else own
    return dict(zip(COLUMNS, found, strict=True))


def sample_rows(one: DeviceColumns, places: NDArray[np.int64]) -> list[SampleRow]:
    """Some of a device's rows as records."""
    columns = {name: values[places].tolist() for name, values in one.columns.items()}
    rows = []
    for values in zip(*columns.values(), strict=True):
        known = {name: int(value) for name, value in zip(columns, values, strict=True) if value == value}
        time, profiled = values[1], known.pop("profiled", 0) == 1
        defaults = {"first_step": known["step"], "device": one.device, "rank": one.rank}
        row = {**defaults, **known, "time": time, "profiled": profiled, "count": known.get("count") or 1}
        rows.append(SampleRow.from_dict(row))
    return rows
