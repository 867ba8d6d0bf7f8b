"""Steps of recordings made up by hand, cut into phases."""

from __future__ import annotations

from tbmem.analysis.estimates.step_curves import by_category_at_peak, phase_curves, steps_of
from tbmem.model.category import Category, Phase
from tests.analysis.timelines import recording, training_step


def test_a_phase_begins_at_its_first_allocation_and_ends_where_the_next_begins() -> None:
    # given two steps of 10 events, in each of which the backward pass begins at event 4
    timeline = recording(*training_step(0, 0), *training_step(7, 10))

    steps = steps_of(timeline, 0)

    assert [step.number for step in steps] == [0, 7]
    assert [tuple(span) for span in steps[1].spans] == [("FORWARD", 10, 14), ("BACKWARD", 14, 20)]


def test_a_step_without_phases_is_one_span_and_a_recording_without_steps_has_none() -> None:
    bare = recording({"bytes": 8, "begin": 0, "end": 2, "step": 3}, {"bytes": 8, "begin": 1, "step": 3})

    assert [tuple(span) for span in steps_of(bare, 0)[0].spans] == [("OTHER", 0, 3)]
    assert steps_of(recording({"bytes": 8, "begin": 0}), 0) == []


def test_the_first_step_is_the_one_that_allocates_the_state() -> None:
    state = {"bytes": 90, "begin": 8, "step": 0, "phase": Phase.OPTIMIZER, "category": Category.OPTIMIZER_STATE}
    later = {"bytes": 9, "begin": 18, "step": 1, "phase": Phase.OPTIMIZER, "category": Category.OPTIMIZER_STATE}

    steps = steps_of(recording(*training_step(0, 0), state, *training_step(1, 10), later), 0)

    assert [step.is_first for step in steps] == [True, False]
    assert not any(step.is_first for step in steps_of(recording(*training_step(0, 0)), 0))


def test_the_curve_of_a_phase_begins_at_the_level_before_it() -> None:
    timeline = recording(*training_step(0, 0))
    (step,) = steps_of(timeline, 0)

    forward, backward = phase_curves(timeline.curve(0), timeline.reserved_curve(0), step, 50)

    # 64 + 1000 + 16, then the backward pass adds 400 and 32
    assert (forward.peak, backward.peak) == (1080, 1496)
    assert (forward.bytes[0], backward.bytes[0]) == (0, 1064)
    assert (forward.at[0], backward.at[0], max(backward.at) < 1) == (0, 0, True)
    assert (forward.share, backward.share) == (0.4, 0.6)
    assert forward.reserved is None


def test_categories_at_the_peak_have_the_names_of_the_enum() -> None:
    timeline = recording(
        {"bytes": 10, "begin": 0, "category": Category.PARAMETER}, {"bytes": 30, "begin": 1, "category": Category.INPUT}
    )

    assert list(by_category_at_peak(timeline, 0).items()) == [("INPUT", 30), ("PARAMETER", 10)]
