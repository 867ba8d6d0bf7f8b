"""Reads a live log while it is being written, as records or with its samples as numpy columns."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tbmem.errors import FileFormatError
from tbmem.model.columns import F64
from tbmem.model.json_values import Count, Size, UnixTime
from tbmem.model.monitor_log import LONGEST_LINE, MonitorLog, not_a_log, parse_line
from tbmem.model.progress import progress
from tbmem.model.sample_row import ROW_FIELDS, SampleRow, is_device
from tbmem.regular_files import open_regular
from tbmem.sources.runs.log_edges import head_of

_LEFT_OUT = {
    *("device", "rank", "active", "inactive_split", "live_blocks", "alloc_retries", "ooms", "updated"),
    *("host_available", "host_private", "workers_private", "host_heap", "level_step"),
}
"""Fields that no chart over a whole log shows."""
COLUMNS = tuple(name for name in ROW_FIELDS if name not in _LEFT_OUT)
"""Columns of a row; NaN where a counter was not read."""
_TYPED = ("step", "time", "first_step", "count", "profiled", "peak_step")
_CHUNK = 1 << 20
_ROOM = 32  # rows that an array can take at least
_TOO_LONG = b"(too long)\n"
"""Stands for the begin of a line that is too long: a damaged one, with the rest of it behind a line break."""
_MOST_DEVICES = 1024
"""Devices of the ranks in one log."""
_MOST_RANKS = 1 << 31
_NAN = float("nan")
_Numbers = msgspec.defstruct(
    "_Numbers",
    [
        *(("step", Count), ("time", UnixTime), ("device", str), ("first_step", Count), ("count", Count)),
        *(("rank", Count, 0), ("profiled", bool, False), ("peak_step", Count, _NAN)),
        *((name, Size, _NAN) for name in COLUMNS if name not in _TYPED),
    ],
    tag_field="type",
    tag="samples",
    gc=False,
)
_decoder = msgspec.json.Decoder(_Numbers)
"""Accepts what ``model.monitor_log`` accepts; a line with anything else goes there."""
_numbers = attrgetter(*COLUMNS)
_key = attrgetter("rank", "device")


class _Lines:
    """Lines of a file that may still be written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position, self._head = 0, b""
        self._parts: list[bytes] = []
        self._held = 0
        self._understood = self._damaged = 0
        self.unread = 0.0
        """Share of the file, from 0 to 1, that the last call did not come to."""

    def _new_lines(self, until: float = math.inf) -> Iterator[bytes]:
        """Blocks of the lines completed since the last call; an incomplete line is left for the next call.

        Args:
            until: Time of the monotonic clock after which no further block is read, in seconds.
        """
        with open_regular(self.path) as file:
            head, size = head_of(file), file.seek(0, os.SEEK_END)
            if size < self._position or not head.startswith(self._head):
                self.__init__(self.path)  # type: ignore[misc]  # the file was replaced
            self._head = head
            file.seek(self._position)
            while chunk := file.read(_CHUNK):
                progress("reading", min(self._position / (size or 1), 1.0))
                self._position += len(chunk)
                lines, end, rest = chunk.rpartition(b"\n")
                if end:
                    yield self._unfinished() + lines
                self._hold(rest)
                if time.monotonic() >= until:
                    break
        self.unread = max(1 - self._position / size, 0.0) if size else 0.0
        if self._damaged and not self._understood:
            raise not_a_log(self.path)

    def _hold(self, part: bytes) -> None:
        """Keep a part of a line whose end is still to come; of one that is too long only what is too short to read."""
        if self._held <= LONGEST_LINE:
            self._parts.append(part)
        self._held += len(part)

    def _unfinished(self) -> bytes:
        """What was kept of the line that ends now."""
        parts, self._parts, held, self._held = self._parts, [], self._held, 0
        return _TOO_LONG if held > LONGEST_LINE else b"".join(parts)

    def _parse(self, line: bytes, log: MonitorLog) -> None:
        is_valid = parse_line(line, log)
        self._understood += is_valid
        self._damaged += not is_valid


class FollowedLog(_Lines):
    """The records of a live log that may still be written."""

    def read(self) -> Iterator[MonitorLog]:
        """Pieces written since the last call; a header begins a piece.

        Raises:
            FileFormatError: Not one line is a monitor log's.
            OSError: The file cannot be read.
        """
        for lines in self._new_lines():
            piece = MonitorLog()
            for line in filter(bytes.strip, lines.split(b"\n")):
                ending, headers = (piece.end, piece.signal), len(piece.headers)
                self._parse(line, piece)
                if len(piece.headers) > headers:
                    following = MonitorLog(headers=[piece.headers.pop()])
                    piece.end, piece.signal = ending
                    yield piece
                    piece = following
            yield piece


class DeviceColumns(NamedTuple):
    """Samples of one device of one rank, in order of the steps."""

    rank: int
    device: str
    columns: Mapping[str, F64]  # by the names in COLUMNS, all of one length


