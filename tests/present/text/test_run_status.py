"""A run on a terminal of eighty columns."""

from __future__ import annotations

import json

import pytest

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tbmem.present.text.run_status import run_lines, run_view, sparkline
from tests.conftest import GIB, MakeSample


@pytest.fixture
def state(make_sample: MakeSample) -> RankState:
    """A hundred steps on an 80 GiB device, with a leak that was told twice."""
    samples = [make_sample(step, 40 + step / 10, 60.0) for step in range(1, 101)]
    rows = [
        SampleRow(
            first_step=each.step, count=1, allocated_min=each.allocated, allocated_max=each.allocated, sample=each
        )
        for each in samples
    ]
    leaks = [
        Finding(
            kind=FindingKind.LEAK,
            severity=Severity.CRITICAL,
            device="cuda:0",
            first_step=1,
            last_step=step,
            message=f"grows until step {step}, and a long sentence about what that means " + "on and on " * 30,
        )
        for step in (50, 90)
    ]
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 1000.0}], rows=rows, findings=leaks))
    return state


def test_the_view_is_plain_json(state: RankState) -> None:
    view = run_view("mine", [state], now=1002.0)

    (device,) = view["ranks"][0]["devices"]
    assert json.loads(json.dumps(view)) == view
    assert (view["status"], view["step"], view["steps_per_second"]) == ("running", 100, pytest.approx(100))
    assert (device["verdict"], device["peak"], device["headroom"]) == ("leak", 60 * GIB, 20 * GIB)
    assert device["growth_per_step"] == pytest.approx(GIB / 10)


@pytest.mark.parametrize(
    ("verdict", "ends"), [("growing", "GROWING +102.40 MiB/step"), ("stable", "STABLE"), ("spike", "SPIKE")]
)
def test_a_rate_stands_beside_growth_only(state: RankState, verdict: str, ends: str) -> None:
    view = run_view("mine", [state], now=1002.0)
    view["ranks"][0]["devices"][0]["verdict"] = verdict

    assert run_lines(view)[1].plain.endswith(f"█ {ends}")


def test_eighty_columns(state: RankState) -> None:
    lines = [line.plain for line in run_lines(run_view("mine", [state], now=1002.0))]

    assert max(map(len, lines)) <= 80
    assert lines[0] == "mine · running · step 100 · 100 steps/s unprofiled"
    assert lines[1].startswith("GPU 0  ▁")
    assert lines[1].endswith("█ LEAK +102.40 MiB/step")
    assert lines[2].split() == ["peaks", "█" * len(lines[1].split()[2])]
    assert lines[3] == "  allocated 50.00 GiB · reserved 50.00 GiB · peak 60.00 GiB · headroom 20.00 GiB"


def test_a_level_that_was_read_earlier_says_of_what_step_it_is(make_sample: MakeSample) -> None:
    # given
    row = SampleRow(91, 10, None, None, make_sample(100, 50.0, device="cpu"), level_step=84)
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 1000.0}], rows=[row]))
    # when
    view = run_view("mine", [state], now=1002.0)
    # then
    assert view["ranks"][0]["devices"][0]["allocated_step"] == 84
    assert any("allocated 50.00 GiB (of step 84)" in line.plain for line in run_lines(view))


def test_a_spike_is_seen_in_the_peaks(make_sample: MakeSample) -> None:
    # given a level that does not change, and one step whose peak is far above the others
    samples = [make_sample(step, 40.0, 70.0 if step == 6 else 45.0) for step in range(1, 9)]
    level = 40 << 30
    rows = [SampleRow(first_step=1, count=1, allocated_min=level, allocated_max=level, sample=each) for each in samples]
    state = RankState()
    state.add(MonitorLog(headers=[{"rank": 0, "started": 1000.0}], rows=rows))

    lines = [line.plain for line in run_lines(run_view("mine", [state], now=1002.0))]

    assert lines[2] == "peaks  ▁▁▁▁▁█▁▁"


def test_forty_columns_lose_no_number(state: RankState) -> None:
    lines = [line.plain for line in run_lines(run_view("mine", [state], now=1002.0), width=40)]

    assert max(map(len, lines)) <= 40
    assert lines[4:7] == ["  allocated 50.00 GiB", "  reserved 50.00 GiB · peak 60.00 GiB", "  headroom 20.00 GiB"]


