"""Time series of the live logs of runs, with recorded windows and out-of-memory errors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.plots.curves import even_intervals, extremes
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.columns import F64, I64, whole_numbers
from tbmem.model.finding import Finding
from tbmem.present.lines import device_label, peak_word
from tbmem.present.views.run_schema import FileItem

_NAMES: Mapping[str, tuple[str, ...]] = {
    "allocated": ("allocated",),
    "lowest": ("allocated_min", "allocated"),
    "highest": ("allocated_max", "allocated"),
    "reserved": ("reserved",),
    "device_used": ("device_used",),
    "host": ("host_rss",),
    "workers": ("workers_rss",),
}
"""Lines of the chart, each with the columns of the log that may hold it, preferred one first."""
LINES = (*_NAMES, "peak")
_COUNTS = 3  # numbers of a cursor before those of the rows
_FINE = 5000
"""Intervals of a long log whose extremes are computed once."""


class ExtremeRows:
    """Of a series that grows, rows that contain the extremes of every line: all of a short one, few of a long one."""

    def __init__(self) -> None:
        self._known: I64 = np.zeros(0, np.int64)
        self._count = 0  # rows that they were chosen from
        self._lock = threading.Lock()

    def of(self, series: DeviceSeries) -> I64:
        """The rows; those of a part that has been searched are not searched again."""
        count = len(series.columns["step"])
        if count <= 20 * _FINE:
            return np.arange(count)
        with self._lock:
            if not self._count <= count <= 1.25 * self._count:
                self._known, self._count = extremes_of(series, np.arange(count), _FINE), count
            known, searched = self._known, self._count
        return np.concatenate([known, np.arange(searched, count)])


@dataclass(frozen=True)
class DeviceSeries:
    """All rows of the log of one device of one rank."""

    rank: int
    device: str
    columns: Mapping[str, F64]
    """By field of the log; NaN where a counter was not read."""
    extremes: ExtremeRows = field(default_factory=ExtremeRows)

    def line(self, name: str, rows: NDArray[Any] | slice = slice(None)) -> F64:
        """One of ``LINES``; the peak is the highest level within a row's steps, of the CPU the resident memory's."""
        first, *others = _NAMES.get(name, ("peak_allocated", *(("host_peak_rss",) if self.device == "cpu" else ())))
        values = self.columns[first][rows]
        for other in others:
            values = np.where(np.isnan(values), self.columns[other][rows], values)
        return values

    def peak_steps(self, rows: I64) -> F64:
        """Steps in which the peaks of some rows were reached."""
        steps = self.columns["peak_step"][rows]
        return np.where(np.isnan(steps), self.columns["step"][rows], steps)


def extremes_of(series: DeviceSeries, rows: I64, intervals: int) -> I64:
    """Of ascending rows, the first, the last, and in each interval the highest and lowest of each line."""
    interval = even_intervals(len(rows), intervals)
    extreme = [np.array([0, max(len(rows) - 1, 0)])]
    for name in LINES:
        line = series.line(name, rows)
        known = ~np.isnan(line)
        if known.any():
            extreme.append(extremes(line if known.all() else np.where(known, line, np.nanmin(line)), interval))
    chosen: I64 = rows[np.unique(np.concatenate(extreme))]
    return chosen


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as its logs describe it."""

    name: str
    states: Sequence[RankState] = ()
    """One per rank that could be read."""
    series: Sequence[DeviceSeries] = ()
    windows: Sequence[Mapping[str, Any]] = ()
    """As logged, with the ``rank``."""
    findings: Sequence[Finding] = ()
    errors: Sequence[FileItem] = ()
    recordings: Sequence[str] = ()
    """Files of recordings."""
    notes: Sequence[str] = ()
    logs: Sequence[Any] = ()
    """Files that the states were read from, in their order."""
    starts: int = 0
    """How often it was begun or resumed, over all ranks."""
    unread: float = 0.0
    """Share of its logs, from 0 to 1, that is still to be read: what is here is their begin."""

    @property
    def began(self) -> float:
        """Unix time; 0 if not known."""
        return min([state.header["started"] for state in self.states if "started" in state.header], default=0.0)


