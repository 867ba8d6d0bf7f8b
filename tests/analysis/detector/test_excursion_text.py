"""The sentences of spikes, periods and changes of level name the figures of the screens."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector import excursion_text
from tbmem.analysis.detector.detector import Detector, LooksAtPeaks, judge
from tbmem.analysis.detector.spike_test import Confirmation, Excursion, ExcursionEvent, ExcursionKind
from tbmem.analysis.diagnosis.spike_source import SpikeSource, SpikeSources
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.evidence import Channel, CodeLine, RunningAt
from tbmem.model.finding import FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.present.lines import memory_line
from tbmem.present.text.run_status import run_lines, run_view
from tbmem.present.views.live import LoggedRun
from tbmem.present.views.overview import overview_of
from tbmem.units import format_bytes
from tests.conftest import GIB, MIB


def _run_with_a_spike() -> list[MemorySample]:
    """A process that holds 140 MiB, beside which malloc has 170 MiB free, and one step far above the others."""
    return [
        MemorySample(
            step=step,
            time=1000.0 + step,
            device="cpu",
            allocated=140 * MIB,
            reserved=310 * MIB,
            host_peak_rss=1100 * MIB if step == 45 else 527 * MIB,
            host_rss=500 * MIB,
            host_available=20 * GIB,
            device_total=24 * GIB,
        )
        for step in range(1, 61)
    ]


def test_the_sentence_names_the_figures_of_the_samples() -> None:
    findings = judge(_run_with_a_spike())

    [spike] = [one for one in findings[:-1] if one.kind is FindingKind.SPIKE]
    assert spike.message == (
        "step 45 took +573.00 MiB (109 %) more memory than usual (its tensors may have needed less): it reached a"
        " resident peak of 1.07 GiB, the usual is"
        " 527.00 MiB"
    )
    figures = {name: spike.evidence[name] for name in ("peak_bytes", "usual_bytes", "height_bytes")}
    assert figures == {"peak_bytes": 1100 * MIB, "usual_bytes": 527 * MIB, "height_bytes": 573 * MIB}
    assert findings[-1].message == spike.message
    # and the advice says how another run records such a step
    assert spike.advice.endswith(
        "records it with profiling.wait=0 profiling.warmup=2 profiling.skip_first=42,"
        " and tbmem analyze shows what it holds"
    )


def test_a_spike_that_still_holds_something_is_told_by_its_peak() -> None:
    # given a step that needs 573 MiB more and still holds 53 of them when it ends
    samples = [
        sample._replace(
            allocated=(193 if sample.step == 45 else 140) * MIB,
            host_peak_rss=(sample.host_peak_rss or 0) + sample.step % 3 * 12 * MIB,
        )
        for sample in _run_with_a_spike()
    ]
    # when
    findings = judge(samples)
    # then it is one finding, with both figures
    [spike] = [one for one in findings[:-1] if one.kind is FindingKind.SPIKE]
    assert spike.message == (
        "step 45 took +561.00 MiB (104 %) more memory than usual (its tensors may have needed less), +53.00 MiB of it"
        " still held at its end: it reached a"
        " resident peak of 1.07 GiB, the usual is 539.00 MiB"
    )
    assert spike.evidence["channel"] == "host"
    assert spike.evidence["held_bytes"] == 53 * MIB
    assert findings[-1].message == spike.message


def test_a_spike_names_the_lines_that_were_running() -> None:
    # given
    inner = CodeLine(file="/home/me/main.py", line=28, function="Net.forward", text="x = self.rnn(x)")
    outer = CodeLine(file="/home/me/main.py", line=58, function="test", text="output = model(data)")
    at_peak = RunningAt(lines=(inner, outer), operator="lstm")
    detector = Detector(looks=LooksAtPeaks(lambda steps: at_peak if 45 in steps else RunningAt()))
    # when
    findings = detector.update_all(_run_with_a_spike())
    # then: in the finding and in the verdict
    [spike] = [one for one in findings if one.kind is FindingKind.SPIKE]
    assert spike.message.endswith(" · highest in lstm at main.py:28  x = self.rnn(x) (test > Net.forward)")
    assert spike.evidence["line"]["line"] == 28
    assert [line["line"] for line in spike.evidence["stack"]] == [28, 58]
    assert spike.evidence["operator"] == "lstm"
    assert detector.verdict().message == spike.message


def test_a_spike_says_what_looks_have_seen_it_allocate() -> None:
    # given
    detector = Detector(looks=LooksAtPeaks(lambda steps: RunningAt(allocated=620 * MIB, needed=600 * MIB)))
    # when
    findings = detector.update_all(_run_with_a_spike())
    # then
    [spike] = [one for one in findings if one.kind is FindingKind.SPIKE]
    assert (
        "step 45 needed at least +600.00 MiB (114 %) more than usual, 27.00 MiB of it in memory that " in spike.message
    )
    assert (spike.evidence["allocated_bytes"], spike.evidence["needed_bytes"]) == (620 * MIB, 600 * MIB)


@pytest.mark.parametrize(
    ("allocated", "is_followed", "is_said"), [(300, False, False), (300, True, True), (90, True, False)]
)
def test_what_a_step_allocated_may_be_far_below_its_resident_peak_if_looks_followed_it(
    allocated: int, is_followed: bool, is_said: bool
) -> None:
    # given a spike of 600 MiB of resident memory, part of which may be holes in malloc's heap
    at_peak = RunningAt(allocated=allocated * MIB, is_followed=is_followed)
    detector = Detector(looks=LooksAtPeaks(lambda steps: at_peak))
    # when
    findings = detector.update_all(_run_with_a_spike())
    # then
    [spike] = [one for one in findings if one.kind is FindingKind.SPIKE]
    assert ("allocated_bytes" in spike.evidence) is is_said


def test_a_step_that_only_looks_have_seen_high_is_a_spike_beside_another() -> None:
    # given
    at_peak = RunningAt(allocated=420 * MIB, needed=400 * MIB)
    looks = LooksAtPeaks(lambda steps: at_peak if 55 in steps else RunningAt(), lambda: {45: 600 * MIB, 55: 400 * MIB})
    detector = Detector(looks=looks)
    detector.update_all(_run_with_a_spike())
    # when
    [hidden] = detector.close()
    # then
    assert (hidden.kind, hidden.first_step, hidden.evidence["height_bytes"]) == (FindingKind.SPIKE, 55, 400 * MIB)
    assert hidden.message.startswith(
        "step 55 needed at least +400.00 MiB (76 %) more than usual, 400.00 MiB of it in memory that malloc had kept"
        " free: it reached a "
    )
    assert detector.verdict().message.endswith(" · the highest of 2: steps 45, 55")


def test_an_evaluation_that_needs_more_is_mentioned_by_a_stable_run() -> None:
    # given
    at_peak = RunningAt(lines=(CodeLine(file="main.py", line=28, text="model(batch)"),), is_evaluation=True)
    detector = Detector(looks=LooksAtPeaks(lambda steps: at_peak if 45 in steps else RunningAt()))
    # when
    findings = detector.update_all(_run_with_a_spike())
    # then
    [spike] = [one for one in findings if one.kind is FindingKind.SPIKE]
    assert spike.severity is Severity.INFO
    assert spike.message.startswith("step 45 (in an evaluation: the model was in eval mode) took +573.00 MiB ")
    assert spike.evidence["phase"] == "evaluation"
    assert "smaller batches in evaluations" in spike.advice
    verdict = detector.verdict()
    assert verdict.kind is FindingKind.STABLE
    assert verdict.message.endswith(f" · {spike.message}")


def test_a_spike_of_several_steps_names_the_first_and_the_last() -> None:
    samples = [one._replace(host_peak_rss=1100 * MIB) if one.step == 46 else one for one in _run_with_a_spike()]

    assert judge(samples)[-1].message.startswith("steps 45 to 46 took +573.00 MiB ")


def test_what_malloc_has_kept_of_earlier_steps_may_hold_more_of_a_spike() -> None:
    excursion = Excursion(ExcursionKind.SPIKE, 45, 45, 1100 * MIB, 527 * MIB, may_be_more=99 * MIB)

    finding = excursion_text.spike(_run_with_a_spike()[45], ExcursionEvent(45, Channel.HOST, excursion, updated=True))

    assert (
        " more memory than usual, and up to 99.00 MiB more in what malloc has kept of earlier steps (its"
        in finding.message
    )
    assert finding.evidence["may_be_more_bytes"] == 99 * MIB
    assert finding.evidence["height_bytes"] == 573 * MIB


def test_a_spike_that_was_recorded_names_what_its_recording_shows() -> None:
    # given
    sources = SpikeSources((SpikeSource("me/train.py:12 loss_of", "aten::mm", 500 * MIB, 2),), others=70 * MIB)
    confirmation = Confirmation("run.pt.trace.json.gz", sources)
    excursion = Excursion(
        ExcursionKind.SPIKE, 11, 11, 1100 * MIB, 527 * MIB, kept=0, left_out=MIB, confirmation=confirmation
    )
    running = RunningAt(lines=(CodeLine(file="train.py", line=30, text="memory.step()"),))
    # when
    sample = _run_with_a_spike()[0]
    found = excursion_text.spike(sample, ExcursionEvent(60, Channel.HOST, excursion, None), running)
    # then: not what was running when a look at the stack came
    assert found.message == (
        "step 11 took +573.00 MiB (109 %) more memory than usual: it reached a resident peak of 1.07 GiB, the usual is"
        " 527.00 MiB, without 1.00 MiB that tbmem had added by then · beyond what its window's other steps held:"
        " 500.00 MiB by me/train.py:12 loss_of (aten::mm), 70.00 MiB by others"
    )
    assert found.evidence["allocated_by"][0]["line"] == "me/train.py:12 loss_of"
    assert found.evidence["files"] == ["run.pt.trace.json.gz"]
    assert found.advice.endswith("; tbmem analyze shows what it holds")


def test_a_change_of_level_names_the_lines_of_its_first_peak() -> None:
    # given steps that reach higher from the 45th on
    line = CodeLine(file="/home/me/main.py", line=28, function="train", text="loss = model(batch)")
    detector = Detector(looks=LooksAtPeaks(lambda steps: RunningAt(lines=(line,)) if 45 in steps else RunningAt()))
    samples = [
        sample._replace(host_peak_rss=1100 * MIB if sample.step >= 45 else 527 * MIB) for sample in _run_with_a_spike()
    ]
    # when
    findings = detector.update_all(samples)
    # then
    [shift] = [one for one in findings if one.kind is FindingKind.LEVEL_SHIFT]
    assert shift.message.endswith(" · highest at main.py:28  loss = model(batch) (train)")
    assert shift.evidence["line"]["line"] == 28


@pytest.mark.parametrize(("running", "known"), [(RunningAt(seconds=2.3456), 2.346), (RunningAt(), None)])
def test_a_period_says_how_long_its_highest_step_took(running: RunningAt, known: float | None) -> None:
    # given
    excursion = Excursion(ExcursionKind.PERIODIC, 150, 150, 800 * MIB, 500 * MIB, 50, (50, 100, 150))
    event = ExcursionEvent(150, Channel.HOST, excursion, updated=True)
    # when
    finding = excursion_text.periodic(_run_with_a_spike()[-1], event, running)
    # then
    assert finding.evidence.get("step_seconds") == known


def test_the_figures_of_a_spike_stand_on_the_other_screens() -> None:
    # given the run of a process on the CPU, one step of which needs far more
    samples = _run_with_a_spike()
    spike = next(one for one in judge(samples) if one.kind is FindingKind.SPIKE)
    rows = [
        SampleRow(first_step=one.step, count=1, allocated_min=None, allocated_max=None, sample=one) for one in samples
    ]
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 1000.0}], rows=rows, findings=[spike]))

    # when
    view = run_view("mine", [state], now=1100.0)
    (device,) = view["ranks"][0]["devices"]
    (card,) = overview_of(LoggedRun("mine", [state]), now=1100.0)["cards"]

    # then the peak is the run's, in its step, and the usual one is that of any other line of the console
    assert spike.evidence["peak_bytes"] == device["peak"] == card["peak"] == max(device["peaks"]) == max(card["peaks"])
    assert spike.first_step == device["peak_step"] == card["peak_step"]
    assert f"resident peak {format_bytes(spike.evidence['usual_bytes'])} " in memory_line(samples[40])
    assert any(f"resident peak {format_bytes(device['peak'])}" in line.plain for line in run_lines(view))
    assert card["peak_word"] == "resident peak"
    assert f"a resident peak of {format_bytes(card['peak'])}" in spike.message
