"""Who else records, and what an interrupt leaves on: nothing."""

from __future__ import annotations

import gc
import gzip
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem import MemoryCallback, MemoryProfiler
from tbmem.runtime.profiling.window import profiler_is_busy
from tbmem.sources.torch_state.profiler_state import OtherProfilers


def test_a_profiler_in_its_warm_up_is_one_too() -> None:
    # given: torch crashes the process when another one is prepared meanwhile
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule):
        # when / then
        assert profiler_is_busy()
    assert not profiler_is_busy()


def test_an_interrupt_while_recording_begins_leaves_nothing_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given: torch records already when Ctrl-C comes
    start = torch.profiler.profile.start_trace

    def interrupted(self: torch.profiler.profile) -> None:
        start(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.profiler.profile, "start_trace", interrupted)
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=0, active=1, repeat=1)
    # when
    with pytest.raises(KeyboardInterrupt):
        profiler.start()
    profiler.stop(KeyboardInterrupt())
    # then
    assert not profiler_is_busy()


def test_a_window_leaves_nothing_to_the_garbage_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given: what is freed by the collector only lies in the heap until it comes, where the next window's buffers were
    made: list[weakref.ref[Any]] = []
    for kind in (torch.profiler.profile, OtherProfilers):
        create = kind.__init__

        def noted(self: Any, *args: Any, _create: Any = create, **kwargs: Any) -> None:
            made.append(weakref.ref(self))
            _create(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", noted)
    gc.disable()
    try:
        # when
        with MemoryProfiler(folder=tmp_path, wait=1, warmup=1, active=1, repeat=2) as profiler:
            for _ in range(6):
                torch.ones(2, 2).sum()
                profiler.step()
        # then
        assert len(made) == 4
        assert [there() for there in made] == [None] * 4
    finally:
        gc.enable()


def test_a_trace_shows_the_programs_calls_and_not_the_evaluation_of_samples(
    tmp_path: Path, train_step: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: short steps, which are evaluated in batches, a window after many of them, and a machine fast enough for it
    monkeypatch.setattr("tbmem.runtime.monitor._WINDOW_SECONDS", 3600.0)
    profiling = {"wait": 395, "warmup": 2, "active": 3, "repeat": 1}
    # when
    with MemoryCallback(run={"logdir": str(tmp_path)}, profiling=profiling, output={"console": False}) as callback:
        for _ in range(401):
            train_step()
            callback.step()
    # then
    (trace,) = tmp_path.rglob("*.pt.trace.json.gz")
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    calls = [event["name"] for event in events if event.get("cat") == "python_function"]
    assert any("conftest.py" in name for name in calls)
    own_work = [name for name in calls if any(part in name for part in ("analysis/detector", "zipfile", "present/"))]
    assert own_work == []
