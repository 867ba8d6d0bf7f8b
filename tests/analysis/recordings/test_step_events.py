"""Steps as ranges of events."""

from __future__ import annotations

from tbmem.analysis.recordings.step_events import StepEvents, steps_of
from tests.analysis.plots.test_folded_steps import training
from tests.analysis.timelines import recording


def test_numbered_steps() -> None:
    timeline = recording(*training(4, 0), *training(5, 10), {"bytes": 1, "begin": 20, "step": -1})

    assert steps_of(timeline, 0) == [StepEvents(4, 0, 10), StepEvents(5, 10, 20)]


def test_several_optimizers_step_in_one_numbered_step() -> None:
    # given two steps, in each of which three optimizers step
    six = [part for at in range(6) for part in training(4 + at // 3, 10 * at)]

    assert steps_of(recording(*six), 0) == [StepEvents(4, 0, 30), StepEvents(5, 30, 60)]


def test_without_numbers_a_step_ends_with_the_optimizers_phase() -> None:
    # given three steps, of which the last ran out of memory in its backward pass
    timeline = recording(*training(-1, 0), *training(-1, 10), *training(-1, 20, ends=False))
    # then
    assert steps_of(timeline, 0) == [StepEvents(1, 0, 10), StepEvents(2, 10, 20), StepEvents(3, 20, 29)]


def test_a_recording_without_either_has_no_steps() -> None:
    assert steps_of(recording({"bytes": 1, "begin": 0}), 0) == []
    assert steps_of(recording(), 0) == []
