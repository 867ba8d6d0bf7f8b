"""Logs of a run go in; what each device of each rank held, step by step, comes out as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.plots.curves import even_intervals, extremes
from tbmem.model.columns import F64, I64
from tbmem.model.monitor_log import MonitorLog, SampleRow

_MOST = 4000
_COLUMNS: Mapping[str, Callable[[SampleRow], int | None]] = {
    "allocated": lambda row: row.sample.allocated,
    "lowest": lambda row: row.allocated_min,
    "highest": lambda row: row.allocated_max,
    "reserved": lambda row: row.sample.reserved,
    "peak": lambda row: row.sample.peak,
    "host": lambda row: row.sample.host_rss,
    "workers": lambda row: row.sample.workers_rss,
    "capacity": lambda row: row.sample.device_total,
}


class Series(NamedTuple):
    """Memory of one device of one rank. Bytes are NaN where a counter was not read."""

    rank: int
    device: str
    step: I64
    """Ascending; where a run was resumed, the later one counts."""
    columns: Mapping[str, F64]
    """``allocated`` after the step, its ``lowest`` and ``highest`` in the steps of the row, ``reserved``, ``peak``
    within the steps, ``host`` (resident memory), ``workers`` (of child processes), ``capacity``."""

    def most(self, name: str) -> int | None:
        """The largest value of a column; ``None`` if it is never known."""
        values = self.columns[name]
        return None if np.isnan(values).all() else int(np.nanmax(values))

    def last(self, name: str) -> int | None:
        """The last known value of a column; ``None`` if it is never known."""
        known = self.columns[name][~np.isnan(self.columns[name])]
        return int(known[-1]) if len(known) else None

    def level(self) -> F64:
        """The highest that is known of each row: its peak, else what was allocated."""
        found: F64 = np.fmax(np.fmax(self.columns["peak"], self.columns["highest"]), self.columns["allocated"])
        return found


def series_of(logs: Sequence[MonitorLog]) -> tuple[Series, ...]:
    """All series, by rank and device."""
    rows: dict[tuple[int, str], dict[int, SampleRow]] = {}
    for log in logs:
        for row in log.rows:
            rows.setdefault((row.sample.rank, row.sample.device), {})[row.sample.step] = row
    return tuple(_series(rank, device, found) for (rank, device), found in sorted(rows.items()))


def _series(rank: int, device: str, rows: Mapping[int, SampleRow]) -> Series:
    ordered = [rows[step] for step in sorted(rows)]
    columns = {name: np.array([_number(get(row)) for row in ordered]) for name, get in _COLUMNS.items()}
    return Series(rank, device, np.array(sorted(rows), np.int64), columns)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def thinned(series: Series, most: int = _MOST) -> Series:
    """The same with fewer rows: of each stretch of steps the highest and the lowest."""
    count = len(series.step)
    if count <= most:
        return series
    stretch = even_intervals(count, most // 4)
    high, low = np.nan_to_num(series.level()), np.nan_to_num(series.columns["allocated"])
    kept = np.unique(np.concatenate([[0, count - 1], extremes(high, stretch), extremes(low, stretch)]))
    return series._replace(
        step=series.step[kept], columns={name: values[kept] for name, values in series.columns.items()}
    )
