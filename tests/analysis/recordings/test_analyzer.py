"""Hand-built recordings and what they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.category import Category
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


def test_without_a_book_categories_are_inferred_and_it_is_said() -> None:
    rows: list[dict[str, Any]] = [
        {"bytes": 8, "begin": 0, "stack": (("/x/torch/optim/adamw.py", 5, "_init_group"),)},
        {"bytes": 4, "begin": 1},
    ]
    analysis = analyze(recording(*rows))

    categories = {share.name: share for share in analysis.devices[0].by_category}
    assert categories["OPTIMIZER_STATE"].basis == "inferred"
    assert (categories["UNKNOWN"].bytes, categories["UNKNOWN"].basis) == (4, "none")
    assert any("inferred" in note for note in analysis.notes)


def test_an_empty_recording() -> None:
    analysis = analyze(recording())

    assert analysis.main.peak.bytes == 0
    assert analysis.main.by_category == ()
    assert json.loads(json.dumps(analysis.to_dict()))["devices"]["cpu"]["top"] == []


@pytest.mark.parametrize(
    ("name", "told"), [("group0.param3", True), ("SGD2.group1.param0.exp_avg", True), ("group0.weight", False)]
)
def test_names_of_a_model_that_nobody_watched_are_explained(name: str, told: bool) -> None:
    note = (-1, 7, 800, Category.PARAMETER, name)

    analysis = analyze(recording(*training_step(3, 0)), book=book(note))

    assert any("watch(model, optimizer)" in each for each in analysis.notes) is told
