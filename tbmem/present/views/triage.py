"""All runs of a log folder as one table, those with problems first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tbmem.analysis.runs.run_status import RunStatus, Standing
from tbmem.model.finding import FindingKind, Severity
from tbmem.present.views.run_schema import FileOfRun, RunItem

_SEVERITIES = [severity.value for severity in (Severity.INFO, Severity.WARNING, Severity.CRITICAL)]
_BROKEN = {Standing.OUT_OF_MEMORY: 2, Standing.DIED: 1, Standing.FAILED: 1}
"""Urgency of a run by how it ended, as the index of a severity."""


def triage_row(overview: Mapping[str, Any]) -> dict[str, Any]:
    """A run on one line, from its overview: the device with the most urgent verdict counts, then the highest peak."""
    cards = sorted(overview["cards"], key=lambda card: (-_SEVERITIES.index(card["severity"]), -(card["peak"] or 0)))
    # a run that failed in its first step has findings, but no readings
    told = (cards or [{**finding, "verdict": finding["kind"]} for finding in overview["findings"]] or [{}])[0]
    headroom, capacity = told.get("headroom"), told.get("capacity")
    names = ("verdict", "label", "severity", "message", "line", "peak", "growth_per_step", "device", "rank")
    return {
        "run": overview["run"],
        **{name: told.get(name) for name in names},
        "headroom": headroom,
        "headroom_percent": round(100 * headroom / capacity, 1) if headroom is not None and capacity else None,
        **{name: overview[name] for name in ("step", "seconds")},
        "ranks": len({card["rank"] for card in cards}),
    }


def with_status(row: Mapping[str, Any], status: RunStatus, changed: float) -> dict[str, Any]:
    """A row with the run's status now, the time of its last line (Unix seconds), and how urgent it is (0 to 2)."""
    severity = row["severity"]
    urgency = max(_BROKEN.get(status.standing, 0), _SEVERITIES.index(severity) if severity else 0)
    return {
        **row,
        "status": status.standing.value,
        "status_text": status.sentence,
        "running": not status.standing.is_over,
        "changed": changed,
        "urgency": urgency,
        "reason": _reason(row, status),
    }


def _reason(row: Mapping[str, Any], status: RunStatus) -> str:
    """Why the run stands where it stands."""
    is_quiet = row["verdict"] in (None, FindingKind.STABLE.value, FindingKind.WARMUP.value)
    return status.sentence if status.standing in _BROKEN and is_quiet else str(row["message"] or "")


def by_urgency(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows with the most urgent first, then those still running, then the latest."""
    return sorted(rows, key=lambda row: (-row["urgency"], not row["running"], -row["changed"]))


def file_lines(runs: Sequence[RunItem]) -> tuple[list[FileOfRun], list[FileOfRun]]:
    """Recordings and estimates of runs without a log; and files that cannot be read, of all runs."""
    alone: list[FileOfRun] = []
    broken: list[FileOfRun] = []
    for run in runs:
        for file in (*run["logs"], *run["recordings"], *run["estimates"]):
            if file["error"]:
                broken.append({**file, "run": run["run"]})
            elif not run["logs"]:
                alone.append({**file, "run": run["run"]})
    return alone, broken
