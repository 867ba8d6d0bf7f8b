"""Windows of torch.profiler: what is written, and what is off again."""

from __future__ import annotations

import gzip
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
import torch

from tbmem import AddressBook, ConfigError, MemoryProfiler, UsageError
from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import WindowRecord
from tbmem.runtime.profiling.schedule import ScheduleState

TrainStep = Callable[[], None]


def _run(profiler: MemoryProfiler, train_step: TrainStep, steps: int) -> None:
    with profiler:
        for _ in range(steps):
            train_step()
            profiler.step()


def _events(trace: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return events


def test_one_trace_per_window_with_the_guides_steps(tmp_path: Path, train_step: TrainStep) -> None:
    # given the guide's schedule
    profiler = MemoryProfiler(folder=tmp_path, wait=1, warmup=2, active=3, repeat=2)

    # when fourteen steps are trained
    _run(profiler, train_step, 14)

    # then there are two traces, of steps 4-6 and 10-12, each with memory events, shapes and stacks
    steps = []
    for trace in profiler.ledger.traces:
        events = _events(trace)
        names = [event.get("name", "") for event in events]
        steps.append(sorted({n for n in names if n.startswith("ProfilerStep#")}, key=lambda n: int(n[13:])))
        memory = [event for event in events if event.get("name") == "[memory]"]
        assert memory
        assert all(event["args"]["Addr"] for event in memory)
        assert any("Input Dims" in event.get("args", {}) for event in events)
        assert any(event.get("cat") == "python_function" for event in events)
    assert steps == [[f"ProfilerStep#{n}" for n in (4, 5, 6)], [f"ProfilerStep#{n}" for n in (10, 11, 12)]]


@pytest.mark.parametrize("calls", ["each step", "none while it is done"])
def test_the_next_occurrence_of_a_spike_is_recorded_once(calls: str, tmp_path: Path, train_step: TrainStep) -> None:
    # given a schedule that has ended, and a spike of each tenth step
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=0, active=1, repeat=1)
    about = {"kind": FindingKind.PERIODIC, "severity": Severity.INFO, "device": "cpu", "message": "", "first_step": 10}
    evidence = {"member_steps": [10, 20, 30], "period_steps": 10}
    periodic = Finding(last_step=30, evidence=evidence, **about)  # type: ignore[arg-type]
    # when
    with profiler:
        for step in range(1, 60):
            train_step()
            if step in (31, 45):
                profiler.expect(step, [periodic])
            if calls == "each step" or not profiler.is_done:
                profiler.step()
    # then
    assert [window.steps for window in profiler.ledger.windows] == [[1], [39, 40]]
    assert profiler.is_done
    assert profiler.ledger.windows[1].address_book is not None


def test_an_occurrence_within_the_schedule_is_left_to_it(tmp_path: Path, train_step: TrainStep) -> None:
    profiler = MemoryProfiler(folder=tmp_path, wait=35, warmup=2, active=3, repeat=1)
    about = {"kind": FindingKind.PERIODIC, "severity": Severity.INFO, "device": "cpu", "message": "", "first_step": 10}
    evidence = {"member_steps": [10, 20, 30], "period_steps": 10}
    with profiler:
        for step in range(1, 45):
            train_step()
            if step == 31:
                profiler.expect(step, [Finding(last_step=30, evidence=evidence, **about)])  # type: ignore[arg-type]
            profiler.step()
    assert [window.steps for window in profiler.ledger.windows] == [[38, 39, 40]]


def test_the_address_book_lies_beside_the_trace(tmp_path: Path, train_step: TrainStep) -> None:
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=0, active=1, repeat=1)

    _run(profiler, train_step, 2)

    book = AddressBook.load(profiler.ledger.address_books[0])
    assert book.about["trace"] == profiler.ledger.traces[0].name
    assert (book.about["first_step"], book.about["last_step"]) == (1, 1)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(
        [profiler.ledger.traces[0].name, profiler.ledger.address_books[0].name]
    )


def test_gradients_of_the_book_are_allocations_of_the_trace(tmp_path: Path, train_step: TrainStep) -> None:
    # given a recorded step
    profiler = MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=2, repeat=1)
    _run(profiler, train_step, 4)

    # when the book is joined with the trace's events by address and lifetime
    trace = json.loads(gzip.decompress(profiler.ledger.traces[0].read_bytes()))
    base = trace["baseTimeNanoseconds"]
    born: dict[int, float] = {}
    lives: list[tuple[int, float, float]] = []
    memory = [event for event in trace["traceEvents"] if event.get("name") == "[memory]"]
    for event in sorted(memory, key=lambda event: event["ts"]):
        address, moment = event["args"]["Addr"], base + event["ts"] * 1000
        if event["args"]["Bytes"] > 0:
            born[address] = moment
        elif address in born:
            lives.append((address, born.pop(address), moment))
    lives += [(address, moment, float("inf")) for address, moment in born.items()]
    notes = AddressBook.load(profiler.ledger.address_books[0]).notes()

    # then every gradient that was noted lies inside an allocation that was alive at that time
    gradients = [note for note in notes if note.category.name == "GRADIENT"]
    assert gradients
    for note in gradients:
        assert any(a == note.address and begin <= note.time_ns <= end for a, begin, end in lives), note


