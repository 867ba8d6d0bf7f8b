"""Rows of `tbmem watch`, sorted and filtered, and the lines of a run and of processes on GPUs."""

from __future__ import annotations

from typing import Any

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.present.text.watch_table import (
    COLUMNS,
    filtered_rows,
    gpu_process_lines,
    run_details,
    runs_by_pid,
    sorted_rows,
    watch_rows,
)
from tbmem.sources.runs.gpu_processes import GpuProcess
from tests.conftest import GIB, MIB


def _device(name: str, allocated: int | None, verdict: str = "stable", growth: float | None = None) -> dict[str, Any]:
    figures = {"allocated": allocated, "reserved": allocated, "peak": allocated, "headroom": None, "total": None}
    others = {
        "allocated_step": None,
        "peak_counter": "peak_allocated",
        "peak_own": None,
        "peak_ended": True,
        "levels": [],
        "peaks": [],
    }
    return {"device": name, "verdict": verdict, "growth_per_step": growth, **figures, **others}


def _view(run: str, *ranks: list[dict[str, Any]], findings: int = 0) -> dict[str, Any]:
    about: dict[str, Any] = {
        "kind": FindingKind.SPIKE,
        "severity": Severity.WARNING,
        "device": "cuda:0",
        "evidence": {},
    }
    found = [
        Finding(first_step=at, last_step=at, message=f"finding {at}", advice=f"advice {at}", **about).to_dict()
        for at in range(findings)
    ]
    return {
        **{"run": run, "status": "running", "status_text": "running", "step": 7, "steps_per_second": None},
        **{"seconds_since_last_row": None, "findings": found, "errors": []},
        "ranks": [
            {"rank": number, "host": "here", "skipped_records": 0, "devices": devices}
            for number, devices in enumerate(ranks)
        ],
    }


VIEWS = [
    _view("small", [_device("cuda:0", 5 * GIB)]),
    _view("large", [_device("cuda:0", 60 * GIB, "leak", 2.0 * MIB)], [_device("cuda:0", 59 * GIB)], findings=2),
    _view("new", []),
]


def test_a_row_for_each_device_of_each_rank() -> None:
    rows = [dict(zip(COLUMNS, row.cells, strict=True)) for row in watch_rows(VIEWS)]

    assert [(row["run"], row["device"]) for row in rows] == [
        ("small", "GPU 0"),
        ("large", "rank 0 GPU 0"),
        ("large", "rank 1 GPU 0"),
        ("new", ""),
    ]
    assert rows[1] == {
        **{"run": "large", "status": "running", "step": "7", "device": "rank 0 GPU 0", "verdict": "leak"},
        **{"growth/step": "+2.00 MiB", "allocated": "60.00 GiB", "peak": "60.00 GiB", "headroom": "", "findings": "2"},
    }
    assert len({row.key for row in watch_rows(VIEWS)}) == 4


def test_figures_are_sorted_as_figures_and_unknown_ones_come_last() -> None:
    rows = sorted_rows(watch_rows(VIEWS), COLUMNS.index("allocated"), falling=True)

    assert [row.cells[6] for row in rows] == ["60.00 GiB", "59.00 GiB", "5.00 GiB", ""]


def test_every_word_of_the_filter_must_occur() -> None:
    rows = watch_rows(VIEWS)

    assert [row.run for row in filtered_rows(rows, "LARGE leak")] == ["large"]
    assert filtered_rows(rows, "small leak") == []
    assert filtered_rows(rows, "  ") == rows


def test_all_findings_of_a_run_the_newest_first() -> None:
    found = [line.plain for line in run_details(VIEWS[1], 200)]

    assert [line for line in found if line.startswith("SPIKE")] == [
        "SPIKE  GPU 0 finding 1 · advice 1",
        "SPIKE  GPU 0 finding 0 · advice 0",
    ]
    assert [line.plain for line in run_details(VIEWS[0], 200)][-1] == "no findings"


def test_processes_name_the_run_that_they_write() -> None:
    # given a run on this machine that goes on, one that has ended, and one elsewhere
    states = {"here": RankState(), "ended": RankState(), "elsewhere": RankState()}
    for name, pid, host in (("here", 11, "a"), ("ended", 12, "a"), ("elsewhere", 13, "b")):
        end = {"type": "end"} if name == "ended" else None
        states[name].add(MonitorLog(headers=[{"pid": pid, "host": host}], end=end))
    # when
    runs = runs_by_pid({name: [state] for name, state in states.items()}, "a")
    lines = gpu_process_lines([GpuProcess(0, 11, "python train.py", GIB), GpuProcess(1, 13, "", None)], runs)
    # then
    assert runs == {11: "here"}
    assert lines == ["GPU 0 · 1.00 GiB · pid 11 python train.py · run here", "GPU 1 · not known · pid 13"]
