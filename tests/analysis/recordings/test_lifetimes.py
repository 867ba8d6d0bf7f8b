"""Lifetime classes of hand-built recordings, and what accumulates in them."""

from __future__ import annotations

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.breakdown import peak_state
from tbmem.analysis.recordings.lifetimes import lifetimes_of
from tbmem.model.timeline_tables import LOST
from tests.analysis.timelines import EVENT_NS, recording, training_step


def test_a_class_has_its_bytes_at_the_peak_and_its_median_lifetime() -> None:
    # given three allocations within a step that live 1, 3 and 4 events, of which the last two meet at the peak,
    # and one whose free is missing
    rows = [
        {"bytes": 10, "begin": 0, "end": 1, "step": 0},
        {"bytes": 20, "begin": 2, "end": 5, "step": 0},
        {"bytes": 30, "begin": 3, "end": 7, "step": 0},
        {"bytes": 1, "begin": 4, "end": LOST, "free_ns": -1, "step": 0},
        {"bytes": 5, "begin": 8, "step": 0},
    ]
    # when
    found = {one.name: one for one in lifetimes_of(peak_state(recording(*rows), 0))}
    # then
    within = found["within a step"]
    assert (within.count, within.bytes, within.peak_bytes, within.median_ns) == (3, 60, 50, 3 * EVENT_NS)
    assert (found["free not recorded"].peak_bytes, found["free not recorded"].median_ns) == (1, -1)
    assert list(found) == ["within a step", "free not recorded", "to the end"]


def test_frees_without_known_steps_are_in_neither_class() -> None:
    rows = [{"bytes": 4, "begin": 0, "end": 1}, {"bytes": 8, "begin": 2, "end": 4, "step": 0}, {"bytes": 2, "begin": 3}]

    found = {one.name: one.bytes for one in lifetimes_of(peak_state(recording(*rows), 0))}

    assert found == {"freed, step not known": 12, "to the end": 2}


def test_lifetimes() -> None:
    rows = [{"bytes": 5}, {"bytes": 6, "end": 0}, *training_step(0, 1), {"bytes": 7, "begin": 11, "step": 0}]
    rows += [{"bytes": 9, "begin": 12, "step": 0, "end": 14}, {"bytes": 1, "begin": 13, "step": 1}]
    found = {one.name: (one.count, one.bytes) for one in analyze(recording(*rows)).devices[0].lifetimes}

    assert found == {
        "whole recording": (1, 5),
        "from before, freed": (1, 6),
        "within a step": (5, 1512),
        "to the end": (2, 8),
        "across steps": (1, 9),
    }


def test_what_piles_up_in_every_step_is_a_suspect() -> None:
    rows = [row for step in range(4) for row in training_step(step, 10 * step, kept=True)]
    device = analyze(recording(*rows)).devices[0]

    [suspect] = device.suspects
    assert (suspect.bytes, suspect.bytes_per_step, suspect.generations) == (4000, 1000, 4)
    assert suspect.line == "me/train.py:10 loss_of"
    assert device.recommendations[0].trigger == "bytes_per_step"
    assert "me/train.py:10" in device.recommendations[0].setting


def test_what_piles_up_in_varying_sizes_is_a_suspect() -> None:
    stack = (("/home/me/train.py", 7, "log"),)
    rows = [{"bytes": 100 + step, "begin": step, "step": step, "stack": stack} for step in range(4)]

    [suspect] = analyze(recording(*rows)).devices[0].suspects

    assert (suspect.bytes, suspect.count, suspect.generations) == (406, 4, 4)


@pytest.mark.parametrize("kept", [(False,) * 4, (True, True, False, True), (True, True, True, False)])
def test_what_is_freed_now_and_then_is_none(kept: tuple[bool, ...]) -> None:
    rows = [row for step, stays in enumerate(kept) for row in training_step(step, 10 * step, kept=stays)]

    assert analyze(recording(*rows)).devices[0].suspects == ()


def test_two_steps_tell_nothing() -> None:
    rows = [row for step in range(2) for row in training_step(step, 10 * step, kept=True)]
    analysis = analyze(recording(*rows))

    assert analysis.devices[0].suspects == ()
    # and it is said
    assert any(note.startswith("2 steps can be distinguished") for note in analysis.notes)
