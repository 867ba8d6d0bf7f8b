"""The schedule as a pure function, against the guide's table and against torch's own schedule."""

from __future__ import annotations

import itertools

import pytest
import torch

from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.runtime.profiling.schedule import Schedule, ScheduleState, describe_schedule, next_occurrence, schedule_at


def test_the_guides_schedule() -> None:
    # given wait 1, warmup 2, active 3, repeat 2
    config = ProfilingConfig(wait=1, warmup=2, active=3, repeat=2)

    # when the first 14 steps are asked for
    states = [schedule_at(step, config).state.value for step in range(1, 15)]

    # then they are those of the guide
    cycle = ["wait", "warmup", "warmup", "active", "active", "active"]
    assert states == cycle * 2 + ["stopped"] * 2


def test_first_and_last_step_of_each_stretch_are_marked() -> None:
    config = ProfilingConfig(wait=1, warmup=2, active=3, repeat=2)

    marks = [(point.window, point.first, point.last) for point in (schedule_at(n, config) for n in range(1, 7))]

    assert marks == [
        (1, True, True),
        (1, True, False),
        (1, False, True),
        (1, True, False),
        (1, False, False),
        (1, False, True),
    ]


@pytest.mark.parametrize(
    ("skip_first", "wait", "warmup", "active", "repeat"),
    list(itertools.product((0, 3), (0, 2), (0, 1), (1, 3), (0, 1, 2))),
)
@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_agrees_with_torchs_own_schedule(skip_first: int, wait: int, warmup: int, active: int, repeat: int) -> None:
    # given the same lengths in both
    ours = ProfilingConfig(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    theirs = torch.profiler.schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)

    # when forty steps are asked for; torch counts from 0, and says NONE for waiting and for stopped
    words = {"RECORD_AND_SAVE": "active", "RECORD": "active", "WARMUP": "warmup", "NONE": "off"}
    expected = [words[theirs(step).name] for step in range(40)]
    got = [schedule_at(step + 1, ours).state for step in range(40)]

    # then they agree
    off = (ScheduleState.WAIT, ScheduleState.STOPPED)
    assert ["off" if state in off else state.value for state in got] == expected


def test_disabled_is_stopped_from_the_start() -> None:
    config = ProfilingConfig(enabled=False)

    assert schedule_at(1, config).state is ScheduleState.STOPPED


@pytest.mark.parametrize(
    ("repeat", "text"),
    [(1, "records steps 4-6"), (2, "records steps 4-6, 10-12"), (0, "records steps 4-6, 10-12, 16-18, ...")],
)
def test_schedule_in_words(repeat: int, text: str) -> None:
    assert describe_schedule(ProfilingConfig(repeat=repeat)) == text


def test_schedule_in_words_of_a_run_that_is_resumed() -> None:
    assert describe_schedule(ProfilingConfig(repeat=1), resumed_after=12) == "records steps 16-18"