def test_a_heading_that_is_wider_than_the_terminal_goes_on_on_the_next_line(state: RankState) -> None:
    view = run_view("experiments/2026/a-rather-long-name-of-a-run", [state], now=2000.0)

    lines = [line.plain for line in run_lines(view, width=40, findings=0)]

    assert max(map(len, lines)) <= 40
    assert lines[0] == "…iments/2026/a-rather-long-name-of-a-run"
    assert lines[1:3] == ["  unknown: nothing for 16 min 39 s", "  step 100 · 100 steps/s unprofiled"]


def test_a_process_that_is_gone_without_an_end_has_died(state: RankState) -> None:
    # given
    state.is_alive = False
    # when
    view = run_view("mine", [state], now=1002.0)
    # then at once, though a row came two seconds ago
    assert (view["status"], state.has_ended) == ("died", True)
    assert run_lines(view)[0].plain.startswith("mine · killed or crashed: no end in its log · step 100")


def test_one_rank_of_two_has_died(state: RankState, make_sample: MakeSample) -> None:
    # given
    other = RankState()
    other.add(MonitorLog(headers=[{"rank": 1}], rows=[SampleRow(1, 1, None, None, make_sample(5, 1.0))]))
    other.is_alive = False
    # when
    view = run_view("mine", [state, other], now=101.0)
    # then
    assert view["status"] == "running"
    assert run_lines(view)[0].plain.startswith(
        "mine · running · rank 1 killed or crashed: no end in its log · step 100"
    )


def test_a_leak_that_was_told_twice_is_shown_once(state: RankState) -> None:
    text = "\n".join(line.plain for line in run_lines(run_view("mine", [state], now=1002.0)))

    assert "until step 90" in text
    assert "until step 50" not in text


def test_every_spike_is_shown_or_at_least_named(state: RankState) -> None:
    # given five spikes beside a leak
    spikes = [
        Finding(
            kind=FindingKind.SPIKE,
            severity=Severity.WARNING,
            device="cuda:0",
            first_step=step,
            last_step=step,
            message=f"step {step} held more " + "than the others, " * 20,
        )
        for step in (11, 30, 41, 60, 99)
    ]
    state.add(MonitorLog(findings=spikes))
    view = run_view("mine", [state], now=1002.0)
    # when
    lines = [line.plain for line in run_lines(view)]
    # then
    assert lines[-1] == "3 more: SPIKE in step 41, SPIKE in step 30, SPIKE in step 11"
    assert [line[:27] for line in lines if line.startswith("SPIKE")] == [
        "SPIKE  GPU 0 step 99 held m",
        "SPIKE  GPU 0 step 60 held m",
    ]
    # and where there is room, in full
    whole = [line.plain for line in run_lines(view, max_lines=None)]
    assert len(whole) > len(lines)
    assert not any(line.endswith("…") for line in whole)


def test_several_ranks_have_their_numbers(state: RankState) -> None:
    lines = [line.plain for line in run_lines(run_view("mine", [state, state], now=1002.0), findings=0)]

    assert sum(line.startswith("rank 0 GPU 0 ") for line in lines) == 2


@pytest.mark.parametrize(
    ("now", "end", "status"),
    [(1002.0, None, "running"), (2000.0, None, "unknown"), (2000.0, {"type": "end"}, "ended")],
)
def test_the_status(now: float, end: dict[str, object] | None, status: str, state: RankState) -> None:
    state.add(MonitorLog(end=end))

    view = run_view("mine", [state], now)

    assert view["status"] == status
    assert run_lines(view)[0].plain.startswith(f"mine · {view['status_text']} · step 100")


@pytest.mark.parametrize(
    ("piece", "status", "heading"),
    [
        (MonitorLog(end={"type": "end", "exception": "ValueError"}), "failed", "ended by ValueError"),
        (MonitorLog(signal={"type": "signal", "name": "SIGTERM", "ends": True}), "terminated", "ended by SIGTERM"),
    ],
)
def test_what_ended_it(piece: MonitorLog, status: str, heading: str, state: RankState) -> None:
    state.add(piece)

    view = run_view("mine", [state], 2000.0)

    assert view["status"] == status
    assert heading in run_lines(view)[0].plain


@pytest.mark.parametrize(
    ("levels", "bars"),
    [
        ([], ""),
        ([5], "█"),
        ([0, 7], "▁█"),
        ([1000, 1001], "██"),
        (list(range(8)), "▁▂▃▄▅▆▇█"),
        (list(range(80)), "▁▂▃▄▅▆▇█"),
        ([9 if at == 45 else 1 for at in range(80)], "▁▁▁▁█▁▁▁"),
    ],
)
def test_a_sparkline(levels: list[int], bars: str) -> None:
    assert sparkline(levels, 8) == bars
