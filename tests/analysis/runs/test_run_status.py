"""Where a run stands, from what is known of its ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.analysis.runs.run_status import RankState, Standing, rank_status, run_status, status_notes
from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tests.conftest import GIB, MIB, MakeSample

END: dict[str, Any] = {"type": "end"}


def _state(make_sample: MakeSample, *, rank: int = 0, alive: bool | None = None, **ends: Any) -> RankState:
    """A rank whose last of ten steps ended at 1000.1 s."""
    rows = [SampleRow(step, 1, None, None, make_sample(step, 1.0, rank=rank)) for step in range(1, 11)]
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": rank, "started": 999.0}], rows=rows, **ends))
    state.is_alive = alive
    return state


@pytest.mark.parametrize(
    ("ends", "alive", "now", "standing", "text"),
    [
        ({"end": END}, None, 1001.0, Standing.ENDED, "ended in order"),
        ({"end": {**END, "exception": "ValueError"}}, False, 1001.0, Standing.FAILED, "ended by ValueError"),
        (
            {"end": {**END, "exception": "RuntimeError", "out_of_memory": True}},
            False,
            1001.0,
            Standing.OUT_OF_MEMORY,
            "ran out of memory (RuntimeError)",
        ),
        ({"end": {**END, "out_of_memory": True}}, False, 1001.0, Standing.OUT_OF_MEMORY, "ran out of memory"),
        ({"signal": {"name": "SIGTERM", "ends": True}}, False, 1001.0, Standing.TERMINATED, "ended by SIGTERM"),
        ({}, False, 1001.0, Standing.DIED, "killed or crashed: no end in its log"),
        ({}, True, 1001.0, Standing.RUNNING, "running"),
        ({}, True, 1240.6, Standing.RUNNING, "running, nothing for 4 min 0 s"),
        ({}, None, 1001.0, Standing.RUNNING, "running"),
        ({}, None, 1240.6, Standing.UNKNOWN, "unknown: nothing for 4 min 0 s"),
    ],
)
def test_one_rank(
    ends: dict[str, Any], alive: bool | None, now: float, standing: Standing, text: str, make_sample: MakeSample
) -> None:
    status = rank_status(_state(make_sample, alive=alive, **ends), now)

    assert (status.standing, status.text) == (standing, text)


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        (
            "no labels",
            "train.py:31  raise ValueError",
            "ended by KeyError: no labels · at train.py:31  raise ValueError",
        ),
        (None, "train.py:31", "ended by KeyError · at train.py:31"),
        ("\x1b[31mred\n", None, "ended by KeyError: ?[31mred?"),
        ("", None, "ended by KeyError"),
    ],
)
def test_an_exception_is_told_with_its_text_and_line(
    text: str | None, line: str | None, sentence: str, make_sample: MakeSample
) -> None:
    end = {**END, "exception": "KeyError", "exception_text": text, "exception_line": line}

    assert run_status([_state(make_sample, end=end)], 0.0).sentence == sentence


def test_before_the_first_step_it_starts() -> None:
    state = RankState()
    state.add(MonitorLog(headers=[{"started": 999.0}]))

    assert rank_status(state, 1000.0).text == "starting"


def test_a_rank_that_has_failed_while_others_run(make_sample: MakeSample) -> None:
    running = _state(make_sample, alive=True)
    failed = [_state(make_sample, rank=rank, end={**END, "exception": "KeyError"}) for rank in (1, 2)]

    status = run_status([running, *failed], 1001.0)

    assert (status.standing, status.sentence) == (Standing.RUNNING, "running · ranks 1, 2 ended by KeyError")


def test_of_a_run_that_is_over_the_rank_counts_that_says_why(make_sample: MakeSample) -> None:
    others = [_state(make_sample, rank=rank, signal={"name": "SIGTERM", "ends": True}) for rank in (0, 2)]
    first = _state(make_sample, rank=1, end={**END, "exception": "OutOfMemoryError", "out_of_memory": True})

    status = run_status([others[0], first, others[1]], 1001.0)

    assert status.to_dict() == {
        "status": "out_of_memory",
        "status_text": "ran out of memory (OutOfMemoryError) · ranks 0, 2 ended by SIGTERM",
        "ended_by": "OutOfMemoryError",
    }


def test_recordings_only() -> None:
    assert run_status([], 0.0).text == "recordings only"


def test_a_run_that_did_not_come_to_its_end_is_told(make_sample: MakeSample) -> None:
    states = [_state(make_sample, alive=False), _state(make_sample, rank=1, end=END)]

    assert status_notes(states, 1001.0) == [
        "rank 0: killed or crashed: no end in its log; it is judged up to step 10, the last in its log: a"
        " second of steps may be missing"
    ]


@pytest.mark.parametrize(("rise", "steps", "kind"), [(5, 30, "warmup"), (0, 30, "stable"), (5, 80, "stable")])
def test_a_short_run_without_an_end_whose_memory_rises_all_the_time_is_not_stable(
    make_sample: MakeSample, rise: int, steps: int, kind: str
) -> None:
    # given rows of ten steps, in each of which the level rises
    state = RankState()
    sizes = {step: GIB + step * rise * MIB for step in range(1, steps + 1)}
    rows = [
        SampleRow(first, 10, sizes[first], sizes[first + 9], make_sample(first + 9, sizes[first + 9] / GIB))
        for first in range(1, steps, 10)
    ]
    state.add(MonitorLog(headers=[{"rank": 0}], rows=rows))
    # when
    verdict = state.verdict_finding("cuda:0")
    # then
    assert verdict is not None
    assert state.verdict("cuda:0").value == verdict.kind.value == kind
    sentence = "rose from 1.00 GiB to 1.15 GiB in 30 evaluated steps · too few to tell a leak from a warm-up"
    assert (verdict.message == sentence) is (kind == "warmup")


@pytest.mark.parametrize("patterns", [{"min_growth": None}, {"warmup_steps": "one"}, {"of_another_version": 1}, "none"])
def test_a_header_whose_patterns_do_not_fit_is_judged_by_the_default_ones(
    make_sample: MakeSample, patterns: Any
) -> None:
    state = RankState()
    rows = [SampleRow(step, 1, GIB, GIB, make_sample(step, 1.0)) for step in range(1, 31)]
    state.add(MonitorLog(headers=[{"rank": 0, "config": {"patterns": patterns}}], rows=rows))

    assert state.verdict("cuda:0") is FindingKind.STABLE


@pytest.mark.parametrize(("signal", "so_far"), [({"name": "SIGTERM", "ends": True}, ""), (None, " so far")])
def test_a_run_without_an_end_has_a_verdict_as_far_as_its_log_goes(
    signal: dict[str, Any] | None, so_far: str, make_sample: MakeSample
) -> None:
    # given a run of enough steps that was ended by a signal, or goes on
    rows = [SampleRow(step, 1, None, None, make_sample(step, 1.0)) for step in range(1, 81)]
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 999.0}], rows=rows, signal=signal))
    # when
    (device,) = state.devices
    verdict = state.verdict_finding(device.device)
    # then the finding says what the verdict says
    assert verdict is not None
    assert verdict.kind is state.verdict(device.device) is FindingKind.STABLE
    assert verdict.message == f"nothing was found up to step 80, with which the log ends{so_far}"