@pytest.mark.parametrize(
    ("steps", "traces", "complete"), [(2, 0, 0), (3, 0, 0), (4, 1, 0), (6, 1, 1), (9, 1, 1), (11, 2, 1)]
)
def test_a_run_that_ends_early_keeps_what_it_has(
    tmp_path: Path, train_step: TrainStep, steps: int, traces: int, complete: int
) -> None:
    # given a schedule that needs 12 steps
    records: list[WindowRecord] = []
    profiler = MemoryProfiler(folder=tmp_path, on_window=records.append, repeat=2)

    # when the run ends before
    _run(profiler, train_step, steps)

    # then what was recorded is written, and the finding says what to do
    assert len(profiler.ledger.traces) == traces
    assert sum(record.complete for record in records) == complete
    finding = profiler.short_run()
    assert finding is not None
    assert f"after {steps} steps, but the profiler's schedule needs 12 steps" in finding.message
    assert f"{complete} of 2 windows complete" in finding.message
    for key in ("wait", "warmup", "active", "repeat"):
        assert f"profiling.{key}" in finding.advice


def test_a_complete_run_has_nothing_to_say(tmp_path: Path, train_step: TrainStep) -> None:
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=1, active=1, repeat=1)

    _run(profiler, train_step, 2)

    assert profiler.short_run() is None


def test_an_exception_in_a_window_leaves_a_partial_trace_and_passes_on(tmp_path: Path, train_step: TrainStep) -> None:
    records: list[WindowRecord] = []
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=1, active=3, repeat=1, on_window=records.append)

    def train() -> None:
        with profiler:
            for _ in range(2):
                train_step()
                profiler.step()
            raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        train()
    assert [(record.first_step, record.last_step, record.complete) for record in records] == [(2, 3, False)]
    assert len(profiler.ledger.traces) == 1


def test_state_is_what_the_running_step_is(tmp_path: Path, train_step: TrainStep) -> None:
    profiler = MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=1, repeat=1)
    states = [profiler.state]
    with profiler:
        for _ in range(4):
            states.append(profiler.state)
            train_step()
            profiler.step()
    states.append(profiler.state)

    stopped = ScheduleState.STOPPED
    wait, warmup, active = ScheduleState.WAIT, ScheduleState.WARMUP, ScheduleState.ACTIVE
    assert states == [stopped, wait, warmup, active, stopped, stopped]


def test_a_warm_up_records_nothing(tmp_path: Path, train_step: TrainStep) -> None:
    # given
    profiler = MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=1, repeat=1)
    told = []
    # when
    with profiler:
        for _ in range(4):
            told.append((profiler.is_off_for(0), profiler.is_off_for(1)))
            train_step()
            profiler.step()
    # then: in the steps themselves, and up to the next
    assert told == [(True, False), (True, False), (False, False), (True, True)]


def test_a_profiler_of_the_user_goes_first(
    tmp_path: Path, train_step: TrainStep, caplog: pytest.LogCaptureFixture
) -> None:
    # given a torch profiler of the user's own around the loop
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=0, active=1, repeat=1)

    # when tbmem's window comes
    with caplog.at_level(logging.WARNING, "tbmem"), torch.profiler.profile() as users:
        _run(profiler, train_step, 2)

    # then the user's has its records, and ours comes later, with one line
    assert users.events()
    assert profiler.ledger.traces == []
    assert [record.getMessage() for record in caplog.records] == [
        "profiler: another torch profiler is running at step 1; window 1 is postponed by 1 step"
    ]


def test_steps_inside_of_a_backward_pass_have_no_windows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # given steps that are counted in a gradient's hook, where torch crashes when a profile begins or stops
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=0, active=1, repeat=1, skip_first=1)
    weight = torch.nn.Parameter(torch.ones(4))

    def after_gradient(_weight: torch.Tensor) -> None:
        profiler.step()

    weight.register_post_accumulate_grad_hook(after_gradient)

    with caplog.at_level(logging.WARNING, "tbmem"), profiler:
        for _ in range(5):
            (weight * 2).sum().backward()

    # then none is recorded, which is said once
    assert profiler.ledger.traces == []
    assert caplog.text.count("steps end inside of a backward pass") == 1