class ColumnLog(_Lines):
    """A live log that may still be written to, with its samples as columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rest = MonitorLog()
        """All other records: headers, findings, windows, the end."""
        self._devices: dict[tuple[int, str], _Rows] = {}

    def read(self, until: float = math.inf) -> None:
        """Read what was written since the last call, of a long log a part.

        Args:
            until: Time of the monotonic clock at which reading may stop, in seconds; :attr:`unread` says where it did.

        Raises:
            FileFormatError: Not one line is a monitor log's.
            OSError: The file cannot be read.
        """
        for lines in self._new_lines(until):
            try:
                self._add_rows(_decoder.decode_lines(lines))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._add_lines(lines.split(b"\n"))

    def devices(self) -> tuple[DeviceColumns, ...]:
        """Samples by rank and device; where a run was resumed, its new samples replace the old ones."""
        return tuple(DeviceColumns(*key, rows.columns()) for key, rows in sorted(self._devices.items()))

    @property
    def rows(self) -> int:
        """Number of sample rows."""
        return sum(rows.count for rows in self._devices.values())

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        """Add lines of which at least one is not a valid line of samples."""
        rows: list[Any] = []
        for line in lines:
            try:
                rows.append(_decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                if line.strip():
                    self._add_rows(rows)  # rows before a header belong to the start before it
                    rows.clear()
                    self._add_other(line)
        self._add_rows(rows)

    def _add_other(self, line: bytes) -> None:
        self._parse(line, self.rest)
        for row in self.rest.rows:
            values = dict(zip(ROW_FIELDS, row.values, strict=True))
            numbers = np.array([values[name] for name in COLUMNS], np.float64)
            self._add_part(row.sample.rank, row.sample.device, numbers[:, None])
        self.rest.rows.clear()

    def _add_rows(self, rows: Sequence[Any]) -> None:
        by_device: dict[tuple[int, str], list[Any]] = defaultdict(list)
        for key, same in groupby(rows, _key):
            # numbers beyond 64 bits may have equal hashes in any quantity
            if 0 <= key[0] < _MOST_RANKS and is_device(key[1]):
                by_device[key] += same
        understood = sum(map(len, by_device.values()))
        self._understood += understood
        self._damaged += len(rows) - understood
        self.rest.damaged_lines += len(rows) - understood
        for key, device in by_device.items():
            numbers = np.fromiter(chain.from_iterable(map(_numbers, device)), np.float64, len(device) * len(COLUMNS))
            self._add_part(*key, numbers.reshape(len(device), -1).T.copy())

    def _add_part(self, rank: int, device: str, columns: F64) -> None:
        rows = self._devices.get((rank, device))
        if rows is None:
            if len(self._devices) >= _MOST_DEVICES:
                raise FileFormatError(f"{self.path}: has samples of more than {_MOST_DEVICES} devices: no log of tbmem")
            rows = self._devices[rank, device] = _Rows()
        rows.add(columns, len(self.rest.headers))


class _Rows:
    """Rows of one device of one rank in order of the steps, in an array that has room for more."""

    def __init__(self) -> None:
        self.count = 0
        self._array = np.empty((len(COLUMNS), _ROOM))
        self._start, self._begin = 0, 0  # number of the last start, and its first row

    def columns(self) -> Mapping[str, F64]:
        """What was read so far; it stays as it is when more is added."""
        return dict(zip(COLUMNS, self._array[:, : self.count], strict=True))

    def add(self, rows: F64, start: int) -> None:
        """Add rows of the start of a number; those of earlier starts from its first step on are dropped."""
        if not rows.size:
            return
        if start != self._start:
            self._start, self._begin = start, self.count
        steps, count = rows[0], self.count + rows.shape[1]
        last = self._array[0, self.count - 1] if self.count else -np.inf
        follows = steps[0] >= last if self.count > self._begin else steps[0] > last
        if not follows or (np.diff(steps) < 0).any():
            self._merge(rows)
            return
        if count > self._array.shape[1]:
            self._array = _with_room(count, self._array[:, : self.count])
        self._array[:, self.count : count] = rows
        self.count = count

    def _merge(self, rows: F64) -> None:
        """Add rows whose steps do not follow; earlier views of the array stay as they are."""
        own = np.concatenate([self._array[:, self._begin : self.count], rows], axis=1)
        own = own[:, np.argsort(own[0], kind="stable")]
        old = self._array[:, : self._begin]
        old = old[:, old[0] < own[0, 0]]
        self._begin, self.count = old.shape[1], old.shape[1] + own.shape[1]
        self._array = _with_room(self.count, old, own)


def _with_room(count: int, *parts: F64) -> F64:
    """An array that begins with some columns and can take twice as many."""
    array, at = np.empty((len(COLUMNS), count + max(count, _ROOM))), 0
    for part in parts:
        array[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return array


def sample_rows(device: DeviceColumns, indices: NDArray[np.int64]) -> list[SampleRow]:
    """The rows of a device at some indices, as records."""
    columns = {name: values[indices].tolist() for name, values in device.columns.items()}
    rows = []
    for values in zip(*columns.values(), strict=True):
        known = {name: int(value) for name, value in zip(columns, values, strict=True) if value == value}
        time, profiled = values[1], known.pop("profiled", 0) == 1
        defaults = {"first_step": known["step"], "device": device.device, "rank": device.rank}
        row = {**defaults, **known, "time": time, "profiled": profiled, "count": known.get("count", 1)}
        rows.append(SampleRow.from_dict(row))
    return rows
