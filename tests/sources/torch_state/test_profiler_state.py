"""State of torch's profiler: log levels, collectives and open ranges are left as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd.profiler import profile, record_function

from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
from tbmem.sources.torch_state.profiler_state import (
    OpenRanges,
    QuietTorch,
    _c10_level,
    let_collectives_settle,
)


def test_the_level_is_back_afterwards() -> None:
    level = _c10_level()
    if level is None:
        pytest.skip("this build of torch does not export its log level")
    before = level.value
    quiet = QuietTorch()

    quiet.begin()
    assert level.value == 2
    quiet.begin()
    quiet.end()
    quiet.end()

    assert level.value == before


def test_a_level_that_the_user_chose_for_kineto_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    with QuietTorch().starting_kineto():
        assert os.environ["KINETO_LOG_LEVEL"] == "0"
    assert os.environ["KINETO_LOG_LEVEL"] == "0"


def test_kinetos_variable_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    with QuietTorch().starting_kineto():
        assert "KINETO_LOG_LEVEL" in os.environ
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_kinetos_variable_is_gone_after_an_exception_in_the_line_that_would_remove_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    quiet = QuietTorch()
    # when a signal's handler raises there, and the recording is switched off later
    with monkeypatch.context() as patch:
        patch.setattr(quiet, "_restore_kineto", lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt), quiet.starting_kineto():
            pass
    assert "KINETO_LOG_LEVEL" in os.environ
    quiet.end()
    # then
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_what_a_range_imports_is_there_before_the_tracer_runs() -> None:
    # given a fresh process
    program = """
import sys, torch
from tbmem.sources.torch_state.profiler_state import import_ahead
import_ahead()
before = set(sys.modules)
with torch.profiler.record_function("range"):
    pass
print(sorted(set(sys.modules) - before))
"""
    # when
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # then
    assert done.stdout.strip() == "[]"


def test_collectives_settle_only_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a clock that notes how long is waited
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)

    # when no process group is there, and when one is
    let_collectives_settle()
    without = list(waited)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        waited.clear()
        let_collectives_settle()
    finally:
        dist.destroy_process_group()

    # then only the second waits: nobody else pays for torch's crash
    assert without == []
    assert waited == [0.005]


@pytest.fixture
def ranges() -> Iterator[OpenRanges]:
    ranges = OpenRanges()
    ranges.begin()
    yield ranges
    ranges.end()


def _named(events: Any, name: str) -> list[Any]:
    return [event for event in events if event.name == name]


def test_an_open_range_ends_with_the_recording(ranges: OpenRanges) -> None:
    # given a range in which a recording stops and the next one begins
    first, second = profile(), profile()
    first.__enter__()
    with record_function("whole step"):
        torch.ones(2)
        ranges.end_open()
        first.__exit__(None, None, None)
        second.__enter__()
    second.__exit__(None, None, None)
    # then it is in the first, with an end, and not in the second
    [event] = _named(first.function_events, "whole step")
    assert event.time_range.elapsed_us() > 0
    assert not _named(second.function_events, "whole step")


def test_a_range_that_ends_in_time_is_torchs_own_business(ranges: OpenRanges) -> None:
    with profile() as recording:
        with record_function("outer"), record_function("inner"):
            torch.ones(2)
        ranges.end_open()
    assert [len(_named(recording.function_events, name)) for name in ("outer", "inner")] == [1, 1]


def test_torchs_methods_are_back_afterwards_also_when_a_range_is_open() -> None:
    before = record_function.__enter__, record_function.__exit__
    ranges = OpenRanges()
    ranges.begin()
    with record_function("longer than the watch"):
        ranges.end()
    assert (record_function.__enter__, record_function.__exit__) == before


def test_another_tools_patch_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a tool that comes after us and stays longer
    for name in ("__enter__", "__exit__"):
        monkeypatch.setattr(record_function, name, getattr(record_function, name))  # brings torch's own back at the end
    ranges, seen = OpenRanges(), []
    ranges.begin()
    ours = record_function.__enter__

    def theirs(opened: record_function) -> Any:
        seen.append(opened.name)
        return ours(opened)

    record_function.__enter__ = theirs  # type: ignore[method-assign,assignment]
    # when
    ranges.end()
    # then
    with record_function("theirs"):
        pass
    assert record_function.__enter__ is theirs
    assert seen == ["theirs"]


def test_births_are_not_watched_where_steps_end_inside_of_a_backward_pass() -> None:
    births = ProfilerSurvivors()
    weight = torch.nn.Parameter(torch.ones(4))
    weight.register_post_accumulate_grad_hook(lambda parameter: births.begin(0))

    (weight * 2).sum().backward()

    report = births.finish()
    assert report.sites is None
    assert report.notes == ("steps end inside of a backward pass",)


_BIRTHS = """
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
births, kept = ProfilerSurvivors(), []
births.budget = 60
births.begin(0)
for number in range(6):
    with record_function("a step with its end"):
        kept.append(torch.ones(64, 64) * 2)
        births.mark(number)
assert births.finish().sites[0].generations == 4
"""
_WINDOWS = """
import sys
from tbmem import MemoryCallback
schedule = {"wait": 0, "warmup": 0, "active": 1, "repeat": 4}
with MemoryCallback(run={"logdir": sys.argv[1]}, profiling=schedule) as memory:
    for number in range(6):
        with record_function("a step with its end"):
            torch.ones(64, 64) * 2
            memory.step()
"""


@pytest.mark.parametrize("program", [_BIRTHS, _WINDOWS], ids=["births", "windows"])
def test_a_step_inside_of_a_range_does_not_write_into_freed_memory(program: str, tmp_path: Any) -> None:
    # given a malloc that gives blocks of some size back to the system at once: who writes there later is stopped
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "4096"}
    source = f"import torch\nfrom torch.profiler import record_function\n{program}"
    # when
    done = subprocess.run(
        [sys.executable, "-c", source, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=240
    )
    # then
    assert done.returncode != -signal.SIGSEGV, "torch wrote into a recording that was gone"
    assert done.returncode == 0, done.stderr
