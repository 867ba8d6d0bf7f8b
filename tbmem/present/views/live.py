"""Logs of runs and a range of x go in; series, windows and failures to be drawn there come out (``runs.Live``)."""

from __future__ import annotations

import numpy as np

from tbmem.model.columns import F64, I64
from tbmem.model.finding import FindingKind
from tbmem.present.lines import device_label, peak_word
from tbmem.present.views.run_logs import LINES, DeviceSeries, LoggedRun, extremes_of
from tbmem.present.views.run_schema import LiveOom, LiveSeries, LiveWindow


def series_of(run: LoggedRun, one: DeviceSeries, x: str, begin: float, end: float, points: int) -> LiveSeries:
    """One series of a run, thinned: of each stretch of rows the highest and the lowest are kept."""
    place = x_of(run, one, x)
    first, last = int(np.searchsorted(place, begin, "left")), int(np.searchsorted(place, end, "right"))
    kept = _kept(one, first, last, points)
    capacity = one.columns["device_total"]
    known = capacity[~np.isnan(capacity)]
    lines = {name: _plain(one.line(name, kept)) for name in LINES}
    return {
        "run": run.name,
        "rank": one.rank,
        "device": one.device,
        "name": device_label(one.device),
        "x": np.round(place[kept], 3).tolist(),
        "step": one.columns["step"][kept].astype(np.int64).tolist(),
        "allocated": lines["allocated"],
        "lowest": lines["lowest"],
        "highest": lines["highest"],
        "reserved": lines["reserved"],
        "peak": lines["peak"],
        "peak_word": peak_word(one.peak_counter),
        "device_used": lines["device_used"],
        "host": lines["host"],
        "workers": lines["workers"],
        "capacity": int(known.max()) if len(known) else None,
        "points": max(last - first, 0),
    }


def x_of(run: LoggedRun, one: DeviceSeries, x: str) -> F64:
    """Steps, or seconds since the run began."""
    if x == "step":
        return one.columns["step"]
    time = one.columns["time"]
    began = run.began or (float(time[0]) if len(time) else 0.0)
    found: F64 = time - began
    return found


def _kept(one: DeviceSeries, first: int, last: int, points: int) -> I64:
    """Rows from ``first`` until before ``last`` that a picture needs, so that no extreme of any line is lost."""
    if last - first <= points:
        return np.arange(first, last)
    telling = one.telling
    inside = telling[np.searchsorted(telling, first) : np.searchsorted(telling, last)]
    if len(inside) < points:
        inside = np.arange(first, last)
    # a line needs two rows of a stretch; those of several lines often are the same
    kept = extremes_of(one, inside, max(points // 4, 2))
    return kept if len(kept) <= points else extremes_of(one, inside, max(points // (2 * len(LINES)), 2))


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
