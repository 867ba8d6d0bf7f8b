"""The end of a run, as lines and as JSON."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.run_summary import Peak, ProfilerCost, RunSummary
from tbmem.present.text.run_end import peak_line, summary_lines, summary_view
from tests.conftest import GIB, MIB

VERDICT = Finding(
    kind=FindingKind.STABLE,
    severity=Severity.INFO,
    device="cuda:0",
    first_step=1,
    last_step=30,
    message="stable between 45.00 GiB and 46.00 GiB over 29 evaluated steps",
)
COST = ProfilerCost(
    windows=2,
    recorded_steps=6,
    recorded_step_seconds=0.3,
    plain_step_seconds=0.1,
    writing_seconds=1.25,
    host_bytes=200 * MIB,
    trace_bytes=12 * MIB,
)
SUMMARY = RunSummary(
    logdir="runs",
    folder="runs/a",
    rank=0,
    steps=30,
    seconds=12.34567,
    verdicts=(VERDICT,),
    findings=(replace(VERDICT, kind=FindingKind.SPIKE, severity=Severity.WARNING),),
    peaks=(Peak(device="cuda:0", bytes=60 * GIB, step=7, counter="peak_allocated", total=80 * GIB),),
    traces=("w.1.pt.trace.json.gz", "w.2.pt.trace.json.gz"),
    snapshots=("w.1.snapshot.pickle",),
    address_books=("w.1.addresses.npz", "w.2.addresses.npz"),
    monitor_log="plugins/tbmem/monitor.jsonl",
    scalars=True,
    profiler=COST,
)
BARE = replace(
    SUMMARY,
    verdicts=(),
    findings=(),
    peaks=(),
    traces=(),
    snapshots=(),
    address_books=(),
    monitor_log=None,
    scalars=False,
    profiler=None,
)


def test_the_lines_of_a_full_run() -> None:
    assert summary_lines(SUMMARY) == [
        "30 steps in a run of 12.3 s",
        "verdict GPU 0: STABLE · stable between 45.00 GiB and 46.00 GiB over 29 evaluated steps",
        "peak GPU 0: 60.00 GiB (75 % of 80.00 GiB) in step 7",
        "profiler: 6 steps recorded in 2 windows · a recorded step took 3.0 times as long as a plain one"
        " · training waited 1.2 s for traces of 12.00 MiB"
        " · up to 200.00 MiB more of host memory when a window had ended",
        "wrote 2 traces, 1 snapshot, 2 address books, the live log and scalars to runs/a",
        "look:  tensorboard --logdir runs",
    ]


def test_a_run_that_left_nothing_is_one_line() -> None:
    assert summary_lines(BARE) == ["30 steps in a run of 12.3 s"]


@pytest.mark.parametrize(
    ("changes", "heading"),
    [
        ({"steps": 1}, "1 step in a run of 12.3 s"),
        (
            {"steps": 0},
            "0 steps in a run of 12.3 s: a step counts where step() is called, under tbmem run where an optimizer"
            " steps",
        ),
        ({"rank": 3}, "30 steps on rank 3 in a run of 12.3 s"),
        ({"exception": "ValueError"}, "30 steps in a run of 12.3 s, ended by ValueError"),
        (
            {"exception": "RuntimeError", "out_of_memory": True},
            "30 steps in a run of 12.3 s, ran out of memory (RuntimeError)",
        ),
        ({"seconds": 7800.0}, "30 steps in a run of 2 h 10 min"),
    ],
)
def test_the_heading(changes: dict[str, object], heading: str) -> None:
    assert summary_lines(replace(BARE, **changes))[0] == heading  # type: ignore[arg-type]


def test_each_device_has_its_verdict_and_its_peak() -> None:
    # given
    second = Peak(device="cpu", bytes=2 * GIB, step=9, counter="host_peak_rss", own=20 * MIB)
    near = replace(VERDICT, device="cpu", kind=FindingKind.NEAR_CAPACITY, message="memory is tight")
    summary = replace(BARE, verdicts=(VERDICT, near), peaks=(*SUMMARY.peaks, second))
    # when
    lines = summary_lines(summary)
    # then
    assert lines[2] == "verdict CPU: NEAR CAPACITY · memory is tight"
    assert lines[4] == "resident peak CPU: 2.00 GiB in step 9, of this tbmem 20.00 MiB"


def test_a_higher_step_that_was_recorded_stands_beside_the_peak() -> None:
    peak = Peak(device="cpu", bytes=GIB, step=9, counter="host_peak_rss", recorded=2 * GIB, recorded_step=5)
    assert peak_line(peak) == (
        "resident peak CPU: 1.00 GiB in step 9 · 2.00 GiB in step 5, with profiling's own memory"
    )


def test_problems_are_told() -> None:
    lines = summary_lines(replace(BARE, problems=("profiler: switched off: disk full", "log: gone")))
    assert lines[1:] == ["problem: profiler: switched off: disk full", "problem: log: gone"]


@pytest.mark.parametrize(
    ("changes", "wrote"),
    [
        ({"monitor_log": "m", "scalars": True}, "wrote the live log and scalars to runs/a"),
        ({"monitor_log": "m"}, "wrote the live log to runs/a"),
        ({"scalars": True}, "wrote the scalars to runs/a"),
        ({"traces": ("t",)}, "wrote 1 trace to runs/a"),
        ({"snapshots": ("a", "b"), "address_books": ("c",)}, "wrote 2 snapshots, 1 address book to runs/a"),
    ],
)
def test_only_what_was_written_is_named(changes: dict[str, object], wrote: str) -> None:
    assert summary_lines(replace(BARE, **changes))[1:] == [wrote, "look:  tensorboard --logdir runs"]  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", [None, 0.0])
def test_a_slowdown_that_is_not_known_is_not_told(plain: float | None) -> None:
    # given
    cost = replace(COST, windows=1, plain_step_seconds=plain, host_bytes=None)
    # when / then
    assert cost.slowdown is None
    line = "profiler: 6 steps recorded in 1 window · training waited 1.2 s for traces of 12.00 MiB"
    assert summary_lines(replace(BARE, profiler=cost))[1] == line


def test_recorded_steps_do_not_count_on_the_cpu() -> None:
    # given a resident peak, beside which the profiler's records would lie
    peak = Peak(device="cpu", bytes=GIB, step=7, counter="host_peak_rss")
    # when
    (line,) = [line for line in summary_lines(replace(BARE, profiler=COST, peaks=(peak,))) if "profiler:" in line]
    # then
    assert line.startswith(
        "profiler: 6 steps recorded in 2 windows (see tbmem analyze; counted in the peak only where they spike) · "
    )


def test_the_view_is_plain_json_and_says_everything() -> None:
    # when
    view = json.loads(json.dumps(summary_view(SUMMARY)))
    # then
    assert view["verdicts"] == {"cuda:0": "stable"}
    assert view["peak"]["cuda:0"] == {
        "bytes": 60 * GIB,
        "text": "60.00 GiB",
        "step": 7,
        "counter": "peak_allocated",
        "total": 80 * GIB,
        "headroom": 20 * GIB,
        "own": 0,
        "recorded": None,
        "recorded_step": None,
        "ended": True,
    }
    assert [finding["kind"] for finding in view["findings"]] == ["spike"]
    assert (view["steps"], view["seconds"], view["rank"]) == (30, 12.346, 0)
    assert (view["logdir"], view["run"], view["monitor_log"]) == ("runs", "runs/a", "plugins/tbmem/monitor.jsonl")
    assert [len(view[key]) for key in ("traces", "snapshots", "address_books")] == [2, 1, 2]
    assert view["profiler"]["slowdown"] == pytest.approx(3.0)
    assert view["exception"] is None


def test_the_view_of_the_profilers_cost_has_every_field() -> None:
    view = summary_view(SUMMARY)["profiler"]
    assert set(view) == {each.name for each in fields(ProfilerCost)} | {"slowdown"}


def test_the_view_of_a_run_that_left_nothing() -> None:
    view = summary_view(BARE)
    assert (view["verdicts"], view["peak"], view["findings"], view["profiler"]) == ({}, {}, [], None)
