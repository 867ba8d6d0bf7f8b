"""Findings, out-of-memory and forecasts lie where they happened, in steps and in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.present.views.live import LoggedRun, live_series
from tbmem.present.views.live_marks import forecasts_of, marked_findings, marked_rows, ooms_of
from tests.present.views.test_live import a_series

GIB = 1 << 30
GROWTH = {"channel": "allocated", "bytes_per_step": 100, "steps_left": 40, "steps_left_low": 30}


def _finding(kind: FindingKind, first: int, last: int, **evidence: Any) -> Finding:
    more = {"severity": Severity.CRITICAL, "device": "cuda:0", "message": kind.value, "evidence": evidence}
    return Finding(kind=kind, first_step=first, last_step=last, **more)


def _run(*findings: Finding, ended: bool = False) -> LoggedRun:
    """A row for ten steps, one step a second; step 34 reached ten times the usual peak."""
    step = np.arange(10, 1001, 10, dtype=np.float64)
    peak = np.where(step == 40, 1000.0, 100.0)
    columns = {"step": step, "time": 1000 + step, "peak_allocated": peak, "allocated": 0 * step + 50}
    series = a_series(100, {**columns, "peak_step": np.where(step == 40, 34.0, step)})
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 1000.0}], findings=list(findings)))
    for at in (990, 1000):
        sample = MemorySample(step=at, time=1000.0 + at, device="cuda:0", allocated=50, device_total=8100)
        state.add(MonitorLog(rows=[SampleRow(at - 9, 10, 50, 50, sample)]))
    return LoggedRun("a", states=[state], series=[series], findings=findings)


def test_a_spike_lies_on_the_peak_of_its_step() -> None:
    run = _run(_finding(FindingKind.SPIKE, 33, 36, channel="peak"))

    (spike,), (in_time,) = marked_findings(run, "step"), marked_findings(run, "time")

    assert (spike["x"], spike["y"], spike["curve"]) == (34, 1000, "peak")
    assert (in_time["x"], in_time["y"]) == (40, 1000)
    # and its row is drawn, however many are left out
    (series,) = run.series
    drawn = live_series(run, series, "step", 300, 1000, 10, marked=[3, 77])
    assert 780 in drawn["step"]
    assert 40 not in drawn["step"]
    assert marked_rows(run, series) == [3]


def test_other_findings_lie_on_the_level_after_their_last_step() -> None:
    (leak,) = marked_findings(_run(_finding(FindingKind.LEAK, 10, 500)), "step")

    assert (leak["x"], leak["y"], leak["curve"]) == (500, 50, "allocated")


@pytest.mark.parametrize(
    ("evidence", "level"),
    [
        ({"pieces": {"active": 7000, "reserved": 8000}}, 7000),
        ({"device_total_bytes": 8100, "device_free_bytes": 600}, 7500),
        ({}, 100),
    ],
)
def test_out_of_memory_lies_at_what_was_in_use(evidence: dict[str, Any], level: int) -> None:
    findings = _finding(FindingKind.LEAK, 3, 3), _finding(FindingKind.OOM, 1003, 1003, **evidence)

    (oom,) = ooms_of(_run(*findings), "step")

    assert (oom["step"], oom["x"], oom["y"], oom["message"]) == (1003, 1003, level, "oom")


def test_a_forecast_ends_at_the_step_that_the_finding_says() -> None:
    run = _run(_finding(FindingKind.LEAK, 10, 980, **GROWTH, steps_left_high=None))

    (steps,), (seconds,) = forecasts_of(run, "step"), forecasts_of(run, "time")

    assert (steps["from_x"], steps["from_y"], steps["limit"], steps["is_capacity"]) == (1000, 100, 8100, True)
    assert (steps["step"], steps["step_low"], steps["step_high"]) == (1020, 1010, None)
    assert (steps["x"], steps["x_low"], steps["x_high"]) == (1020, 1010, None)
    assert (steps["seconds"], steps["time"]) == (20, 2020)
    assert (seconds["from_x"], seconds["x"], seconds["x_low"]) == (1000, 1020, 1010)


@pytest.mark.parametrize(
    "findings",
    [
        [_finding(FindingKind.LEAK, 10, 900, **GROWTH)],  # the run went on beyond it
        [_finding(FindingKind.LEAK, 10, 980)],
        [_finding(FindingKind.LEAK, 10, 980, **GROWTH), _finding(FindingKind.GROWING, 10, 990)],
    ],
)
def test_no_forecast_where_none_stands(findings: list[Finding]) -> None:
    assert forecasts_of(_run(*findings), "step") == []


def test_without_a_capacity_the_limit_is_what_the_rate_reaches() -> None:
    run = _run(_finding(FindingKind.LEAK, 10, 1000, **{**GROWTH, "channel": "heap"}))
    run.series[0].columns["host_rss"][:] = 5000

    (one,) = forecasts_of(run, "step")

    assert (one["line"], one["from_y"], one["limit"], one["is_capacity"]) == ("host", 5000, 9000, False)
