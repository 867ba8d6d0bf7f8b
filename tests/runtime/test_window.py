"""Who else records: a window goes out of the way of every other profiler of torch."""

from __future__ import annotations

import torch

from tbmem.runtime.window import profiler_is_busy


def test_a_profiler_in_its_warm_up_is_one_too() -> None:
    # given: torch crashes the process when another one is prepared meanwhile
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule):
        # when / then
        assert profiler_is_busy()
    assert not profiler_is_busy()
