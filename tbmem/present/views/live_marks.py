"""What is marked on the series of a live log: findings and out-of-memory where they happened, forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind
from tbmem.present.views.live import DeviceSeries, LoggedRun, x_of, x_of_step
from tbmem.present.views.overview import finding_item

_OF_DEVICE = (Channel.ALLOCATED.value, Channel.PEAK.value, Channel.RESERVED.value)
_AT_THE_PEAK = (FindingKind.SPIKE, FindingKind.PERIODIC, FindingKind.OOM, FindingKind.NEAR_CAPACITY)


def marked_findings(run: LoggedRun, x: str) -> list[dict[str, Any]]:
    """All findings, each with its place: ``x``, ``y`` in bytes and the ``curve`` on which it lies."""
    return [_marked(run, finding, x) for finding in run.findings]


def _marked(run: LoggedRun, finding: Finding, x: str) -> dict[str, Any]:
    at, line = x_of_step(run, finding.rank, finding.last_step, x), "allocated"
    series, level = series_of(run, finding), None
    if series is not None and len(series.columns["step"]):
        if finding.kind in _AT_THE_PEAK and finding.evidence.get("channel") != Channel.ALLOCATED.value:
            line = "peak"
        row = _row_of(series, finding, line)
        level = _known(series.line(line, slice(row, row + 1))[0])
        if finding.kind is FindingKind.OOM:
            level = max(_held(finding.evidence) or 0, level or 0) or None
        elif line == "peak" and x == "step":
            at = float(series.peak_steps(np.array([row]))[0])
        elif finding.kind in _AT_THE_PEAK:
            at = round(float(x_of(run, series, x)[row]), 3)
    return {**finding_item(run.name, finding, at), "y": level, "curve": line}


def series_of(run: LoggedRun, finding: Finding) -> DeviceSeries | None:
    """The series that a finding is about."""
    return next((one for one in run.series if (one.rank, one.device) == (finding.rank, finding.device)), None)


def marked_rows(run: LoggedRun, series: DeviceSeries) -> list[int]:
    """Rows of a series in which something is marked: they are drawn however many are left out."""
    findings = [finding for finding in run.findings if series_of(run, finding) is series]
    return [_row_of(series, finding, "peak") for finding in findings if finding.kind in _AT_THE_PEAK]


def _row_of(series: DeviceSeries, finding: Finding, line: str) -> int:
    """The row with the highest value among those of a finding's steps; elsewhere that of its last step."""
    steps = series.columns["step"]
    first, last = (
        min(int(np.searchsorted(steps, at)), len(steps) - 1) for at in (finding.first_step, finding.last_step)
    )
    if finding.kind not in _AT_THE_PEAK or finding.kind is FindingKind.OOM or last <= first:
        return last
    values = series.line(line, slice(first, last + 1))
    return first + (0 if np.isnan(values).all() else int(np.nanargmax(values)))


def _held(evidence: Mapping[str, Any]) -> int | None:
    """Bytes in use when a request failed, as far as they are known."""
    pieces, total, free = evidence.get("pieces"), evidence.get("device_total_bytes"), evidence.get("device_free_bytes")
    if isinstance(pieces, Mapping) and isinstance(pieces.get("active"), int):
        return int(pieces["active"])
    return total - free if isinstance(total, int) and isinstance(free, int) else None


def _known(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def ooms_of(run: LoggedRun, x: str) -> list[dict[str, Any]]:
    """Steps in which memory ran out, from the findings; ``y`` is what was in use then."""
    return [
        {name: one[name] for name in ("run", "rank", "device", "x", "y", "message")} | {"step": one["last_step"]}
        for one in marked_findings(run, x)
        if one["kind"] == FindingKind.OOM.value and one["x"] is not None
    ]


def forecasts_of(run: LoggedRun, x: str) -> list[dict[str, Any]]:
    """When memory will have filled up if it goes on growing, as the leaks that stand say; the soonest first."""
    pairs = ((state, track) for state in run.states for track in state.devices)
    forecasts = [forecast for state, track in pairs if (forecast := _forecast(run, state, track, x)) is not None]
    return sorted(forecasts, key=lambda one: one["step"])


def _forecast(run: LoggedRun, state: RankState, track: DeviceHistory, x: str) -> dict[str, Any] | None:
    leak = state.verdict_finding(track.device)
    series = None if leak is None else series_of(run, leak)
    if leak is None or leak.kind is not FindingKind.LEAK or series is None or track.last is None:
        return None
    evidence, now = leak.evidence, track.last.step
    left, rate = evidence.get("steps_left"), evidence.get("resident_bytes_per_step", evidence.get("bytes_per_step"))
    if not isinstance(left, int) or not isinstance(rate, (int, float)) or leak.last_step + left <= now:
        return None
    step_time = track.step_time.seconds
    on_device = evidence.get("channel") in _OF_DEVICE
    line = "peak" if on_device else "host"
    level = _known(series.line(line, slice(-1, None))[0])
    capacity = track.last.device_total if on_device else None
    if level is None:
        return None

    def end(name: str) -> tuple[int | None, float | None]:
        steps = evidence.get(name)
        if not isinstance(steps, int):
            return None, None
        step = max(leak.last_step + steps, now)
        seconds = None if step_time is None else (step - now) * step_time
        at = step if x == "step" else None if seconds is None else float(x_of(run, series, x)[-1]) + seconds
        return step, at

    (step, at), (soon, soon_at), (late, late_at) = (
        end(name) for name in ("steps_left", "steps_left_low", "steps_left_high")
    )
    if step is None or at is None:
        return None
    seconds = None if step_time is None else (step - now) * step_time
    return {
        **{"run": run.name, "rank": state.rank, "device": track.device, "line": line},
        **{"from_x": round(float(x_of(run, series, x)[-1]), 3), "from_y": level},  # the last row
        **{"limit": capacity or level + round(rate * (step - now)), "is_capacity": bool(capacity)},
        **{"x": at, "x_low": soon_at, "x_high": late_at, "step": step, "step_low": soon, "step_high": late},
        # from the last row on, and as Unix time
        **{"seconds": seconds, "time": None if seconds is None else track.last.time + seconds, "bytes_per_step": rate},
    }
