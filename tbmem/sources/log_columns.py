"""A live log goes in as it is written; its samples as numpy columns, and its other lines as records, come out.

A million lines are read in seconds: lines of one layout are read together, the others are cut to their numbers and
converted together, and only what is written otherwise is parsed as JSON, line by line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.errors import FileFormatError
from tbmem.model.columns import F64, I64
from tbmem.model.monitor_log import MonitorLog, SampleRow, take_line
from tbmem.model.sample import MemorySample
from tbmem.sources.line_layout import Layout

COLUMNS = (
    *("step", "time", "allocated", "reserved", "peak_allocated", "peak_reserved", "device_used", "device_total"),
    *("host_rss", "host_peak_rss", "workers_rss", "profiled", "first_step", "count", "allocated_min", "allocated_max"),
    "peak_step",
)
"""What is kept of a row; NaN where a counter was not read."""
_CHUNK = 16 << 20
_SAMPLES = b'{"type":"samples",'
_KIND = len(b'{"type":"')
_HEADER = b"header"
_NEWLINE = ord("\n")
_DEVICE = b'"device":"'
_DIGITS = b"0123456789."
_FEW = 64
"""Lines that are not worth a layout."""
_LAYOUTS = 8
"""Of lines of one length."""
_TOGETHER = 4096
_NO_NUMBER = bytes(set(range(256)) - set(b"0123456789.,-"))


class DeviceColumns(NamedTuple):
    """One device of one rank; all columns have one length, steps ascend."""

    rank: int
    device: str
    columns: Mapping[str, F64]
    """By the names of ``COLUMNS``."""


class ColumnLog:
    """A live log that may still be written.

    Args:
        path: The ``monitor.jsonl``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rest = MonitorLog()
        """Everything but the samples: headers, findings, windows, the end."""
        self.version = 0
        """Another one after each ``read`` that found something."""
        self._position, self._tail, self._understood = 0, b"", 0
        self._parts: dict[tuple[int, str], list[tuple[int, Mapping[str, F64]]]] = {}
        self._joined: tuple[int, tuple[DeviceColumns, ...]] = (-1, ())

    @property
    def header(self) -> Mapping[str, Any]:
        """The last one; empty where there is none yet."""
        return self.rest.headers[-1] if self.rest.headers else {}

    def read(self) -> None:
        """Take in what was written since the last call; a line half written waits.

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
                text = self._tail + chunk
                end = text.rfind(b"\n") + 1
                self._tail = text[end:]
                if end:
                    self._take(text, end)
                    self.version += 1
        if self.rest.damaged_lines and not self._understood:
            raise FileFormatError(f"{self.path}: not a monitor log of tbmem")

    def devices(self) -> tuple[DeviceColumns, ...]:
        """Samples by rank and device; of a run that was resumed, the later ones count from where it was resumed."""
        if self._joined[0] != self.version:
            found = [DeviceColumns(rank, device, _joined(parts)) for (rank, device), parts in self._parts.items()]
            self._joined = self.version, tuple(sorted(found, key=lambda one: (one.rank, one.device)))
        return self._joined[1]

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(len(columns["step"]) for parts in self._parts.values() for _, columns in parts)

    def _take(self, text: bytes, end: int) -> None:
        """Take in the lines of a text until where one ends."""
        signs = np.frombuffer(text, np.uint8, end)
        ends = np.flatnonzero(signs == _NEWLINE)
        begins = np.insert(ends[:-1] + 1, 0, 0)
        # the sign that tells samples from others, where a line is so long
        others = np.flatnonzero(signs[np.minimum(begins + _KIND, ends)] != _SAMPLES[_KIND])
        headers = [at for at in others.tolist() if _HEADER in text[begins[at] : min(begins[at] + 24, ends[at])]]
        first = 0
        for at in headers:
            # what was before a header belongs to the beginning before it
            self._take_lines(text, signs, begins[first:at], ends[first:at])
            self._take_other(text[begins[at] : ends[at]])
            first = at + 1
        self._take_lines(text, signs, begins[first:], ends[first:])

    def _take_lines(self, text: bytes, signs: NDArray[np.uint8], begins: I64, ends: I64) -> None:
        others = np.ones(len(begins), np.bool_)
        sizes, counts = np.unique(ends - begins, return_counts=True)
        for size in sizes[(counts >= _FEW) & (sizes > len(_SAMPLES))].tolist():
            which = np.flatnonzero(ends - begins == size)
            rows = np.lib.stride_tricks.sliding_window_view(signs, size)
            for _ in range(_LAYOUTS):
                fits = self._add_layout(text[begins[which[0]] : ends[which[0]]], rows, begins[which])
                others[which[fits]] = False
                which = which[~fits]
                if fits.sum() < _FEW or len(which) < _FEW:
                    break
        found = zip(begins[others].tolist(), ends[others].tolist(), strict=True)
        groups: dict[tuple[bytes, bytes], list[bytes]] = {}
        for line in (text[begin:end] for begin, end in found):
            if line.startswith(_SAMPLES):
                groups.setdefault((_device_of(line), line.translate(None, _DIGITS)), []).append(line)
            elif line.strip():
                self._take_other(line)
        self._add_groups(groups)

    def _add_layout(self, line: bytes, rows: NDArray[np.uint8], begins: I64) -> NDArray[np.bool_]:
        """Take in the lines of the same layout; which ones they are."""
        none = np.zeros(len(begins), np.bool_)
        try:
            layout = Layout(line, same=("rank",)) if line.startswith(_SAMPLES) else None
        except (ValueError, RecursionError):
            return none
        if layout is None or not _is_sample(layout.values):
            return none
        found = [layout.read(rows[begins[at : at + _TOGETHER]], COLUMNS) for at in range(0, len(begins), _TOGETHER)]
        fits = np.concatenate([own for own, _ in found])
        count = int(fits.sum())
        if not {"step", "time"} <= found[0][1].keys():
            return none
        constant = {name: np.full(count, _number(layout.values.get(name))) for name in COLUMNS}
        constant["profiled"] = np.full(count, float(layout.values.get("profiled") is True))
        read = {name: np.concatenate([columns[name] for _, columns in found if columns]) for name in found[0][1]}
        self._understood += count
        self._part(layout.values.get("rank", 0), layout.values["device"], {**constant, **read})
        return fits

    def _take_other(self, line: bytes) -> None:
        if not take_line(line, self.rest):
            self.rest.damaged_lines += 1
            return
        self._understood += 1
        for row in self.rest.rows:
            self._keep([row])
        self.rest.rows.clear()

    def _add_groups(self, groups: Mapping[tuple[bytes, bytes], Sequence[bytes]]) -> None:
        for (device, _), lines in groups.items():
            if not self._add(device, b"\n".join(lines)):
                for line in lines:
                    self._take_other(line)

    def _add(self, device: bytes, text: bytes) -> bool:
        """Take lines of one make; ``False`` if they are not what they seem."""
        read = _convert(text)
        if read is None:
            return False
        rank, columns = read
        self._understood += len(columns["step"])
        self._part(rank, device.decode(errors="replace"), columns)
        return True

    def _keep(self, rows: Sequence[SampleRow]) -> None:
        for row in rows:
            known = {**row.to_dict(), "profiled": row.sample.profiled}
            columns = {name: np.array([known.get(name, np.nan)], np.float64) for name in COLUMNS}
            self._part(row.sample.rank, row.sample.device, columns)

    def _part(self, rank: int, device: str, columns: Mapping[str, F64]) -> None:
        self._parts.setdefault((rank, device), []).append((len(self.rest.headers), columns))


def _device_of(line: bytes) -> bytes:
    begin = line.find(_DEVICE) + len(_DEVICE)
    return line[begin : line.find(b'"', begin)]


def _is_sample(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("device"), str) and type(line.get("rank", 0)) is int


def _number(value: Any) -> float:
    """What is the same in all lines; NaN where it is not a number."""
    return float(value) if isinstance(value, (bool, int, float)) else np.nan


def _convert(text: bytes) -> tuple[int, dict[str, F64]] | None:
    """Numbers of lines that differ in nothing else; ``None`` if they are not what they seem."""
    count = text.count(b"\n") + 1
    try:
        first, last = (json.loads(line) for line in (text.partition(b"\n")[0], text.rpartition(b"\n")[2]))
    except (ValueError, RecursionError):
        return None
    names = [name for name in first if name != "type"]
    # what is deleted leaves the commas, one before each value; nothing is left of a truth value, nor of 'cpu'
    digits = text.translate(None, _NO_NUMBER)
    while b",," in digits:
        digits = digits.replace(b",,", b",0,")
    try:
        numbers = np.fromstring((digits[1:] + b"0" * digits.endswith(b",")).decode("ascii"), np.float64, sep=",")
    except (ValueError, DeprecationWarning):
        return None
    if len(numbers) != len(names) * count or "step" not in names:
        return None
    grid = numbers.reshape(count, len(names))
    if not (_agrees(names, grid[0], first) and _agrees(names, grid[-1], last)):
        return None
    rank = int(first.get("rank", 0))
    if "rank" in names and (grid[:, names.index("rank")] != rank).any():
        return None
    return rank, _columns(names, grid, first)


def _columns(names: Sequence[str], grid: F64, line: Mapping[str, Any]) -> dict[str, F64]:
    place = {name: number for number, name in enumerate(names)}
    missing = np.full(len(grid), np.nan)
    columns = {name: grid[:, place[name]].copy() if name in place else missing for name in COLUMNS}
    columns["profiled"] = np.full(len(grid), float(line.get("profiled", False) is True))
    return columns


def _agrees(names: Sequence[str], numbers: F64, line: Mapping[str, Any]) -> bool:
    """Whether the numbers are those of a line as JSON reads it; what is no number there is looked at elsewhere."""
    return all(
        name == "device" or isinstance(line.get(name), bool) or line.get(name) == number
        for name, number in zip(names, numbers.tolist(), strict=True)
    )


def _joined(parts: Sequence[tuple[int, Mapping[str, F64]]]) -> Mapping[str, F64]:
    """Parts by the number of the run's beginning they belong to; where it was resumed the earlier ones end."""
    epochs = sorted({epoch for epoch, _ in parts})
    found: dict[str, F64] = {name: np.zeros(0) for name in COLUMNS}
    for epoch in epochs:
        own = _known(
            {name: np.concatenate([columns[name] for at, columns in parts if at == epoch]) for name in COLUMNS}
        )
        if (np.diff(own["step"]) < 0).any():
            order = np.argsort(own["step"], kind="stable")
            own = {name: values[order] for name, values in own.items()}
        if not len(found["step"]):
            found = own
        elif len(own["step"]):
            kept = found["step"] < own["step"][0]
            found = {name: np.concatenate([found[name][kept], own[name]]) for name in COLUMNS}
    return found