def live_series(
    run: LoggedRun,
    series: DeviceSeries,
    x: str,
    begin: float,
    end: float,
    points: int,
    *,
    after: int = 0,
    marked: Sequence[int] = (),
) -> dict[str, Any]:
    """One series of a run, thinned: of each interval of rows, the highest and the lowest value of each line remain.

    Args:
        run: The run of the series.
        series: The series.
        x: ``step`` or ``time``.
        begin: First x.
        end: Last x.
        points: Limit of the rows that remain, beside those that are marked.
        after: Rows before this one are left out.
        marked: Rows that remain if they are in the range.
    """
    at = x_of(run, series, x)
    first, last = max(int(np.searchsorted(at, begin, "left")), after), int(np.searchsorted(at, end, "right"))
    kept = np.array([row for row in marked if first <= row < last], np.int64)
    rows = np.union1d(_shown_rows(series, first, last, points), kept)
    capacity = np.fmax.reduce(series.columns["device_total"], initial=np.nan)
    return {
        "run": run.name,
        "rank": series.rank,
        "device": series.device,
        "name": device_label(series.device),
        "x": np.round(at[rows], 3).tolist(),
        "step": series.columns["step"][rows].astype(np.int64).tolist(),
        "last_step": _last_ended(series, last),
        # where the peaks of the rows were reached; of time no more is known
        "peak_x": series.peak_steps(rows).tolist() if x == "step" else None,
        **{name: whole_numbers(series.line(name, rows)) for name in LINES},
        "peak_word": peak_word("host_peak_rss" if series.device == "cpu" else "peak_allocated"),
        "capacity": None if np.isnan(capacity) else int(capacity),
        "points": max(last - first, 0),  # rows of the log in the range, of which some are left out
    }


def _last_ended(series: DeviceSeries, last: int) -> int | None:
    """The last step of the first rows, so many, that has ended: the one after it may have a row."""
    ended = np.flatnonzero(series.columns["count"][:last] != 0)
    return int(series.columns["step"][ended[-1]]) if len(ended) else None


def x_of(run: LoggedRun, series: DeviceSeries, x: str) -> F64:
    """Steps, or seconds since the run began."""
    if x == "step":
        return series.columns["step"]
    time = series.columns["time"]
    began = run.began or (float(time[0]) if len(time) else 0.0)
    seconds: F64 = time - began
    return seconds


def _shown_rows(series: DeviceSeries, first: int, last: int, points: int) -> I64:
    """Rows from ``first`` up to ``last`` (exclusive) to draw, so that no extreme of any line is lost."""
    last = max(first, last)
    if last - first <= points:
        return np.arange(first, last)
    candidates = series.extremes.of(series)
    inside = candidates[np.searchsorted(candidates, first) : np.searchsorted(candidates, last)]
    if len(inside) < points:
        inside = np.arange(first, last)
    # a line needs two rows of an interval; several lines often share them
    rows = extremes_of(series, inside, max(points // 4, 2))
    return rows if len(rows) <= points else extremes_of(series, inside, max(points // (2 * len(LINES)), 2))


def x_of_step(run: LoggedRun, rank: int, step: int, x: str) -> float | None:
    """X of a step; ``None`` if it was not logged."""
    if x == "step":
        return float(step)
    series = next((series for series in run.series if series.rank == rank), next(iter(run.series), None))
    if series is None or not len(series.columns["step"]):
        return None
    row = min(int(np.searchsorted(series.columns["step"], step)), len(series.columns["step"]) - 1)
    return round(float(x_of(run, series, x)[row]), 3)


def windows_of(run: LoggedRun, x: str) -> list[dict[str, Any]]:
    """Windows that the profiler recorded, with the files of each as the parameter ``file`` names them."""
    windows = []
    for window in run.windows:
        rank, first, last = int(window.get("rank", 0)), int(window["first_step"]), int(window["last_step"])
        names = {name.rpartition("/")[2] for name in window.get("files", ())}
        files = [file for file in run.recordings if file.rpartition("/")[2] in names]
        x0, x1 = x_of_step(run, rank, first, x), x_of_step(run, rank, last, x)
        if x0 is not None and x1 is not None:
            number, complete = int(window.get("number", 0)), bool(window.get("complete", True))
            steps = {"run": run.name, "rank": rank, "number": number, "first_step": first, "last_step": last}
            windows.append({**steps, "x0": x0, "x1": x1, "complete": complete, "files": files})
    return windows


def cursor_of(runs: Sequence[LoggedRun]) -> str:
    """What has been read of some runs, to ask for what comes after it: starts, findings, windows, rows by series."""
    series = [len(series.columns["step"]) for run in runs for series in run.series]
    # when they began, too: a log may be replaced by another
    begins = sum(run.starts + round(1000 * run.began) for run in runs)
    counts = [begins, sum(len(run.findings) for run in runs), sum(len(run.windows) for run in runs)]
    return ",".join(map(str, [*counts, *series]))


def rows_after(runs: Sequence[LoggedRun], cursor: str | None) -> list[int] | None:
    """Of each series the first row after a cursor; ``None`` where everything must be told anew."""
    now, before = cursor_of(runs).split(","), (cursor or "").split(",")
    is_older = len(before) == len(now) and before[0] == now[0] and all(map(str.isdecimal, before))
    if not is_older or any(int(old) > int(new) for old, new in zip(before, now, strict=True)):
        return None
    return [int(rows) for rows in before[_COUNTS:]]


def is_same(runs: Sequence[LoggedRun], cursor: str) -> bool:
    """Whether findings and windows are those of a cursor of :func:`rows_after`."""
    return cursor.split(",")[:_COUNTS] == cursor_of(runs).split(",")[:_COUNTS]
