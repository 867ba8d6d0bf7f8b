"""Two analyses, and many: what grew, and which differs from the others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tbmem.analysis.detector.finding_text import make_finding
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import (
    Change,
    Comparison,
    RunFigures,
    compare_analyses,
    compare_runs,
    odd_one,
    problem_notes,
    run_figures,
    step_notes,
)
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.units import GIB, MIB
from tests.analysis.timelines import recording
from tests.conftest import MakeSample


def _analysis(name: str, *sizes: int, device: str = "cuda:0", operator: str = "aten::addmm") -> Analysis:
    rows = [{"bytes": size, "begin": at, "operator": operator} for at, size in enumerate(sizes)]
    totals = {"name": device, "type": 1, "index": int(device[-1]), "reserved_bytes": sum(sizes) + 100}
    return analyze(recording(*rows, device=totals), name=name)


def test_what_grew() -> None:
    comparison = compare_analyses(_analysis("a", 100, 50), _analysis("b", 100, 80, operator="aten::gelu"))

    [device] = comparison.devices
    assert (device.key, device.peak.bytes, comparison.grown_percent) == ("0", 30, 20)
    assert [(one.name, one.bytes) for one in device.by_operator] == [("aten::gelu", 180), ("aten::addmm", -150)]
    assert device.by_operator[0].percent is None
    assert json.loads(json.dumps(comparison.to_dict()))["devices"]["0"]["totals"][1]["name"] == "reserved_bytes"


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        (("FORWARD", "OPTIMIZER"), True),
        (("FORWARD", "FORWARD"), False),
        (("OTHER", "FORWARD"), False),
    ],
)
def test_peaks_in_different_phases_are_told(phases: tuple[str, str], told: bool) -> None:
    # given: two recordings with peaks in these phases
    sides = []
    for name, phase in zip("ab", phases, strict=True):
        analysis = _analysis(name, 100)
        main = replace(analysis.main, peak=replace(analysis.main.peak, phase=phase))
        sides.append(replace(analysis, devices=(main,)))
    # when
    notes = compare_analyses(*sides).notes
    # then
    sentence = "cuda:0: a has its peak in the forward pass, b in the optimizer step: what they hold differs"
    assert any(note.startswith(sentence) for note in notes) is told


def test_what_shrank_did_not_grow() -> None:
    assert compare_analyses(_analysis("a", 100), _analysis("b", 50)).grown_percent == -50


def _runs(before: tuple[int, int], after: tuple[int, int], recorded: tuple[int, int] = (100, 100)) -> Comparison:
    """Peaks and last levels of two runs in MiB, and the peaks of their recordings."""
    found = compare_analyses(_analysis("a", recorded[0] * MIB), _analysis("b", recorded[1] * MIB))
    figures = [{"cuda:0": RunFigures(peak * MIB, last * MIB)} for peak, last in (before, after)]
    return Comparison(before="a", after="b", devices=found.devices, runs=compare_runs(*figures))


@pytest.mark.parametrize(
    ("comparison", "figure", "percent"),
    [
        pytest.param(_runs((1000, 900), (1644, 900), (1000, 955)), "run_peak_bytes", 64.4, id="the recordings shrank"),
        pytest.param(_runs((1000, 200), (1048, 379), (1000, 1000)), "run_last_bytes", 89.5, id="a leak below the peak"),
        pytest.param(_runs((1000, 900), (1000, 900), (1000, 1300)), "peak_bytes", 30.0, id="the recordings alone"),
    ],
)
def test_whatever_grew_most_is_what_grew(comparison: Comparison, figure: str, percent: float) -> None:
    assert comparison.grown[0].change.name == figure
    assert comparison.grown_percent == pytest.approx(percent)
    told = comparison.to_dict()
    assert (told["figures"][0]["name"], told["grown_percent"]) == (figure, pytest.approx(percent))


def test_a_change_of_some_bytes_beside_a_large_peak_is_none() -> None:
    found = compare_runs({"cpu": RunFigures(GIB, 4)}, {"cpu": RunFigures(GIB, 40_000)})
    large = compare_runs({"cpu": RunFigures(GIB, 4)}, {"cpu": RunFigures(GIB, 4 * MIB)})

    assert Comparison(before="a", after="b", devices=(), runs=found).figures == ()
    (figure,) = Comparison(before="a", after="b", devices=(), runs=large).grown
    assert figure.change.text == "from 4 B to 4.00 MiB"


@pytest.mark.parametrize(
    ("before", "after", "percent", "text"),
    [
        (GIB, 2 * GIB, "+100.0 %", "+100.0 %, from 1.00 GiB to 2.00 GiB"),
        (2 * GIB, GIB, "-50.0 %", "-50.0 %, from 2.00 GiB to 1.00 GiB"),
        (4, MIB, "× 262 144", "from 4 B to 1.00 MiB"),
        (GIB, GIB - 10, "0.0 %", "0.0 %, from 1.00 GiB to 1.00 GiB"),
        (0, MIB, "new", "from 0 B to 1.00 MiB"),
        (MIB, 0, "-100.0 %", "-100.0 %, from 1.00 MiB to 0 B"),
    ],
)
def test_a_change_in_words(before: int, after: int, percent: str, text: str) -> None:
    change = Change(name="run_peak_bytes", before=before, after=after)

    assert (change.percent_text, change.text) == (percent, text)


def test_figures_of_a_run_are_the_highest_of_its_ranks(make_sample: MakeSample) -> None:
    states = []
    for rank, (peak, last) in enumerate([(3.0, 1.0), (2.0, 1.5)]):
        rows = [SampleRow(step, 1, None, None, make_sample(step, last, peak, rank=rank)) for step in (1, 2)]
        states.append(RankState())
        states[-1].add(MonitorLog(rows=rows))

    assert run_figures(states) == {"cuda:0": RunFigures(3 * GIB, int(1.5 * GIB))}


def test_from_nothing_to_something() -> None:
    comparison = compare_analyses(_analysis("a"), _analysis("b", 50))

    assert comparison.grown_percent == float("inf")
    assert comparison.to_dict()["grown_percent"] is None


def test_devices_of_other_names_are_compared_by_the_main_one() -> None:
    [device] = compare_analyses(_analysis("a", 100), _analysis("b", 50, device="cuda:3")).devices

    assert (device.before_name, device.name, device.key) == ("cuda:0", "cuda:3", "3")


@pytest.mark.parametrize(
    ("peaks", "odd"),
    [
        ((100, 100, 150, 100), "2"),
        ((100, 101, 50, 102, 99), "2"),
        ((100, 100, 101, 100), None),
        ((100, 120, 140, 160), None),
        ((100, 200), None),
    ],
)
def test_the_odd_one(peaks: tuple[int, ...], odd: str | None) -> None:
    found = odd_one([_analysis(str(number), peak) for number, peak in enumerate(peaks)])

    assert (None if found is None else found.name) == odd


def test_the_odd_one_tells_why() -> None:
    analyses = [_analysis(f"rank{rank}", 1 << 20, *([1 << 20] if rank == 1 else [])) for rank in range(4)]

    found = odd_one(analyses)

    assert found is not None
    assert found.message == (
        "rank1 differs from the others: peak of 2.00 MiB, where the median is 1.00 MiB (+1.00 MiB); Linear/MatMul"
        " +1.00 MiB."
    )


def test_stacks_that_grew_are_told_apart_by_their_frames() -> None:
    def side(name: str, *sizes: int) -> Analysis:
        callers = ("first", "second", "third")
        stacks = [(("/home/me/net.py", 4, "forward"), ("/home/me/net.py", 9, caller)) for caller in callers]
        rows = [{"bytes": size, "begin": at, "stack": stacks[at]} for at, size in enumerate(sizes)]
        return analyze(recording(*rows), name=name)

    [device] = compare_analyses(side("a", 100, 50), side("b", 100, 80, 7)).devices

    assert [(one.name, one.before, one.after) for one in device.by_stack] == [
        ("me/net.py:4 forward", 50, 80),
        ("me/net.py:4 forward", 0, 7),
    ]
    assert "second" in device.by_stack[0].stack[1]
    assert "stack" in device.to_dict()["by_stack"][0]


def test_a_stack_that_one_side_has_put_with_others_is_left_out() -> None:
    def side(name: str, *sizes: int) -> Analysis:
        rows = [
            {"bytes": size, "begin": at, "stack": ((f"/home/me/{size % 1000}.py", 4, "f"),)}
            for at, size in enumerate(sizes)
        ]
        return analyze(recording(*rows), name=name)

    many = [10_000 + number for number in range(60)]
    [device] = compare_analyses(side("a", *many), side("b", many[0] + 1000, many[59])).devices

    # what of 60 stacks is not among the 50 largest of the one is not called new in the other
    assert {one.name for one in device.by_stack} == {f"me/{number}.py:4 f" for number in range(10, 59)}
    assert len(device.by_line) == 59


def _finding(kind: FindingKind, step: int, message: str) -> Finding:
    return make_finding(kind, MemorySample(step, 0.0, "cuda:0"), message, {}, step, severity=Severity.WARNING)


@pytest.mark.parametrize(("step", "told"), [(2, True), (1, False)])
def test_a_run_peak_that_is_a_spikes_is_told_with_its_sentence(make_sample: MakeSample, step: int, told: bool) -> None:
    # given a run whose highest step is the second, and a spike in one
    samples = [make_sample(number, 1, size) for number, size in ((1, 2), (2, 9))]
    rows = [
        SampleRow(sample=one, first_step=one.step, count=1, allocated_min=GIB, allocated_max=GIB) for one in samples
    ]
    spike = _finding(FindingKind.SPIKE, step, f"step {step} reached a peak")
    state = RankState()
    # when
    state.add(MonitorLog(headers=[{"rank": 0}], rows=rows, findings=[spike]))
    # then
    sentence = f"b: the run peak of rank 0 {samples[0].device} is a spike's: step {step} reached a peak."
    assert problem_notes("b", [state]) == [sentence] * told


def test_a_leak_of_a_run_is_told_with_its_sentence(make_sample: MakeSample) -> None:
    # given
    rows = [SampleRow(first_step=1, count=1, allocated_min=GIB, allocated_max=GIB, sample=make_sample(1, 1, 2))]
    leak = _finding(FindingKind.LEAK, 1, "+2.00 MiB/step since step 1")
    state = RankState()
    # when
    state.add(MonitorLog(headers=[{"rank": 0}], rows=rows, findings=[leak]))
    # then
    assert problem_notes("b", [state]) == ["b: LEAK, rank 0 cuda:0: +2.00 MiB/step since step 1."]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [("optimizer", "call", True), ("call", "call", False), (None, "call", False)],
)
def test_steps_that_end_at_different_moments_are_told(before: str | None, after: str, told: bool) -> None:
    # given: two runs; the log of an older version does not say when its steps end
    states = []
    for ends in (before, after):
        state = RankState()
        state.add(MonitorLog(headers=[{"rank": 0, **({} if ends is None else {"step_ends": ends})}]))
        states.append([state])
    # when
    notes = step_notes(("a", "b"), (states[0], states[1]))
    # then
    sentence = "A step of a ends when its optimizer has stepped, one of b at step(): levels differ by what is"
    assert [note.startswith(sentence) for note in notes] == [True] * told
