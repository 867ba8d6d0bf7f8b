"""A run held against limits."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.analysis.runs.checks import Limits, check_run, levels_of, peaks_of
from tbmem.analysis.runs.run_status import RankState
from tbmem.errors import UsageError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tests.conftest import GIB, MIB, MakeSample
from tests.spikes import spike_in_a_window


@pytest.fixture
def growing(make_sample: MakeSample) -> RankState:
    """Fifty steps, each 2 MiB above the one before; the highest peak is 3 GiB."""
    rows = []
    for step in range(1, 51):
        sample = make_sample(step, 1.0 + step / 512, 3.0 if step == 20 else None)
        level = sample.allocated
        rows.append(SampleRow(first_step=step, count=1, allocated_min=level, allocated_max=level, sample=sample))
    state = RankState()
    state.add(MonitorLog(rows=rows))
    return state


@pytest.mark.parametrize(
    ("limits", "holds"),
    [
        (Limits(max_peak=3 * GIB), True),
        (Limits(max_peak=3 * GIB - 1), False),
        (Limits(max_growth=3 * MIB), True),
        (Limits(max_growth=1 * MIB), False),
        (Limits(no_leak=True), True),
        (Limits(baseline={"rank 0 cuda:0": 3 * GIB}), True),
        (Limits(baseline={"rank 0 cuda:0": int(2.9 * GIB)}), True),
        (Limits(baseline={"rank 0 cuda:0": int(2.8 * GIB)}), False),
        (Limits(baseline={"rank 0 cuda:0": int(2.8 * GIB)}, tolerance=0.1), True),
    ],
)
def test_each_limit(limits: Limits, holds: bool, growing: RankState) -> None:
    (result,) = check_run([growing], limits)

    assert result.holds is holds


def test_a_baseline_is_the_peaks_by_place(growing: RankState) -> None:
    assert peaks_of([growing]) == {"rank 0 cuda:0": 3 * GIB}


@pytest.mark.parametrize("limits", [Limits(baseline={"rank 1 cuda:0": 1})])
def test_a_place_that_the_baseline_does_not_know(limits: Limits, growing: RankState) -> None:
    with pytest.raises(UsageError, match="is not in the baseline"):
        check_run([growing], limits)


def test_a_place_that_only_the_baseline_knows_is_not_passed_over(growing: RankState) -> None:
    limits = Limits(baseline={"rank 0 cuda:0": 3 * GIB, "rank 1 cuda:0": 3 * GIB})

    with pytest.raises(UsageError, match="rank 1 cuda:0 is in the baseline, but not in this run"):
        check_run([growing], limits)


def test_a_leak_below_the_peak_is_seen_at_the_end(growing: RankState) -> None:
    # given the peak of before, and half of what is held at the end now
    (level,) = levels_of([growing]).values()
    place = "rank 0 cuda:0"
    limits = Limits(baseline={place: 3 * GIB}, baseline_levels={place: level // 2})

    peak, end = check_run([growing], limits)

    assert (peak.holds, end.holds) == (True, False)
    assert end.message == "level at the end 1.10 GiB, +100.0 % against the baseline's 562.00 MiB, at most +5 %"
    # and an old baseline, without levels, is held as it is
    assert len(check_run([growing], Limits(baseline={place: 3 * GIB}, baseline_levels={}))) == 1


def test_a_baseline_of_some_bytes_is_told_in_words(growing: RankState) -> None:
    (result,) = check_run([growing], Limits(baseline={"rank 0 cuda:0": 4}))

    assert result.message == "peak 3.00 GiB in step 20, × 805 306 368 against the baseline's 4 B, at most +5 %"


def test_what_tbmem_has_added_is_not_held_against_the_program(make_sample: MakeSample) -> None:
    state = RankState()
    host = {"peak_allocated": None, "host_peak_rss": 420 * MIB, "host_own": 30 * MIB}
    sample = make_sample(1, 0.1, device="cpu", **host)
    row = SampleRow(first_step=1, count=1, allocated_min=None, allocated_max=None, sample=sample)
    state.add(MonitorLog(rows=[row]))

    (result,) = check_run([state], Limits(max_peak=400 * MIB))

    assert result.holds
    assert "peak 390.00 MiB in step 1 (420.00 MiB with tbmem's own 30.00 MiB), at most 400.00 MiB" in result.message


def test_a_spike_in_a_profiler_window_counts_without_what_tbmem_had_added(make_sample: MakeSample) -> None:
    # given 8 GiB in all steps but one that a window has recorded
    rows = [SampleRow(step, 1, None, None, make_sample(step, 8.0, 8.0, device="cpu")) for step in range(1, 11)]
    evidence = {"peak_bytes": 12 * GIB, "usual_bytes": 8 * GIB, "height_bytes": 4 * GIB, "left_out_bytes": MIB}
    state = RankState()
    state.add(MonitorLog(rows=rows, findings=[spike_in_a_window(5, evidence)]))
    # when
    peaks = peaks_of([state])
    (limit,) = check_run([state], Limits(max_peak=10 * GIB))
    (own,) = check_run([state], Limits(baseline=peaks))
    # then
    assert peaks == {"rank 0 cpu": 12 * GIB}
    assert not limit.holds
    assert limit.message.startswith("peak 12.00 GiB in step 5 (12.00 GiB with tbmem's own 1.00 MiB)")
    assert own.holds


def _begun() -> RankState:
    state = RankState()
    state.header = {"rank": 0}
    return state


def test_a_run_without_steps_cannot_be_judged() -> None:
    with pytest.raises(UsageError, match="so there is nothing to check; a step counts where .* an optimizer steps$"):
        check_run([_begun()], Limits(max_peak=1))
    # and where its records are damaged that is told
    damaged = _begun()
    damaged.add(MonitorLog(damaged_lines=2))
    with pytest.raises(UsageError, match="optimizer steps; 2 damaged records of its log left out"):
        check_run([damaged], Limits(max_peak=1))
    # and where its process is gone that, instead of what counts as a step
    dead = _begun()
    dead.is_alive = False
    with pytest.raises(UsageError, match="check; killed or crashed: no end in its log; the log may be cut off$"):
        check_run([dead], Limits(max_peak=1))


def test_a_run_that_is_too_short_cannot_be_judged(make_sample: MakeSample) -> None:
    state = RankState()
    sample = make_sample(1, 1.0)
    row = SampleRow(first_step=1, count=1, allocated_min=None, allocated_max=None, sample=sample)
    state.add(MonitorLog(rows=[row]))

    for limits in (Limits(no_leak=True), Limits(max_growth=1)):
        with pytest.raises(UsageError, match=r"too (short|few)"):
            check_run([state], limits)


def test_a_leak_that_ended_out_of_memory_is_a_leak(growing: RankState) -> None:
    # given a run whose verdict is the shortage, because a leak used everything up
    leak, oom = (
        Finding(kind=kind, severity=Severity.CRITICAL, device="cuda:0", first_step=1, last_step=50, message=kind.value)
        for kind in (FindingKind.LEAK, FindingKind.OOM)
    )
    growing.add(MonitorLog(findings=[leak, oom], end={"type": "end", "verdicts": [oom.to_dict()]}))

    (result,) = check_run([growing], Limits(no_leak=True))

    assert not result.holds
    assert list(result.details) == ["oom", "leak"]


def test_a_run_that_ended_out_of_memory_does_not_pass_as_one_without_a_leak(make_sample: MakeSample) -> None:
    # given a run that no leak was found in before its memory ran out
    state = RankState()
    row = SampleRow(first_step=1, count=40, allocated_min=GIB, allocated_max=GIB, sample=make_sample(40, 1.0, 2.0))
    oom = Finding(
        kind=FindingKind.OOM, severity=Severity.CRITICAL, device="cuda:0", first_step=40, last_step=40, message=""
    )
    state.add(MonitorLog(rows=[row], findings=[oom], end={"type": "end", "verdicts": [oom.to_dict()]}))

    (result,) = check_run([state], Limits(no_leak=True))

    assert not result.holds
    assert result.message == "verdict OOM after 40 steps: whether memory leaked until then is not known"


@pytest.mark.parametrize(("steps", "says"), [(30, True), (150, False)])
def test_a_short_run_without_a_leak_says_so(make_sample: MakeSample, steps: int, says: bool) -> None:
    # given a run whose memory stands still
    state = RankState()
    for step in range(1, steps + 1):
        row = SampleRow(
            first_step=step, count=1, allocated_min=GIB, allocated_max=GIB, sample=make_sample(step, 1.0, 2.0)
        )
        state.add(MonitorLog(rows=[row]))
    # when
    (result,) = check_run([state], Limits(no_leak=True))
    # then
    assert result.holds
    assert ("steps only" in result.message) is says


@pytest.mark.parametrize(
    ("piece", "holds", "message"),
    [
        (MonitorLog(end={"type": "end"}), True, "ended in order after 50 steps"),
        (MonitorLog(end={"type": "end", "exception": "KeyError"}), False, "ended by KeyError after 50 steps"),
        (MonitorLog(), False, "running after 50 steps"),
        (
            MonitorLog(end={"type": "end"}, damaged_lines=2),
            False,
            "ended in order after 50 steps · 2 damaged records of its log left out",
        ),
    ],
)
def test_a_run_that_must_have_ended_in_order(piece: MonitorLog, holds: bool, message: str, growing: RankState) -> None:
    # given
    assert growing.last_time is not None
    growing.add(piece)
    # when
    result = check_run([growing], Limits(max_peak=GIB * 4, complete=True), now=growing.last_time)[-1]
    # then
    assert (result.check, result.place, result.holds) == ("complete", "rank 0", holds)
    assert result.message == message


def test_growth_that_has_ended_is_no_rate(growing: RankState) -> None:
    # given the verdict of a run that has grown in its beginning, and whose low-water mark climbs by 2 MiB a step
    evidence = {"bytes_per_step": 90 * MIB, "ended_step": 20}
    verdict = spike_in_a_window(1, evidence).to_dict() | {"kind": "growing", "device": "cuda:0"}
    growing.add(MonitorLog(end={"type": "end", "verdicts": [verdict]}))
    # when
    (result,) = check_run([growing], Limits(max_growth=3 * MIB))
    # then
    assert result.measured == pytest.approx(2 * MIB)


def test_a_rate_that_looks_like_its_limit_says_by_how_much_it_is_exceeded(growing: RankState) -> None:
    rate = check_run([growing], Limits(max_growth=1.0))[0].measured
    assert rate is not None

    (hardly,) = check_run([growing], Limits(max_growth=rate - 500))
    (clearly,) = check_run([growing], Limits(max_growth=rate / 2))

    assert hardly.message.endswith(" (500 B too much)")
    assert not clearly.message.endswith("too much)")


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({"signal": {"name": "SIGTERM", "ends": True}}, "ended by SIGTERM after 0 steps"),
        ({}, "killed or crashed: no end in its log after 0 steps"),
    ],
)
def test_a_run_that_was_ended_before_its_first_step_is_not_complete(ends: dict[str, Any], words: str) -> None:
    # given a log without a step
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 999.0}], **ends))
    state.is_alive = False
    # when
    (end,) = check_run([state], Limits(complete=True, no_leak=True), now=2000.0)
    # then that is an answer, though nothing else can be told
    assert (end.check, end.holds, end.message) == ("complete", False, words)
    with pytest.raises(UsageError, match="no step was logged"):
        check_run([state], Limits(no_leak=True), now=2000.0)