def test_two_profilers_at_once_take_turns(tmp_path: Path, train_step: TrainStep) -> None:
    first = MemoryProfiler(folder=tmp_path / "a", wait=0, warmup=1, active=1, repeat=1)
    second = MemoryProfiler(folder=tmp_path / "b", wait=0, warmup=1, active=1, repeat=2)

    with first, second:
        for _ in range(5):
            train_step()
            first.step()
            second.step()

    assert (len(first.ledger.traces), len(second.ledger.traces)) == (1, 1)


def test_a_disk_that_stays_full_is_one_warning_and_the_end_says_what_is_missing(
    tmp_path: Path, train_step: TrainStep, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a disk that has no room for traces
    def refuse(source: BinaryIO, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tbmem.runtime.profiling.window_files.compress", refuse)
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=1, active=1, repeat=3)

    # when three windows are due
    with caplog.at_level(logging.WARNING, "tbmem"):
        _run(profiler, train_step, 8)

    # then the training went on, there is one warning and one line at the end, and no half file
    first, last = caplog.messages
    assert "No space left on device" in first
    assert last.endswith("window 1, window 2, window 3")
    assert not list(tmp_path.glob("*.partial*"))
    assert profiler.ledger.traces == []


def test_the_profilers_records_do_not_outlive_the_window(tmp_path: Path) -> None:
    # given a heap whose size is known
    from tbmem.sources.counters.malloc import MallocHeap

    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(20)])
    heap = MallocHeap.of_this_process()
    if not heap.usable:
        pytest.skip("malloc here has no counters")

    def train() -> None:
        for _ in range(10):
            model(torch.randn(4, 32)).sum().backward()

    def window(name: str) -> int:
        profiler = MemoryProfiler(folder=tmp_path / name, wait=0, warmup=0, active=2, repeat=1)
        _run(profiler, train, 2)
        heap._not_before = 0.0
        reading = heap.read()
        assert reading is not None
        return reading[0]

    # when windows follow one another
    sizes = [window(str(number)) for number in range(4)]

    # then the heap does not grow with them
    assert sizes[-1] - sizes[1] < 2 << 20


def test_cost_counts_what_the_clock_says(
    tmp_path: Path, train_step: TrainStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a clock that moves a second per reading
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    for module in ("profiler", "profiling.window"):
        stand_in = SimpleNamespace(perf_counter=clock, time_ns=time.time_ns)
        monkeypatch.setattr(f"tbmem.runtime.{module}.time", stand_in)
    profiler = MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=2, repeat=1)
    _run(profiler, train_step, 6)

    cost = profiler.ledger.cost()
    assert cost is not None
    assert (cost.windows, cost.recorded_steps) == (1, 2)
    assert cost.recorded_step_seconds == 1.0
    assert cost.plain_step_seconds == 1.0
    assert cost.slowdown == 1.0
    assert cost.trace_bytes == sum(path.stat().st_size for path in tmp_path.iterdir() if path.is_file())


def test_disabled_does_nothing(tmp_path: Path, train_step: TrainStep) -> None:
    profiler = MemoryProfiler(ProfilingConfig(enabled=False), tmp_path)

    _run(profiler, train_step, 5)

    assert not [path for path in tmp_path.iterdir() if path.is_file()]
    assert profiler.short_run() is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"actve": 3}, "profiling.actve: unknown key; did you mean profiling.active?"),
        ({"active": 0}, "profiling.active must be at least 1"),
        ({"active": "many"}, "profiling.active"),
    ],
)
def test_a_wrong_override_is_one_line(override: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MemoryProfiler(**override)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_serves_one_run(tmp_path: Path, train_step: TrainStep) -> None:
    profiler = MemoryProfiler(folder=tmp_path)
    _run(profiler, train_step, 1)

    with pytest.raises(UsageError, match="make a new one"):
        profiler.start()


def test_a_forked_child_leaves_it_alone(tmp_path: Path, train_step: TrainStep) -> None:
    # given a profiler in its window
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=1, active=2, repeat=1)
    with profiler:
        train_step()
        profiler.step()
        # when a child is forked that steps and stops
        child = os.fork()
        if child == 0:
            profiler.step()
            profiler.stop()
            os._exit(0 if profiler._window is not None else 1)
        # then the child did nothing, and the parent goes on
        assert os.waitpid(child, 0)[1] == 0
        for _ in range(2):
            train_step()
            profiler.step()
    assert len(profiler.ledger.traces) == 1
