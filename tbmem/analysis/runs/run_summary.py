"""Logs of a run go in, one for each rank; what a report says of the run comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tbmem.analysis.runs.run_report import RunState
from tbmem.analysis.runs.run_status import RunStatus, run_status
from tbmem.analysis.runs.series import Series, series_of
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.run_summary import Peak

_AT_THE_END = ("allocated", "reserved", "host", "workers", "capacity")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """What happened in a run."""

    name: str
    path: str
    series: tuple[Series, ...]
    """By rank and device."""
    findings: tuple[Finding, ...]
    """In order of the steps at which they were made."""
    windows: tuple[Mapping[str, Any], ...]
    """As logged, with the ``rank``."""
    ranks: tuple[int, ...]
    steps: int
    """Number of the last step that was logged."""
    seconds: float
    """From the beginning to the last line."""
    started: float
    """Unix time; 0 if not known."""
    status: RunStatus
    peaks: tuple[Peak, ...]
    """Of each device, by rank."""
    torch: str
    host: str
    notes: tuple[str, ...]
    """What is not known, one sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """The run as plain JSON values; of each series what it was at the end, and its highest level."""
        return {
            "name": self.name,
            "path": self.path,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            **self.status.to_dict(),
            "ranks": list(self.ranks),
            "series": [
                {"rank": one.rank, "device": one.device, "rows": len(one.step), "highest_bytes": one.most("highest")}
                | {f"{name}_bytes": one.last(name) for name in _AT_THE_END}
                for one in self.series
            ],
            "peaks": [{**asdict(peak), "headroom": peak.headroom} for peak in self.peaks],
            "findings": [finding.to_dict() for finding in self.findings],
            "windows": [dict(window) for window in self.windows],
            "notes": list(self.notes),
        }


def story_of(logs: Sequence[MonitorLog], name: str, path: str, *, states: Sequence[RunState], now: float) -> RunStory:
    """Tell what happened."""
    headers = [log.headers[0] if log.headers else {} for log in logs]
    ranks = [int(header.get("rank", 0)) for header in headers]
    started = min([header["started"] for header in headers if "started" in header], default=0.0)
    times = [log.rows[-1].sample.time for log in logs if log.rows]
    times += [log.end["time"] for log in logs if log.end is not None and "time" in log.end]
    findings = [finding for log in logs for finding in log.findings]
    windows = [{**window, "rank": rank} for rank, log in zip(ranks, logs, strict=True) for window in log.windows]
    return RunStory(
        name=name,
        path=path,
        series=series_of(logs),
        findings=tuple(sorted(findings, key=lambda one: (one.last_step, one.rank))),
        windows=tuple(sorted(windows, key=lambda one: (one["first_step"], one["rank"]))),
        ranks=tuple(sorted(set(ranks))),
        steps=max([row.sample.step for log in logs for row in log.rows[-8:]], default=0),
        seconds=max(max(times, default=started) - started, 0.0) if started else 0.0,
        started=started,
        status=run_status(states, now),
        peaks=tuple(track.peak for state in states for track in state.tracks if track.peak is not None),
        torch=str(headers[0].get("torch", "")) if headers else "",
        host=", ".join(dict.fromkeys(str(header["host"]) for header in headers if "host" in header)),
        notes=tuple(_notes(ranks, logs)),
    )


def _notes(ranks: Sequence[int], logs: Sequence[MonitorLog]) -> list[str]:
    notes = []
    for rank, log in zip(ranks, logs, strict=True):
        if log.damaged_lines:
            notes.append(f"Rank {rank}: {log.damaged_lines} lines of the log could not be read.")
        if len(log.headers) > 1:
            notes.append(f"Rank {rank}: the run was begun or resumed {len(log.headers)} times; the later steps count.")
        if not log.rows:
            notes.append(f"Rank {rank}: not one sample was logged.")
    return notes
