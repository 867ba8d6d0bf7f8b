"""What follows from the figures of a run's end."""

from __future__ import annotations

import pytest

from tbmem.model.run_summary import Peak, ProfilerCost


@pytest.mark.parametrize(
    ("total", "headroom"),
    [(100, 30), (70, 0), (60, 0), (None, None)],
    ids=["room", "full", "counted beyond the capacity", "unknown capacity"],
)
def test_the_headroom_is_what_the_peak_left(total: int | None, headroom: int | None) -> None:
    assert Peak(device="cuda:0", bytes=70, step=3, counter="allocated", total=total).headroom == headroom


@pytest.mark.parametrize(("plain", "slowdown"), [(0.2, 1.5), (None, None), (0.0, None)])
def test_the_slowdown_needs_a_step_without_the_profiler(plain: float | None, slowdown: float | None) -> None:
    cost = ProfilerCost(
        windows=1,
        recorded_steps=2,
        recorded_step_seconds=0.3,
        plain_step_seconds=plain,
        writing_seconds=0.1,
        host_bytes=None,
        trace_bytes=0,
    )

    assert cost.slowdown == (None if slowdown is None else pytest.approx(slowdown))
