"""The device and the range that an answer is about."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.errors import UsageError
from tbmem.present.views.recording_view import select_range
from tests.present.views.recordings import two_steps


def test_a_device_by_name_and_the_main_one_without() -> None:
    recorded = two_steps()

    assert recorded.device(None) is recorded.device("cpu") is recorded.analysis.main
    with pytest.raises(UsageError, match="device=cuda:3: w.tbmem.npz has cpu"):
        recorded.device("cuda:3")


def test_without_bounds_it_is_the_whole_recording() -> None:
    shown = select_range(two_steps(), 0, "event")

    assert shown.is_full
    assert (shown.before, shown.last) == (-1, 19)
    assert shown.axis_info()["range"] == shown.axis_info()["extent"]


def test_bounds_are_clipped_to_the_recording() -> None:
    recorded = two_steps()

    assert select_range(recorded, 0, "event", -5, 1e9).is_full
    part = select_range(recorded, 0, "event", 5, 1e9)
    assert (part.is_full, part.begin, part.last) == (False, 5, 19)
    assert part.x(np.array([0, 7])) == [5, 7]


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(UsageError, match="from=5 lies after to=1"):
        select_range(two_steps(), 0, "event", 5, 1)


def test_columns_are_of_equal_width() -> None:
    shown = select_range(two_steps(), 0, "event", 10, 14)

    # of two columns each has half of the range; what lies outside of it belongs to the nearest
    assert shown.columns(np.array([0, 10, 11, 12, 14, 19]), 2).tolist() == [0, 0, 0, 1, 1, 1]


def test_times_are_milliseconds_since_the_recording_began() -> None:
    recorded = two_steps()
    origin = recorded.clock(0).origin_ns

    shown = select_range(recorded, 0, "time")

    assert shown.x_of_time(np.array([origin, origin + 2_000_000])).tolist() == [0.0, 2.0]
