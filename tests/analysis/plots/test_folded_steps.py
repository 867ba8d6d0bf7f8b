"""Steps of recordings built by hand, laid over each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbmem.analysis.plots.folded_steps import folded_steps, lines_of_steps
from tbmem.analysis.recordings.step_events import steps_of
from tbmem.model.category import Phase
from tbmem.model.timeline import AllocationTimeline
from tests.analysis.timelines import recording

MIB = 1 << 20
LINE = (("/home/me/train.py", 10, "f"),)


def training(number: int, at: int, activation: int = 100, kept: int = 0, ends: bool = True) -> list[dict[str, Any]]:
    """Events 0 to 9 of a step: an activation, a gradient, a temporary of the optimizer; sizes in MiB."""
    rows = [
        {"bytes": activation * MIB, "begin": at, "end": at + 4, "phase": Phase.FORWARD, "stack": LINE},
        {"bytes": 40 * MIB, "begin": at + 2, "end": at + 8, "phase": Phase.BACKWARD},
    ]
    if kept:
        rows.append({"bytes": kept * MIB, "begin": at + 1, "phase": Phase.FORWARD, "stack": LINE})
    if ends:
        rows.append({"bytes": 10 * MIB, "begin": at + 6, "end": at + 9, "phase": Phase.OPTIMIZER})
    return [{**row, "step": number} for row in rows]


def _fold(timeline: AllocationTimeline, columns: int = 10) -> Any:
    return folded_steps(timeline, 0, timeline.curve(0), steps_of(timeline, 0), columns)


def test_equal_steps_do_not_differ_though_one_has_more_events() -> None:
    # given a step with many more events in its forward pass
    many = [{"bytes": 8, "begin": 10 + at, "end": 11 + at, "step": 2, "phase": Phase.FORWARD} for at in range(0, 40, 2)]
    timeline = recording(*training(1, 0), *many, *training(2, 50), *training(3, 60))
    # when
    folded = _fold(timeline)
    # then they are aligned where the backward pass and the optimizer begin
    assert folded.edges == pytest.approx((2.0, 6.0), abs=0.5)
    assert not folded.differs[:, 2:].any()


def test_a_leak_lifts_every_later_step() -> None:
    folded = _fold(recording(*(row for number in range(5) for row in training(number, 10 * number, kept=4))))

    begins = folded.highest[:, 0] // MIB
    assert begins.tolist() == [100, 104, 108, 112, 116]
    # only the middle one is the typical one
    assert [bool(row.all()) for row in folded.differs] == [True, True, False, True, True]


def test_a_spike_differs_where_it_happens() -> None:
    folded = _fold(
        recording(*(row for n in range(5) for row in training(n, 10 * n, activation=500 if n == 3 else 100)))
    )

    assert [bool(row.any()) for row in folded.differs] == [False, False, False, True, False]
    # and after the activation is free again it is as the others
    assert folded.differs[3].tolist() == [True] * 4 + [False] * 6


def test_a_step_that_was_not_finished_ends_where_it_ended() -> None:
    timeline = recording(*training(-1, 0), *training(-1, 10), *training(-1, 20, activation=900, ends=False))

    folded = _fold(timeline)

    assert folded.highest[2, 0] == 900 * MIB
    assert np.isnan(folded.highest[2, 6:]).all()
    assert not folded.differs[2, 6:].any()
    assert not np.isnan(folded.typical).any()


def test_lines_that_keep_memory_or_need_more_in_one_step() -> None:
    # given a line that keeps 4 MiB each step, and needs 500 more in one
    timeline = recording(*(row for n in range(4) for row in training(n, 10 * n, 600 if n == 2 else 100, kept=4)))
    # when
    (line,) = lines_of_steps(timeline, 0, steps_of(timeline, 0), np.array([0]), limit=5)
    # then
    assert [size // MIB for size in line.allocated] == [104, 104, 604, 104]
    assert (line.kept_each // MIB, line.excess // MIB) == (4, 500)


def test_lines_that_do_the_same_in_each_step_are_left_out() -> None:
    timeline = recording(*(row for number in range(4) for row in training(number, 10 * number)))

    assert lines_of_steps(timeline, 0, steps_of(timeline, 0), np.array([0]), limit=5) == []