def _periodic() -> Finding:
    """A spike of each 30th step, last seen in step 90."""
    evidence = {"member_steps": [30, 60, 90], "period_steps": 30}
    about = {"kind": FindingKind.PERIODIC, "severity": Severity.INFO, "device": "cpu", "message": ""}
    return Finding(first_step=30, last_step=90, evidence=evidence, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(("step", "occurrence"), [(95, 120), (115, 120), (116, 120), (117, 150), (200, 210)])
def test_the_next_occurrence_leaves_time_to_prepare(step: int, occurrence: int) -> None:
    # when / then
    assert next_occurrence(_periodic(), step) == occurrence


def test_an_occurrence_is_recorded_with_the_step_before_it() -> None:
    # given a run of which two windows have been recorded
    schedule = Schedule(ProfilingConfig(repeat=2))
    # when a spike comes back
    assert schedule.expect([_periodic()], 95, resumed_after=0)
    # then
    points = [schedule.at(step) for step in range(117, 122)]
    assert [point.state.value for point in points] == ["stopped", "warmup", "active", "active", "stopped"]
    assert [point.window for point in points] == [0, 3, 3, 3, 0]


@pytest.mark.parametrize(("seconds", "expected"), [(0.4, 120), (0.9, 210), (3.0, 630)])
def test_a_long_occurrence_is_recorded_once_it_is_a_small_share_of_the_run(seconds: float, expected: int) -> None:
    # given steps of half a second
    clock = iter([10.0, 57.5])
    schedule, periodic = Schedule(ProfilingConfig(), lambda: next(clock)), _periodic()
    periodic.evidence["step_seconds"] = seconds
    # when
    schedule.expect([periodic], 95, resumed_after=0)
    # then after 300 s, which are 600 steps, and those in which a window is prepared, where it takes 3 s
    assert schedule.expected == expected


@pytest.mark.parametrize("repeat", [0, 20])
def test_an_occurrence_that_a_window_records_anyway_is_not_expected(repeat: int) -> None:
    schedule = Schedule(ProfilingConfig(repeat=repeat, wait=0, warmup=1, active=5))
    assert not schedule.expect([_periodic()], 95, resumed_after=0)
    assert schedule.expected == 0


def _windows(schedule: Schedule, steps: int) -> list[tuple[int, int]]:
    """Steps that are recorded, with the number of their window."""
    points = [(step, schedule.at(step)) for step in range(1, steps + 1)]
    return [(step, point.window) for step, point in points if point.state is ScheduleState.ACTIVE]


def test_a_window_that_could_not_be_recorded_comes_a_cycle_later_and_all_after_it() -> None:
    # given windows of which the second meets a profiler of the program in its warm-up
    schedule = Schedule(ProfilingConfig(wait=1, warmup=2, active=1, repeat=2))
    assert _windows(schedule, 20) == [(4, 1), (8, 2)]
    assert schedule.at(6).state is ScheduleState.WARMUP
    # when
    end = schedule.postpone(2)
    # then
    assert end == "is postponed by 4 steps"
    assert [window for window in _windows(schedule, 20) if window[0] > 6] == [(12, 2)]
    # and twice as late where that meets one, too
    assert schedule.postpone(2) == "is postponed by 8 steps"
    assert [window for window in _windows(schedule, 40) if window[0] > 10] == [(20, 2)]


def test_a_window_is_tried_more_and_more_rarely() -> None:
    # given a program that profiles all of its steps
    schedule, tries = Schedule(ProfilingConfig(wait=1, warmup=1, active=3, repeat=0)), []
    # when
    for step in range(1, 1001):
        point = schedule.at(step)
        if point.state is ScheduleState.WARMUP:
            schedule.postpone(point.window)
            tries.append(step)
    # then
    assert tries == [2, 7, 17, 37, 77, 157, 317, 637]


def test_the_window_of_a_spike_is_not_postponed() -> None:
    schedule = Schedule(ProfilingConfig(repeat=1))
    assert schedule.expect([_periodic()], 95, resumed_after=0)
    assert schedule.postpone(2) == "is left out"
    assert schedule.expected == 120


def test_a_postponed_window_that_comes_to_lie_on_an_expected_spike_records_it() -> None:
    # given a spike that is expected in step 120, and a last window in steps 101 to 110
    schedule = Schedule(ProfilingConfig(skip_first=99, wait=0, warmup=1, active=10, repeat=1))
    assert schedule.expect([_periodic()], 95, resumed_after=0)
    # when it is postponed to steps 112 to 121
    schedule.postpone(1)
    # then
    assert schedule.expected == 0
    assert (120, 1) in _windows(schedule, 125)


@pytest.mark.parametrize(("steps", "free"), [(range(1, 2), True), (range(1, 4), False), (range(13, 16), True)])
def test_steps_are_free_where_no_window_of_the_schedule_is(steps: range, free: bool) -> None:
    assert Schedule(ProfilingConfig(wait=1, warmup=2, active=3, repeat=2)).is_free(steps) is free
