"""Where a run stands, from the pieces of its log."""

from __future__ import annotations

import pytest

from tbmem.analysis.run_state import RunState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog, SampleRow
from tests.conftest import MakeSample

LEAK, GROWING, SPIKE, DISMISSED = FindingKind.LEAK, FindingKind.GROWING, FindingKind.SPIKE, FindingKind.DISMISSED


def _finding(kind: FindingKind) -> Finding:
    severity = Severity.INFO if kind in (GROWING, DISMISSED) else Severity.WARNING
    return Finding(kind=kind, severity=severity, device="cuda:0", first_step=1, last_step=9, message="")


def _rows(make_sample: MakeSample, *steps: int, device: str = "cuda:0") -> list[SampleRow]:
    samples = [make_sample(step, 1.0, device=device) for step in steps]
    return [SampleRow(first_step=1, count=1, allocated_min=None, allocated_max=None, sample=each) for each in samples]


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
    state = RunState()
    state.add(MonitorLog(rows=_rows(make_sample, *steps), findings=[_finding(kind) for kind in kinds]))

    assert state.verdict("cuda:0") is verdict


def test_the_end_has_the_last_word(make_sample: MakeSample) -> None:
    state = RunState()
    end = {"type": "end", "verdicts": [_finding(SPIKE).to_dict()]}
    state.add(MonitorLog(rows=_rows(make_sample, 30), findings=[_finding(LEAK)], end=end))

    assert state.verdict("cuda:0") is SPIKE


def test_a_header_begins_anew(make_sample: MakeSample) -> None:
    # given a run that has ended, and is resumed in the same folder
    state = RunState()
    state.add(MonitorLog(headers=[{"rank": 1}], rows=_rows(make_sample, 30), findings=[_finding(LEAK)], end={}))

    state.add(MonitorLog(headers=[{"rank": 1}]))

    assert (state.step, state.findings, state.end, state.rank) == (0, [], None, 1)


def test_the_cpu_stands_in_until_there_is_an_accelerator(make_sample: MakeSample) -> None:
    state = RunState()
    state.add(MonitorLog(rows=[*_rows(make_sample, 1, device="cpu"), *_rows(make_sample, 2)]))

    assert [track.device for track in state.tracks] == ["cuda:0"]


def test_a_signal_ends_a_run_and_a_header_begins_anew(make_sample: MakeSample) -> None:
    state = RunState()
    state.add(MonitorLog(rows=_rows(make_sample, 30), signal={"name": "SIGTERM", "ends": True}))
    assert state.has_ended

    state.add(MonitorLog(headers=[{"rank": 1}]))

    assert not state.has_ended


@pytest.mark.parametrize(("kinds", "leaks"), [([], False), ([LEAK], True), ([LEAK, GROWING], False)])
def test_a_leak_counts_until_it_is_taken_back(kinds: list[FindingKind], leaks: bool) -> None:
    state = RunState()
    state.add(MonitorLog(findings=[_finding(kind) for kind in kinds]))

    assert state.is_leaking("cuda:0") is leaks
