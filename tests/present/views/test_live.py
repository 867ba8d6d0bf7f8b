"""Series of logs, thinned, with windows and out-of-memory errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.monitor_log import MonitorLog
from tbmem.present.views.live import (
    LINES,
    DeviceSeries,
    LoggedRun,
    cursor_of,
    is_same,
    live_series,
    rows_after,
    windows_of,
    x_of_step,
)

_FIELDS = (
    *("allocated", "allocated_min", "allocated_max", "reserved", "device_used", "device_total", "peak_allocated"),
    *("host_rss", "host_peak_rss", "workers_rss", "peak_step"),
)


def a_series(
    count: int, columns: Mapping[str, NDArray[np.float64]] | None = None, device: str = "cuda:0"
) -> DeviceSeries:
    """Steps 1, 2, ... a second apart, from second 1001 on; what is not given was not read."""
    step = np.arange(1, count + 1, dtype=np.float64)
    nothing = {name: np.full(count, np.nan) for name in _FIELDS}
    known = {"step": step, "time": 1000 + step, "count": np.ones(count)}
    return DeviceSeries(0, device, {**nothing, **known, **(columns or {})})


def _run(*series: DeviceSeries, **more: object) -> LoggedRun:
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 1000.0}]))
    return LoggedRun("a", states=[state], series=series, **more)  # type: ignore[arg-type]


def test_extremes_of_a_row_are_its_value_where_they_were_not_logged() -> None:
    series = a_series(3, {"allocated": np.array([5.0, 6, 7]), "allocated_max": np.array([np.nan, 9, np.nan])})

    assert series.line("highest").tolist() == [5, 9, 7]
    assert series.line("lowest").tolist() == [5, 6, 7]


def test_the_peak_of_the_cpu_is_the_resident_one() -> None:
    columns = {"peak_allocated": np.array([np.nan, 2.0]), "host_peak_rss": np.array([8.0, 9.0])}

    assert a_series(2, columns, "cpu").line("peak").tolist() == [8, 2]
    assert np.isnan(a_series(2, columns).line("peak")[0])


def test_thinning_loses_no_extreme_of_any_line() -> None:
    random = np.random.default_rng(0)
    columns = {name: random.integers(0, 1 << 40, 20_000).astype(np.float64) for name in _FIELDS}
    series = a_series(20_000, columns)

    thin = live_series(_run(series), series, "step", -np.inf, np.inf, points=400)

    assert len(thin["x"]) <= 400
    assert thin["points"] == 20_000
    assert (thin["step"][0], thin["step"][-1]) == (1, 20_000)
    for name in LINES:
        line = series.line(name)
        assert (max(thin[name]), min(thin[name])) == (line.max(), line.min()), name


def test_a_part_in_seconds() -> None:
    series = a_series(10, {"allocated": np.arange(10.0), "device_total": np.full(10, 50.0)})

    part = live_series(_run(series), series, "time", 4, 6, points=100)

    assert (part["x"], part["allocated"], part["host"]) == ([4, 5, 6], [3, 4, 5], [None] * 3)
    assert (part["capacity"], part["points"]) == (50, 3)


@pytest.mark.parametrize(("end", "last"), [(10, 9), (6, 6), (0, None)])
def test_the_last_step_is_the_last_that_has_ended(end: int, last: int | None) -> None:
    # given: what came after step 9 has a row
    series = a_series(10, {"count": np.array([1.0] * 9 + [0.0])})
    # when, then
    assert live_series(_run(series), series, "step", 0, end, points=100)["last_step"] == last


def test_steps_on_both_axes() -> None:
    run = _run(a_series(10))

    assert x_of_step(run, 0, 4, "step") == x_of_step(run, 0, 4, "time") == 4.0
    # beyond the log it is the last one, and without a log nothing
    assert x_of_step(run, 0, 99, "time") == 10.0
    assert x_of_step(_run(), 0, 4, "time") is None


def test_windows_have_the_files_of_their_run() -> None:
    window = {"rank": 0, "number": 2, "first_step": 4, "last_step": 6, "complete": False, "files": ["/gone/x.pickle"]}
    run = _run(a_series(10), windows=[window], recordings=["rank0/x.pickle", "rank0/y.pickle"])

    (found,) = windows_of(run, "time")

    assert (found["x0"], found["x1"], found["files"]) == (4.0, 6.0, ["rank0/x.pickle"])
    assert (found["number"], found["complete"]) == (2, False)


def test_a_cursor_names_what_is_new() -> None:
    # given two series of which one has grown
    before = cursor_of([_run(a_series(10), a_series(10))])
    grown = [_run(a_series(10), a_series(12))]

    assert rows_after(grown, before) == [10, 10]
    assert is_same(grown, before)
    part = live_series(grown[0], grown[0].series[1], "step", -np.inf, np.inf, 100, after=10)
    assert (part["step"], part["points"]) == ([11, 12], 2)

    # another series, fewer rows, another start or no cursor at all: everything is told anew
    for runs in ([_run(a_series(10))], [_run(a_series(9), a_series(10))], [_run(a_series(10), a_series(10), starts=1)]):
        assert rows_after(runs, before) is None
    for cursor in (None, "", "x", "-1,0,0,10,12"):
        assert rows_after(grown, cursor) is None


def test_extremes_of_a_long_series_are_searched_once() -> None:
    # given a long series that grows by little, with a new highest value
    columns = {"allocated": np.arange(200_000.0)}
    series = a_series(200_000, columns)
    rows = series.extremes.of(series)
    assert len(rows) < 30_000
    longer = a_series(200_010, {"allocated": np.append(columns["allocated"], np.full(10, 1e9))})

    grown = series.extremes.of(dataclasses.replace(longer, extremes=series.extremes))

    assert grown[: len(rows)].tolist() == rows.tolist()
    assert grown[len(rows) :].tolist() == list(range(200_000, 200_010))
