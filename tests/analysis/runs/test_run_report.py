"""Where a run stands, from the pieces of its log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.runs.run_report import run_report
from tbmem.analysis.runs.run_status import RankState, standing
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import RowBuilder, SampleRow
from tbmem.present.figures.series import marks_of
from tbmem.present.text.readme import run_lines
from tbmem.present.text.run_status import run_view
from tbmem.present.views.live import LoggedRun
from tbmem.present.views.overview import overview_of
from tests.conftest import MakeSample

LEAK, GROWING, SPIKE, DISMISSED = FindingKind.LEAK, FindingKind.GROWING, FindingKind.SPIKE, FindingKind.DISMISSED


def _finding(kind: FindingKind) -> Finding:
    severity = Severity.INFO if kind in (GROWING, DISMISSED) else Severity.WARNING
    return Finding(kind=kind, severity=severity, device="cuda:0", first_step=1, last_step=9, message="")


def _rows(make_sample: MakeSample, *steps: int, device: str = "cuda:0") -> list[SampleRow]:
    samples = [make_sample(step, 1.0, device=device) for step in steps]
    return [
        SampleRow(first_step=1, count=each.step, allocated_min=None, allocated_max=None, sample=each)
        for each in samples
    ]


@pytest.mark.parametrize(
    ("steps", "kinds", "verdict"),
    [
        ([3], [], FindingKind.WARMUP),
        ([30], [], FindingKind.STABLE),
        ([30], [LEAK], LEAK),
        ([30], [LEAK, GROWING], FindingKind.STABLE),
        ([30], [LEAK, GROWING, LEAK], LEAK),
        ([30], [SPIKE, LEAK], LEAK),
        ([30], [SPIKE, DISMISSED], SPIKE),
    ],
)
def test_the_verdict_so_far(
    steps: list[int], kinds: list[FindingKind], verdict: FindingKind, make_sample: MakeSample
) -> None:
    state = RankState()
    state.add(MonitorLog(rows=_rows(make_sample, *steps), findings=[_finding(kind) for kind in kinds]))

    assert state.verdict("cuda:0") is verdict


def test_the_finding_behind_spikes_so_far_is_that_of_the_end(make_sample: MakeSample) -> None:
    # given two spikes, a lower one of a period, and an evaluation that is higher than all
    spike, of_period, beat = (
        replace(one, evidence={**one.evidence, "height_bytes": 1}) for one in (_finding(SPIKE), *_of_a_beat())
    )
    spike, higher = replace(spike, first_step=45), replace(spike, first_step=40, evidence={"height_bytes": 2})
    evaluation = replace(spike, first_step=50, severity=Severity.INFO, evidence={"height_bytes": 9})
    state = RankState()
    state.add(MonitorLog(rows=_rows(make_sample, 100), findings=[spike, of_period, beat, higher, evaluation]))

    found = state.verdict_finding("cuda:0")

    assert found is not None
    assert found.first_step == 40
    assert found.message == " · the highest of 2: steps 40, 45"


def test_the_end_has_the_last_word(make_sample: MakeSample) -> None:
    state = RankState()
    end = {"type": "end", "verdicts": [_finding(SPIKE).to_dict()]}
    state.add(MonitorLog(rows=_rows(make_sample, 30), findings=[_finding(LEAK)], end=end))

    assert state.verdict("cuda:0") is SPIKE


def test_a_header_begins_anew(make_sample: MakeSample) -> None:
    # given a run that has ended, and is resumed in the same folder
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 1}], rows=_rows(make_sample, 30), findings=[_finding(LEAK)], end={}))

    state.add(MonitorLog(headers=[{"rank": 1}]))

    assert (state.step, state.findings, state.end, state.rank) == (0, [], None, 1)


def test_the_cpu_stands_in_until_there_is_an_accelerator(make_sample: MakeSample) -> None:
    state = RankState()
    state.add(MonitorLog(rows=[*_rows(make_sample, 1, device="cpu"), *_rows(make_sample, 2)]))

    assert [track.device for track in state.devices] == ["cuda:0"]


def test_a_signal_ends_a_run_and_a_header_begins_anew(make_sample: MakeSample) -> None:
    state = RankState()
    state.add(MonitorLog(rows=_rows(make_sample, 30), signal={"name": "SIGTERM", "ends": True}))
    assert state.has_ended

    state.add(MonitorLog(headers=[{"rank": 1}]))

    assert not state.has_ended


@pytest.mark.parametrize(("kinds", "leaks"), [([], False), ([LEAK], True), ([LEAK, GROWING], False)])
def test_a_leak_counts_until_it_is_taken_back(kinds: list[FindingKind], leaks: bool) -> None:
    state = RankState()
    state.add(MonitorLog(findings=[_finding(kind) for kind in kinds]))

    assert state.is_leaking("cuda:0") is leaks


def _of_a_beat() -> list[Finding]:
    """A spike in step 31, and that such come every 30 steps."""
    spike = replace(_finding(SPIKE), first_step=31, last_step=31)
    beat = replace(_finding(FindingKind.PERIODIC), severity=Severity.INFO, first_step=91)
    return [spike, replace(beat, evidence={"period_steps": 30, "member_steps": [31, 61, 91]})]


def test_a_spike_that_turned_out_to_be_of_a_beat_stands_no_more(make_sample: MakeSample) -> None:
    # given
    spike, beat = _of_a_beat()
    other = replace(spike, first_step=77, last_step=77)
    state = RankState()
    # when
    state.add(MonitorLog(rows=_rows(make_sample, 100), findings=[spike]))
    before = state.verdict("cuda:0")
    state.add(MonitorLog(findings=[beat]))
    # then
    assert (before, state.verdict("cuda:0")) == (SPIKE, FindingKind.STABLE)
    assert standing([spike, other, beat]) == [other, beat]
    assert standing([spike, replace(beat, rank=1)]) == [spike, replace(beat, rank=1)]
    # and of two reports of one period the later, which knows more
    again = replace(beat, message="with what was recorded")
    assert standing([beat, other, again]) == [other, again]


def test_a_leak_whose_growth_has_ended_stands_no_more() -> None:
    # given two leaks, of which the one of the device ends
    leak = replace(_finding(LEAK), evidence={"channel": "allocated", "holder": "dict 'cache'"})
    host = replace(leak, evidence={"channel": "heap"})
    ended = replace(_finding(GROWING), severity=Severity.INFO, evidence={"channel": "allocated"})

    assert standing([leak, host, ended]) == [host, ended]
    # and it stands where it is reported again, or where another rank's has ended
    assert standing([ended, leak]) == [ended, leak]
    assert standing([leak, replace(ended, rank=1)]) == [leak, replace(ended, rank=1)]


def test_a_verdict_needs_as_many_judged_steps_while_a_run_goes_on_as_at_its_end(make_sample: MakeSample) -> None:
    # given: the first step is warm-up, and a window was on in six
    samples = [make_sample(step, 1.0, device="cpu", profiled=step in (4, 5, 6, 10, 11, 12)) for step in range(1, 16)]
    state, detector, rows = RankState(), Detector(), RowBuilder(10)
    for sample in samples:
        state.add(MonitorLog(rows=rows.add([sample])))
        detector.update(sample)
        if sample.step in (3, 6, 10, 12):
            assert state.verdict("cpu") is detector.verdict().kind
    state.add(MonitorLog(rows=rows.close()))
    assert state.verdict("cpu") is detector.verdict().kind is FindingKind.STABLE


@pytest.mark.parametrize("kind", list(FindingKind))
def test_quiet_kinds_are_shown_nowhere(kind: FindingKind, make_sample: MakeSample) -> None:
    # given
    finding = replace(_finding(kind), severity=Severity.WARNING, message="so it is")
    state = RankState()
    state.add(MonitorLog(rows=_rows(make_sample, 30), findings=[finding]))
    log = MonitorLog(rows=_rows(make_sample, 30), findings=[finding])
    story = run_report([log], "run", "runs/run", states=[state], now=0.0)
    run = LoggedRun("run", states=[state], findings=[finding])
    # when
    shown = [
        bool(run_view("run", [state], now=0.0)["findings"]),
        bool(overview_of(run, now=0.0)["findings"]),
        any("so it is" in line for line in run_lines(story, ())),
        bool(marks_of(story.series[0], [finding])),
    ]
    # then
    assert shown == [not kind.is_quiet] * 4