def _known(columns: Mapping[str, F64]) -> dict[str, F64]:
    """Rows of which step and time are known; what is not finite is not known."""
    endless = {name: np.isinf(values) for name, values in columns.items()}
    found = {
        name: np.where(endless[name], np.nan, values) if endless[name].any() else values
        for name, values in columns.items()
    }
    whole = ~(np.isnan(found["step"]) | np.isnan(found["time"]))
    return found if whole.all() else {name: values[whole] for name, values in found.items()}


def sample_rows(one: DeviceColumns, places: NDArray[np.int64]) -> list[SampleRow]:
    """Some of a device's rows as records.

    Args:
        one: The device.
        places: Which ones.
    """
    columns = {name: values[places].tolist() for name, values in one.columns.items()}
    names = [name for name in COLUMNS if name in MemorySample._fields and name not in ("step", "time", "profiled")]
    rows = []
    for at in range(len(places)):
        counters = {name: _whole(columns[name][at]) for name in names}
        sample = MemorySample(
            step=int(columns["step"][at]),
            time=columns["time"][at],
            device=one.device,
            rank=one.rank,
            profiled=columns["profiled"][at] == 1,
            **counters,  # type: ignore[arg-type]
        )
        least, most = _whole(columns["allocated_min"][at]), _whole(columns["allocated_max"][at])
        first, count = _whole(columns["first_step"][at]), _whole(columns["count"][at])
        peak_step = _whole(columns["peak_step"][at])
        rows.append(SampleRow(sample.step if first is None else first, count or 1, least, most, sample, peak_step))
    return rows


def _whole(value: float) -> int | None:
    return None if value != value else int(value)
