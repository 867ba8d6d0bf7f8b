"""Logs of a run as columns, and as a story."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.runs.run_report import RunReport, downsampled, run_report, series_of
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tests.conftest import GIB, MakeSample


def _row(make_sample: MakeSample, step: int, gib: float, **more: object) -> SampleRow:
    sample = make_sample(step, gib, gib + 1, **more)
    return SampleRow(step, 1, round(gib * GIB), round(gib * GIB), sample)


def test_columns_by_rank_and_device(make_sample: MakeSample) -> None:
    # given a run that was resumed at step 2, and a second rank
    first = MonitorLog(rows=[_row(make_sample, 1, 1), _row(make_sample, 2, 2), _row(make_sample, 2, 5)])
    second = MonitorLog(rows=[_row(make_sample, 1, 3, rank=1, peak_allocated=None)])

    one, other = series_of([first, second])

    assert (one.rank, one.device, one.step.tolist()) == (0, "cuda:0", [1, 2])
    assert one.columns["allocated"].tolist() == [GIB, 5 * GIB]
    assert one.most("peak") == 6 * GIB
    assert one.most("host") is None
    # and without a peak the level counts
    assert other.level().tolist() == [3 * GIB]


def test_a_thinned_series_keeps_its_spike(make_sample: MakeSample) -> None:
    rows = [_row(make_sample, step, 9 if step == 700 else 1) for step in range(1, 2001)]
    (series,) = series_of([MonitorLog(rows=rows)])

    short = downsampled(series, most=100)

    assert len(short.step) <= 100
    assert 700 in short.step
    assert (short.step[0], short.step[-1]) == (1, 2000)
    assert short.most("peak") == 10 * GIB
    assert np.array_equal(np.sort(short.step), short.step)


def _story(log: MonitorLog) -> RunReport:
    state = RankState()
    state.add(log)
    return run_report([log], "a", "runs/a", states=[state], now=1011.0)


def test_the_story_of_a_run(make_sample: MakeSample) -> None:
    finding = Finding(
        kind=FindingKind.LEAK,
        severity=Severity.CRITICAL,
        device="cuda:0",
        first_step=1,
        last_step=2,
        message="it grows",
    )
    window = {"type": "window", "number": 1, "first_step": 1, "last_step": 1, "complete": True, "files": []}
    header = {"type": "header", "rank": 3, "started": 1000.0, "host": "node7", "torch": "2.9"}
    log = MonitorLog(headers=[header], rows=[_row(make_sample, 2, 1, rank=3)], findings=[finding], windows=[window])

    story = _story(log)

    assert (story.steps, story.ranks, story.status.text, story.host) == (2, (3,), "running", "node7")
    assert story.windows[0]["rank"] == 3
    data = story.to_dict()
    assert data["findings"][0]["message"] == "it grows"
    assert (data["peaks"][0]["bytes"], data["peaks"][0]["rank"], data["status"]) == (2 * GIB, 3, "running")
    # and one that has its last line ended in order
    log.end = {"type": "end", "time": 1010.0, "steps": 2}
    assert (_story(log).status.text, _story(log).seconds) == ("ended in order", 10.0)
