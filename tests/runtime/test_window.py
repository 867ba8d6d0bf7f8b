"""Who else records, and what an interrupt leaves on: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tbmem import MemoryProfiler
from tbmem.runtime.window import profiler_is_busy


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
