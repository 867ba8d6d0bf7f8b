"""Report of a run from the logs of its ranks, with the memory of each device as columns over the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.plots.curves import even_intervals, extremes
from tbmem.analysis.runs.run_status import RankState, RunStatus, run_status, skipped_note
from tbmem.model.columns import F64, I64
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import Header, MonitorLog, gap_notes
from tbmem.model.run_summary import Peak
from tbmem.model.sample_row import SampleRow

_MAX_ROWS = 4000
_LAST_VALUES = ("allocated", "reserved", "host", "workers", "capacity")
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
    """Memory of one device of one rank; ``columns`` are bytes, NaN where a counter was not read."""

    rank: int
    device: str
    step: I64  # ascending; of a resumed run's repeated steps the later one counts
    columns: Mapping[str, F64]
    """``allocated`` after the step, its ``lowest`` and ``highest`` in the steps of the row, ``reserved``, ``peak``
    within the steps, ``host`` (resident memory), ``workers`` (of child processes), ``capacity``."""

    def most(self, name: str) -> int | None:
        """Largest value of a column; ``None`` if it was never read."""
        values = self.columns[name]
        return None if np.isnan(values).all() else int(np.nanmax(values))

    def last(self, name: str) -> int | None:
        """Last value of a column; ``None`` if it was never read."""
        known = self.columns[name][~np.isnan(self.columns[name])]
        return int(known[-1]) if len(known) else None

    def to_dict(self) -> dict[str, Any]:
        """The last values and the highest level as plain JSON values."""
        highest = {"rows": len(self.step), "highest_bytes": self.most("highest")}
        last = {f"{name}_bytes": self.last(name) for name in _LAST_VALUES}
        return {"rank": self.rank, "device": self.device, **highest, **last}

    def level(self) -> F64:
        """Highest known value of each row: its peak, else what was allocated."""
        level: F64 = np.fmax(np.fmax(self.columns["peak"], self.columns["highest"]), self.columns["allocated"])
        return level


def series_of(logs: Sequence[MonitorLog]) -> tuple[Series, ...]:
    """All series, by rank and device."""
    rows: dict[tuple[int, str], dict[int, SampleRow]] = {}
    for log in logs:
        for row in log.rows:
            rows.setdefault((row.sample.rank, row.sample.device), {})[row.sample.step] = row
    all_series = []
    for (rank, device), by_step in sorted(rows.items()):
        steps = sorted(by_step)
        columns = {name: np.array([get(by_step[step]) for step in steps], np.float64) for name, get in _COLUMNS.items()}
        all_series.append(Series(rank, device, np.array(steps, np.int64), columns))
    return tuple(all_series)


def downsampled(series: Series, most: int = _MAX_ROWS) -> Series:
    """The series with at most ``most`` rows: the highest and the lowest of each range of steps."""
    count = len(series.step)
    if count <= most:
        return series
    stretch = even_intervals(count, most // 4)
    high, low = np.nan_to_num(series.level()), np.nan_to_num(series.columns["allocated"])
    rows = np.unique(np.concatenate([[0, count - 1], extremes(high, stretch), extremes(low, stretch)]))
    columns = {name: values[rows] for name, values in series.columns.items()}
    return series._replace(step=series.step[rows], columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Report of a run."""

    name: str
    path: str
    series: tuple[Series, ...]  # by rank and device
    verdicts: tuple[Finding, ...]  # by rank and device; without one where nothing is said of a device yet
    findings: tuple[Finding, ...]  # by step, as logged: suspicions, and a leak each time that it was reported
    windows: tuple[Mapping[str, Any], ...]  # as logged, with the ``rank``
    ranks: tuple[int, ...]
    steps: int  # last step that was logged and has ended
    seconds: float  # from the start to the last line
    started: float  # Unix time; 0 if not known
    status: RunStatus
    peaks: tuple[Peak, ...]
    torch: str
    host: str
    notes: tuple[str, ...]  # gaps in the logs, one sentence each

    @property
    def unrecorded_peaks(self) -> tuple[Peak, ...]:
        """The peaks of devices in steps that no profiler window holds."""
        windows = [(window["rank"], range(window["first_step"], window["last_step"] + 1)) for window in self.windows]
        return tuple(
            peak for peak in self.peaks if not any(peak.rank == rank and peak.step in steps for rank, steps in windows)
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "name": self.name,
            "path": self.path,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            **self.status.to_dict(),
            "ranks": list(self.ranks),
            "series": [series.to_dict() for series in self.series],
            "peaks": [{**asdict(peak), "headroom": peak.headroom} for peak in self.peaks],
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "findings": [finding.to_dict() for finding in self.findings],
            "windows": [dict(window) for window in self.windows],
            "notes": list(self.notes),
        }


def run_report(
    logs: Sequence[MonitorLog], name: str, path: str, *, states: Sequence[RankState], now: float
) -> RunReport:
    """Tell what happened."""
    headers: list[Header] = [log.headers[0] if log.headers else {} for log in logs]
    ranks = [header.get("rank", 0) for header in headers]
    started = min([header["started"] for header in headers if "started" in header], default=0.0)
    until = max([state.until for state in states if state.until is not None], default=started)
    findings = [finding for log in logs for finding in log.findings]
    verdicts = [state.verdict_finding(device.device) for state in states for device in state.devices]
    windows = [{**window, "rank": rank} for rank, log in zip(ranks, logs, strict=True) for window in log.windows]
    return RunReport(
        name=name,
        path=path,
        series=series_of(logs),
        verdicts=tuple(verdict for verdict in verdicts if verdict is not None),
        findings=tuple(sorted(findings, key=lambda finding: (finding.last_step, finding.rank))),
        windows=tuple(sorted(windows, key=lambda window: (window["first_step"], window["rank"]))),
        ranks=tuple(sorted(set(ranks))),
        steps=max([state.step for state in states], default=0),
        seconds=max(until - started, 0.0) if started else 0.0,
        started=started,
        status=run_status(states, now),
        peaks=tuple(device.peak for state in states for device in state.devices if device.peak is not None),
        torch=headers[0].get("torch", "") if headers else "",
        host=", ".join(dict.fromkeys(header["host"] for header in headers if "host" in header)),
        notes=tuple(note for rank, log in zip(ranks, logs, strict=True) for note in _notes(rank, log)),
    )


def _notes(rank: int, log: MonitorLog) -> Iterator[str]:
    if log.damaged_lines:
        yield f"Rank {rank}: {skipped_note(log.damaged_lines)}."
    yield from gap_notes(log.gaps, rank)
    if len(log.headers) > 1:
        yield f"Rank {rank}: the run was begun or resumed {len(log.headers)} times; the later steps count."
    if not log.rows:
        yield f"Rank {rank}: not one sample was logged."
