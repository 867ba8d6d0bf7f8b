"""Events on a time axis, and back."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.analysis.plots.time_axis import time_axis_of
from tests.analysis.timelines import EVENT_NS, recording

ROWS = [{"bytes": 10, "begin": begin, "end": begin + 5} for begin in (0, 2, 4)]


def test_there_and_back() -> None:
    clock = time_axis_of(
        recording(*({"bytes": 1, "begin": begin, "end": end} for begin, end in ((0, 5), (1, 3), (2, 4)))), 0
    )

    x = clock.x(np.array([-1, 0, 1, 3, 5]), "time")

    assert x.tolist() == pytest.approx([0, 0, EVENT_NS / 1e6, 3 * EVENT_NS / 1e6, 5 * EVENT_NS / 1e6])
    assert clock.extent("time") == (0, pytest.approx(5 * EVENT_NS / 1e6))
    # a range has the events that lie in it, its ends included
    assert clock.events_in(x[2], x[3], "time") == (0, 3)
    assert clock.events_in(x[2] + 1e-5, x[4], "time") == (1, 5)
    assert clock.events_in(1, 3, "event") == (0, 3)
    assert clock.events_in(-1, 5, "event") == (-1, 5)


def test_without_times_events_are_the_clock() -> None:
    timeline = recording({"bytes": 1, "begin": 0, "end": 1})
    blind = timeline.with_columns(alloc_ns=-1, free_ns=-1)

    clock = time_axis_of(blind, 0)

    assert clock.axes == ("event",)
    assert clock.extent("event") == (-1, 1)


def test_a_long_pause_is_no_good_axis() -> None:
    assert time_axis_of(recording(*ROWS), 0).axes == ("time", "event")
    late = {"bytes": 1, "begin": 10, "alloc_ns": 10**12}
    assert time_axis_of(recording(*ROWS, late), 0).axes == ("event", "time")


def test_nothing_happened() -> None:
    clock = time_axis_of(recording({"bytes": 5}), 0)

    assert clock.extent("event") == (-1, -1)
    assert clock.events_in(-1, -1, "event") == (-1, -1)
