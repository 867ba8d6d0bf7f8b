"""Hand-built recordings and what they mean."""

from __future__ import annotations

import json

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.category import Category, Phase
from tests.analysis.timelines import book, recording, training_step

NOTES = (
    (-1, 7, 800, Category.PARAMETER, "net.0.weight"),
    (-1, 8, 1600, Category.OPTIMIZER_STATE, "net.0.weight.exp_avg"),
    (4.5, 201, 1000, Category.ACTIVATION, "net.0"),
    (7.5, 400, 400, Category.GRADIENT, "net.0.weight"),
)


def test_a_training_with_an_address_book() -> None:
    # given a step of a training, its notes, and the address of its activation
    rows = training_step(3, 0)
    rows[1]["address"] = 201
    analysis = analyze(recording(*rows), book=book(*NOTES))

    # then every byte of the peak has a category
    device = analysis.devices[0]
    found = {share.name: share.bytes for share in device.by_category if share.bytes}
    assert found == {
        "OPTIMIZER_STATE": 1600,
        "ACTIVATION": 1000,
        "PARAMETER": 800,
        "GRADIENT": 400,
        "INPUT": 64,
        "AUTOGRAD_DETAIL": 32,
    }
    assert device.peak.bytes == sum(found.values())
    assert (device.peak.event, device.peak.step, device.peak.phase) == (5, 3, "BACKWARD")
    # and it is said how each is known, and what it was at most
    categories = {share.name: share for share in device.by_category}
    assert (categories["PARAMETER"].basis, categories["INPUT"].basis) == ("known", "inferred")
    assert (categories["TEMPORARY"].bytes, categories["TEMPORARY"].max_bytes) == (0, 16)
    assert categories["PARAMETER"].end_bytes == 800
    # and a note tells what was added
    assert "2.34 KiB" in analysis.notes[0]


def test_breakdowns_add_up_to_the_peak() -> None:
    timeline = recording(*training_step(0, 0), *training_step(1, 10))
    device = analyze(timeline).devices[0]

    for shares in (device.by_category, device.by_phase, device.by_module, device.by_line, device.by_operator):
        assert sum(share.bytes for share in shares) == device.peak.bytes
        assert sum(share.percent for share in shares) == pytest.approx(100, abs=0.01)
    assert sum(share.bytes for share in device.by_stack) == device.peak.bytes
    assert device.modules.bytes == device.peak.bytes
    assert {share.name for share in device.by_module} == {"(no module)", "Net_*.Linear_*"}
    assert device.by_line[0].name == "me/train.py:10 loss_of"


def test_without_a_book_categories_are_inferred_and_it_is_said() -> None:
    rows = [
        {"bytes": 8, "begin": 0, "stack": (("/x/torch/optim/adamw.py", 5, "_init_group"),)},
        {"bytes": 4, "begin": 1},
    ]
    analysis = analyze(recording(*rows))

    categories = {share.name: share for share in analysis.devices[0].by_category}
    assert categories["OPTIMIZER_STATE"].basis == "inferred"
    assert (categories["UNKNOWN"].bytes, categories["UNKNOWN"].basis) == (4, "none")
    assert any("inferred" in note for note in analysis.notes)


def test_bytes_without_a_row_are_unknown_and_counted() -> None:
    device = {"base_bytes": 500, "unlisted_bytes": 500}
    analysis = analyze(recording({"bytes": 8, "begin": 0, "phase": Phase.FORWARD}, device=device))

    found = {share.name: (share.bytes, share.count) for share in analysis.devices[0].by_category}
    assert found == {"UNKNOWN": (500, 0), "ACTIVATION": (8, 1)}


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


def test_an_empty_recording() -> None:
    analysis = analyze(recording())

    assert analysis.main.peak.bytes == 0
    assert analysis.main.by_category == ()
    assert json.loads(json.dumps(analysis.to_dict()))["devices"]["cpu"]["top"] == []


def test_the_json_has_the_figures_under_their_names() -> None:
    device = {
        "name": "cuda:1",
        "type": 1,
        "index": 1,
        "reserved_bytes": 4096,
        "allocated_bytes": 4000,
        "base_reserved_bytes": 1500,
    }
    analysis = analyze(recording(*training_step(0, 0), device=device), name="here", path="there")

    data = json.loads(json.dumps(analysis.to_dict()))

    assert (data["name"], data["path"], data["source"]) == ("here", "there", "trace")
    found = data["devices"]["1"]
    assert {"reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes", "peak_bytes"} <= found.keys()
    assert {"peak_event_index", "unmatched_frees", "fragmentation", "by_category", "top"} <= found.keys()
    assert (found["peak_bytes"], found["peak_reserved_bytes"], found["never_used_bytes"]) == (1496, 1500, 4)
    assert found["efficiency_percent"] == pytest.approx(99.733, abs=0.001)
    assert found["grade"] == "excellent"
    assert found["fragmentation"]["free_bytes"] == 96
    assert found["top"][0]["line"] == "me/train.py:10 loss_of"
