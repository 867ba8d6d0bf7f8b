"""Logs of runs and a range of x go in; series, windows and failures to be drawn there come out (``runs.Live``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.thinning import even_stretches, extremes
from tbmem.model.finding import FindingKind
from tbmem.present.console import device_label
from tbmem.present.views.logged import F64, DeviceSeries, LoggedRun
from tbmem.present.views.runs import LiveOom, LiveSeries, LiveWindow

_NAMES = {
    "allocated": ("allocated",),
    "lowest": ("allocated_min", "allocated"),
    "highest": ("allocated_max", "allocated"),
    "reserved": ("reserved",),
    "device_used": ("device_used",),
    "host": ("host_rss",),
    "workers": ("workers_rss",),
}
"""Columns of the answer by those of the log."""


def series_of(run: LoggedRun, one: DeviceSeries, x: str, begin: float, end: float, points: int) -> LiveSeries:
    """One series of a run, thinned: of each stretch of rows the highest and the lowest are kept.

    Args:
        run: Of which run.
        one: The device.
        x: ``step`` or ``time``.
        begin: From where, in x.
        end: Until where.
        points: Rows that are kept, about.
    """
    place = x_of(run, one, x)
    inside = np.flatnonzero((place >= begin) & (place <= end))
    kept = _kept(one, inside, points)
    columns = {name: _first_known(one, names)[kept] for name, names in _NAMES.items()}
    capacity = one.columns["device_total"]
    return {
        "run": run.name,
        "rank": one.rank,
        "device": one.device,
        "name": device_label(one.device),
        "x": np.round(place[kept], 3).tolist(),
        "step": one.columns["step"][kept].astype(np.int64).tolist(),
        "allocated": _plain(columns["allocated"]),
        "lowest": _plain(columns["lowest"]),
        "highest": _plain(columns["highest"]),
        "reserved": _plain(columns["reserved"]),
        "peak": _plain(one.peak()[kept]),
        "device_used": _plain(columns["device_used"]),
        "host": _plain(columns["host"]),
        "workers": _plain(columns["workers"]),
        "capacity": None if np.isnan(capacity).all() else int(np.nanmax(capacity)),
        "points": len(inside),
    }


def x_of(run: LoggedRun, one: DeviceSeries, x: str) -> F64:
    """Steps, or seconds since the run began."""
    if x == "step":
        return one.columns["step"]
    time = one.columns["time"]
    began = run.began or (float(time[0]) if len(time) else 0.0)
    found: F64 = time - began
    return found


def _first_known(one: DeviceSeries, names: Sequence[str]) -> F64:
    found = one.columns[names[0]]
    for name in names[1:]:
        found = np.where(np.isnan(found), one.columns[name], found)
    return found


def _kept(one: DeviceSeries, inside: NDArray[np.int64], points: int) -> NDArray[np.int64]:
    """Rows that a picture needs, so that no extreme of any line is lost."""
    if len(inside) <= points:
        return inside
    lines = [one.peak(), _first_known(one, _NAMES["highest"]), _first_known(one, _NAMES["lowest"])]
    lines += [one.columns[name] for name in ("reserved", "device_used", "host_rss", "workers_rss")]
    lines = [line[inside] for line in lines if not np.isnan(line[inside]).all()]
    # each line needs two rows of a stretch; those of several often are the same
    stretch = even_stretches(len(inside), max(points // (2 * max(len(lines), 1)), 2))
    found = [np.array([0, len(inside) - 1])]
    for line in lines:
        level = np.where(np.isnan(line), np.nanmin(line), line)
        found.append(extremes(level, stretch))
    kept: NDArray[np.int64] = inside[np.unique(np.concatenate(found))]
    return kept


def _plain(values: F64) -> list[int | None]:
    return [None if value != value else int(value) for value in values.tolist()]


def x_of_step(run: LoggedRun, rank: int, step: int, x: str) -> float | None:
    """Where a step lies; ``None`` if it was not logged."""
    if x == "step":
        return float(step)
    own = [one for one in run.series if one.rank == rank] or list(run.series)
    if not own or not len(own[0].columns["step"]):
        return None
    at = min(int(np.searchsorted(own[0].columns["step"], step)), len(own[0].columns["step"]) - 1)
    return round(float(x_of(run, own[0], x)[at]), 3)


def windows_of(run: LoggedRun, x: str) -> list[LiveWindow]:
    """Stretches that the profiler recorded."""
    found: list[LiveWindow] = []
    for window in run.windows:
        rank, first, last = int(window.get("rank", 0)), int(window["first_step"]), int(window["last_step"])
        names = {name.rpartition("/")[2] for name in window.get("files", ())}
        begin, end = x_of_step(run, rank, first, x), x_of_step(run, rank, last, x)
        if begin is None or end is None:
            continue
        found.append(
            {
                "run": run.name,
                "rank": rank,
                "number": int(window.get("number", 0)),
                "first_step": first,
                "last_step": last,
                "x0": begin,
                "x1": end,
                "complete": bool(window.get("complete", True)),
                "files": [file for file in run.recordings if file.rpartition("/")[2] in names],
            }
        )
    return found


def ooms_of(run: LoggedRun, x: str) -> list[LiveOom]:
    """Steps in which memory ran out, by their findings."""
    found: list[LiveOom] = []
    for one in run.findings:
        place = x_of_step(run, one.rank, one.last_step, x)
        if one.kind is FindingKind.OOM and place is not None:
            found.append(
                {
                    "run": run.name,
                    "rank": one.rank,
                    "device": one.device,
                    "step": one.last_step,
                    "x": place,
                    "message": one.message,
                }
            )
    return found
