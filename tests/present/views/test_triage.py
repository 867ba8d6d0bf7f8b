"""Runs as lines of one table, those with problems first."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.analysis.runs.run_status import RunStatus, Standing
from tbmem.present.views.run_schema import FileItem, RunItem
from tbmem.present.views.triage import by_urgency, file_lines, triage_row, with_status


def _card(verdict: str, severity: str, peak: int, **more: Any) -> dict[str, Any]:
    names = {"label": verdict.upper(), "message": f"it is {verdict}", "line": "", "growth_per_step": None, "rank": 0}
    return {
        "verdict": verdict,
        "severity": severity,
        "peak": peak,
        "headroom": 100 - peak,
        "capacity": 100,
        "device": "cuda:0",
        **names,
        **more,
    }


def _overview(name: str, *cards: dict[str, Any], findings: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"run": name, "cards": [*cards], "findings": [*findings], "step": 7, "seconds": 3.0}


def _row(
    name: str, *cards: dict[str, Any], standing: Standing = Standing.ENDED, changed: float = 0.0
) -> dict[str, Any]:
    return with_status(triage_row(_overview(name, *cards)), RunStatus(standing, standing.value), changed)


def test_the_device_with_the_worst_verdict_stands_for_the_run() -> None:
    # when
    row = triage_row(_overview("a", _card("stable", "info", 90), _card("leak", "critical", 20, rank=1)))
    # then
    assert (row["verdict"], row["rank"], row["peak"], row["headroom_percent"], row["ranks"]) == ("leak", 1, 20, 80.0, 2)


def test_of_equal_verdicts_the_highest_peak_counts() -> None:
    row = triage_row(_overview("a", _card("stable", "info", 20), _card("stable", "info", 90, rank=1)))

    assert (row["peak"], row["rank"]) == (90, 1)


def test_a_run_without_readings_is_told_by_its_findings() -> None:
    finding = {"kind": "oom", "label": "OOM", "severity": "critical", "message": "step 1 ran out", "line": "a.py:1"}

    row = triage_row(_overview("a", findings=(finding,)))

    assert (row["verdict"], row["label"], row["peak"], row["line"]) == ("oom", "OOM", None, "a.py:1")
    # and one without anything is empty
    assert triage_row(_overview("b"))["severity"] is None


def test_problems_come_first_then_what_runs_then_the_latest() -> None:
    # given
    rows = [
        _row("old", _card("stable", "info", 1), changed=1.0),
        _row("new", _card("stable", "info", 1), changed=9.0),
        _row("running", _card("stable", "info", 1), standing=Standing.RUNNING),
        _row("spike", _card("spike", "warning", 1)),
        _row("died", _card("stable", "info", 1), standing=Standing.DIED, changed=2.0),
        _row("oom", standing=Standing.OUT_OF_MEMORY),
    ]
    # then
    assert [row["run"] for row in by_urgency(rows)] == ["oom", "died", "spike", "running", "new", "old"]


@pytest.mark.parametrize(
    ("verdict", "standing", "reason"),
    [
        ("stable", Standing.DIED, "died"),
        ("leak", Standing.DIED, "it is leak"),
        ("stable", Standing.ENDED, "it is stable"),
    ],
)
def test_why_a_run_stands_where_it_does(verdict: str, standing: Standing, reason: str) -> None:
    assert _row("a", _card(verdict, "info", 1), standing=standing)["reason"] == reason


def test_recordings_without_a_log_and_broken_files_have_a_line_each() -> None:
    # given
    def item(name: str, kind: str, error: str | None = None) -> FileItem:
        return {"file": name, "name": name, "kind": kind, "rank": None, "bytes": 1, "changed": 0.0, "error": error}

    def run(name: str, logs: list[FileItem], recordings: list[FileItem]) -> RunItem:
        return {
            **{"run": name, "status": "ended", "status_text": "", "changed": 0.0, "version": "", "ranks": []},
            **{"logs": logs, "recordings": recordings, "estimates": []},
        }  # type: ignore[typeddict-item]

    runs = [
        run("a", [item("m.jsonl", "log")], [item("x.pickle", "snapshot", "damaged"), item("y.pickle", "snapshot")]),
        run("b", [], [item("z.pickle", "snapshot")]),
    ]
    # when
    alone, broken = file_lines(runs)
    # then
    assert [(file["run"], file["file"]) for file in alone] == [("b", "z.pickle")]
    assert [(file["run"], file["error"]) for file in broken] == [("a", "damaged")]
