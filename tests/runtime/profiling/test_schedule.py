"""The schedule as a pure function, against the guide's table and against torch's own schedule."""

from __future__ import annotations

import itertools

import pytest
import torch

from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.runtime.profiling.schedule import (
    ScheduleState,
    describe_schedule,
    is_free,
    next_occurrence,
    occurrence_at,
    schedule_at,
)


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


@pytest.mark.parametrize(("step", "occurrence"), [(95, 120), (115, 120), (116, 120), (117, 150), (200, 210)])
def test_the_next_occurrence_leaves_time_to_prepare(step: int, occurrence: int) -> None:
    # given a spike of each 30th step, last seen in step 90
    evidence = {"member_steps": [30, 60, 90], "period_steps": 30}
    about = {"kind": FindingKind.PERIODIC, "severity": Severity.INFO, "device": "cpu", "message": ""}
    periodic = Finding(first_step=30, last_step=90, evidence=evidence, **about)  # type: ignore[arg-type]
    # when / then
    assert next_occurrence(periodic, step) == occurrence


def test_an_occurrence_is_recorded_with_the_step_before_it() -> None:
    config = ProfilingConfig(repeat=2)
    points = [occurrence_at(step, 20, config) for step in range(17, 22)]
    assert [point and point.state.value for point in points] == [None, "warmup", "active", "active", None]
    assert [point.window for point in points if point is not None] == [3, 3, 3]


@pytest.mark.parametrize(("steps", "free"), [(range(1, 2), True), (range(1, 4), False), (range(13, 16), True)])
def test_steps_are_free_where_no_window_of_the_schedule_is(steps: range, free: bool) -> None:
    assert is_free(steps, ProfilingConfig(wait=1, warmup=2, active=3, repeat=2)) is free
