"""The growth rate of a leak: true, and the same in the finding, the verdict and on every screen that reads the log."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tbmem.analysis.detector.detector import Detector, judge
from tbmem.analysis.runs.checks import Limits, check_run
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import RowBuilder
from tbmem.present.text.run_status import run_view
from tbmem.present.views.live import LoggedRun
from tbmem.present.views.overview import overview_of
from tbmem.units import GIB, MIB

WINDOWS = (4, 5, 6, 10, 11, 12)
WATCHED = range(40, 90)
SECONDS = 0.1


def leak(steps: int, profiled: Collection[int] = (), every: int = 1, per_step: int = MIB) -> list[MemorySample]:
    """A MiB a step on the CPU; a profiler adds 50 MiB in its steps, leaves 3, and makes them ten times as long."""
    samples, time, left = [], 1000.0, 0
    for step in range(1, steps + 1):
        is_profiled = step in profiled
        time += 10 * SECONDS if is_profiled or step - 1 in profiled else SECONDS
        left += 3 * MIB * (is_profiled and step + 1 not in profiled)
        level = 200 * MIB + step // every * every * per_step + left + 50 * MIB * is_profiled
        samples.append(
            MemorySample(
                step=step,
                time=time,
                device="cpu",
                allocated=level,
                reserved=level + 5 * MIB,
                host_rss=300 * MIB + level,
                host_available=16 * GIB - level,
                device_total=64 * GIB,
                profiled=is_profiled,
            )
        )
    return samples


def told(samples: list[MemorySample]) -> tuple[list[Finding], Finding]:
    """Leaks as they were told, and the verdict."""
    detector = Detector()
    found = [finding for sample in samples for finding in detector.update(sample)]
    return [each for each in found if each.kind is FindingKind.LEAK], detector.verdict()


@pytest.mark.parametrize("steps", [400, 401, 403, 530])
@pytest.mark.parametrize("every", [1, 4, 10])
def test_steps_under_a_profiler_count_neither_in_the_growth_nor_in_the_divisor(steps: int, every: int) -> None:
    # given
    samples = leak(steps, {*WINDOWS, *WATCHED, *range(200, 230)}, every)
    # when
    leaks, verdict = told(samples)
    # then
    for finding in (*leaks, verdict):
        assert finding.evidence["bytes_per_step"] == pytest.approx(MIB, rel=0.02)


def test_the_sentence_says_how_many_steps_were_judged() -> None:
    _, verdict = told(leak(400, WATCHED))
    evidence = verdict.evidence
    said = f"in {evidence['judged_steps']} evaluated steps of {evidence['judged_steps'] + 56}, by step"
    assert said in verdict.message
    assert evidence["growth_bytes"] == pytest.approx(evidence["judged_steps"] * MIB, rel=0.02)
    # and nothing of it where all were
    _, verdict = told(leak(400))
    assert "evaluated" not in verdict.message


def test_the_forecast_goes_on_at_the_rate_that_is_told() -> None:
    # given: windows that left memory behind
    samples = leak(400, {*WINDOWS, *WATCHED})
    # when
    _, verdict = told(samples)
    # then: what is available now, at that rate; in seconds of steps that ran without a profiler
    left = samples[-1].host_available
    assert left is not None
    assert verdict.evidence["steps_left"] == pytest.approx(left / verdict.evidence["bytes_per_step"], rel=0.002)
    assert verdict.evidence["seconds_left"] == pytest.approx(verdict.evidence["steps_left"] * SECONDS, rel=0.002)


def test_a_forecast_of_a_device_reaches_its_capacity() -> None:
    # given: an accelerator of 4 GiB, no profiler: full at step 3896
    samples = [
        each._replace(device="cuda:0", device_total=4 * GIB, peak_allocated=each.allocated, host_available=None)
        for each in leak(400)
    ]
    # then
    assert judge(samples)[-1].evidence["steps_left"] == pytest.approx(3896 - 400, rel=0.002)


@pytest.mark.parametrize("ends", [True, False])
def test_every_screen_shows_the_rate_of_the_finding(ends: bool) -> None:
    # given: a leak of a MiB every ten steps, in a log of rows of ten, with windows
    samples = leak(430, {*WINDOWS, *WATCHED}, every=10, per_step=MIB)
    leaks, verdict = told(samples)
    end = {"type": "end", "verdicts": [verdict.to_dict()]} if ends else None
    state, rows = RankState(), RowBuilder(10)
    header = {"started": samples[0].time, "rank": 0}
    state.add(MonitorLog(headers=[header], rows=rows.add(samples) + rows.close(), findings=leaks, end=end))
    rate = (verdict if ends else leaks[-1]).evidence["bytes_per_step"]
    # when
    (device,) = run_view("run", [state], now=samples[-1].time)["ranks"][0]["devices"]
    (card,) = overview_of(LoggedRun("run", states=[state], findings=leaks), now=samples[-1].time)["cards"]
    (result,) = check_run([state], Limits(max_growth=1.0))
    # then
    assert device["growth_per_step"] == card["growth_per_step"] == result.measured == rate
    assert not result.holds


def test_a_run_without_a_finding_has_the_rate_of_its_floor() -> None:
    # given: too slow, and too short, for anybody to speak of it
    samples = leak(60, WINDOWS, per_step=8 * 1024)
    state, rows = RankState(), RowBuilder(10)
    state.add(MonitorLog(rows=rows.add(samples) + rows.close()))
    (track,) = state.devices
    assert state.growth_per_step(track) == pytest.approx(8 * 1024, rel=0.02)


def test_the_steps_per_second_are_those_of_the_forecast() -> None:
    samples = leak(400, {*WINDOWS, *WATCHED})
    state, rows = RankState(), RowBuilder(10)
    state.add(MonitorLog(rows=rows.add(samples) + rows.close()))
    assert state.steps_per_second() == pytest.approx(1 / SECONDS, rel=0.01)
