"""What a run's report says in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tbmem.analysis.runs.run_report import run_report
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tbmem.offline.analyze import analyze
from tbmem.present.text.readme import Recorded, recorded_part, run_lines, run_of_recordings, run_text
from tests.conftest import GIB, MakeSample
from tests.offline.snapshots import write_snapshot


def test_the_text_of_a_run(make_sample: MakeSample) -> None:
    # given a run with a leak, a window and a device that is nearly full
    rows = [SampleRow(step, 1, step * GIB, step * GIB, make_sample(step, step, step + 0.5)) for step in range(1, 71)]
    leak = Finding(
        kind=FindingKind.LEAK,
        severity=Severity.CRITICAL,
        device="cuda:0",
        first_step=1,
        last_step=40,
        message="memory grows <b>",
        evidence={"bytes_per_step": GIB},
        advice="store loss.item()",
    )
    window = {"type": "window", "number": 1, "first_step": 4, "last_step": 6, "complete": True, "files": ["a.gz"]}
    log = MonitorLog(headers=[{"rank": 0, "started": 999.0}], rows=rows, findings=[leak], windows=[window])
    state = RankState()
    state.add(log)

    story = run_report([log], "a_run", "runs/a_run", states=[state], now=1001.0)

    assert run_lines(story, ())[:3] == [
        "run a_run of 1.7 s: 70 steps, running",
        "verdict GPU 0: LEAK",
        "peak GPU 0: 70.50 GiB (88 % of 80.00 GiB) in step 70",
    ]
    assert any("LEAK" in line and "step 40" in line for line in run_lines(story, ()))
    assert "store loss.item()" in run_text(story, ())
    assert json.dumps(story.to_dict())


def test_the_recordings_of_a_run_do_not_hold_its_highest_step(make_sample: MakeSample, tmp_path: Path) -> None:
    # given a run that is highest in step 70, with a window of steps 4 to 6
    rows = [SampleRow(step, 1, step * GIB, step * GIB, make_sample(step, step, step + 0.5)) for step in range(1, 71)]
    window = {"type": "window", "number": 1, "first_step": 4, "last_step": 6, "complete": True, "files": ["a.gz"]}
    spike = Finding(
        kind=FindingKind.SPIKE,
        severity=Severity.WARNING,
        device="cuda:0",
        first_step=70,
        last_step=70,
        message="step 70 held 70.50 GiB",
        evidence={},
        advice="",
    )
    log = MonitorLog(headers=[{"rank": 0, "started": 999.0}], rows=rows, windows=[window], findings=[spike])
    state = RankState()
    state.add(log)
    story = run_report([log], "a_run", "runs/a_run", states=[state], now=1001.0)
    recording = analyze(write_snapshot(tmp_path / "a.pickle", sizes=[1000]))

    # when
    lines = recorded_part(story, [recording])

    # then the text says so, and how another run would record it
    assert lines[0] == (
        "peak GPU 0: 70.50 GiB (88 % of 80.00 GiB) in step 70: no recording holds this step; another run does with"
        " profiling.wait=0 profiling.warmup=2 profiling.skip_first=67"
    )
    assert recorded_part(replace(story, windows=({**window, "last_step": 70, "rank": 0},)), [recording])[:-1] == []
    # nor where the highest step is no spike: the recorded ones are like it
    assert recorded_part(replace(story, findings=()), [recording])[:-1] == []
    assert recorded_part(story, []) == []
    # and the README that is written says the same
    assert "in step 70: no recording holds this step" in run_text(story, [Recorded(recording, "a.pickle", "a")])


def test_what_recordings_do_not_show_begins_with_the_verdicts_of_their_run(tmp_path: Path) -> None:
    # given: a run of eight ranks, of which the last leaks
    def verdict(rank: int, kind: FindingKind) -> Finding:
        return Finding(
            kind=kind,
            severity=Severity.INFO,
            device="cuda:0",
            first_step=1,
            last_step=70,
            rank=rank,
            message=f"told of rank {rank}",
            evidence={},
            advice="",
        )

    recording = analyze(write_snapshot(tmp_path / "a.pickle", sizes=[1000]))
    empty = run_report([MonitorLog(headers=[{"rank": 0, "started": 999.0}])], "a", "runs/a", states=[], now=1001.0)
    ranks = [verdict(rank, FindingKind.LEAK if rank == 7 else FindingKind.STABLE) for rank in range(8)]

    # when
    lines = run_of_recordings(replace(empty, verdicts=tuple(ranks)), [recording])

    # then: what is not stable comes first
    assert lines[:2] == [
        "rank 7's verdict GPU 0: LEAK · told of rank 7",
        "rank 0's verdict GPU 0: STABLE · told of rank 0",
    ]
    assert lines[4] == "4 more verdicts: tbmem report"
