"""What would have made a failed request fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.allocator.what_if import WhatIf, what_ifs
from tbmem.model.category import Category, Phase
from tbmem.present.views.remedies import remedies_view
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.units import GIB, MIB
from tests.analysis.allocator.test_what_if import in_pieces
from tests.analysis.timelines import recording
from tests.present.views.recordings import view_of


def test_settings_under_which_the_request_fits_come_first() -> None:
    # given 70 MiB free in two pieces, when 70 failed
    subject = view_of(timeline_of_snapshot(in_pieces(AllocatorSettings(), 70 * MIB)))
    # when
    remedies = remedies_view(subject, None, 70 * MIB)
    # then
    fits = [(change["change"], change["fits"]) for change in remedies["changes"]]
    assert fits[0] == ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", True)
    assert ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256", False) in fits
    assert remedies["note"] == ""


def test_a_setting_that_needs_more_than_the_device_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a replay that serves the request, after it has reserved more than the device would have given
    def beyond(*arguments: Any) -> list[WhatIf]:
        replays = what_ifs(*arguments)
        room = [replace(request, room=0) for request in replays[0].refused]
        return [replace(replays[0], refused=tuple(room))]

    monkeypatch.setattr("tbmem.present.views.remedies.what_ifs", beyond)
    subject = view_of(timeline_of_snapshot(in_pieces(AllocatorSettings(), 70 * MIB)))

    remedies = remedies_view(subject, None, 70 * MIB)

    assert {change["fits"] for change in remedies["changes"] if "CONF" in change["change"]} == {False}


def test_the_batch_is_made_smaller_by_the_share_that_is_missing() -> None:
    # given 800 bytes that grow with the batch, and 200 that do not
    rows = (
        {"bytes": 200, "begin": 0, "category": Category.PARAMETER, "phase": Phase.SETUP},
        {"bytes": 800, "begin": 1, "category": Category.ACTIVATION, "phase": Phase.FORWARD},
        {"bytes": 1, "begin": 2, "end": 3, "category": Category.TEMPORARY, "phase": Phase.FORWARD},
    )
    subject = view_of(recording(*rows))
    # when 100 bytes were missing
    (change,) = remedies_view(subject, None, 100)["changes"]
    # then
    assert "a batch smaller by 13 %" in change["change"]
    assert change["fits"] is True
    # and no batch is small enough for ten times as much
    assert remedies_view(subject, None, 1000)["changes"] == []


def test_alternatives_of_the_estimate_have_their_figures() -> None:
    # given
    estimate = {
        "alternatives": [
            {"change": "batch 4", "reserved": 3 * GIB, "fit": "does_not_fit"},
            {"change": "checkpointing", "reserved": 2 * GIB, "fit": "fits"},
            "damaged",
        ]
    }
    # when
    remedies = remedies_view(None, estimate, 5)
    # then
    assert [(change["change"], change["fits"]) for change in remedies["changes"]] == [
        ("checkpointing", True),
        ("batch 4", False),
    ]
    assert remedies["changes"][0]["effect"] == "2.00 GiB reserved by the estimate"
    assert "No snapshot was written" in remedies["note"]


def test_a_large_snapshot_is_not_replayed_while_a_page_waits() -> None:
    subject = view_of(timeline_of_snapshot(in_pieces(AllocatorSettings(), 70 * MIB)))

    remedies = remedies_view(subject, None, 70 * MIB, limit=1)

    assert [change for change in remedies["changes"] if "ALLOC_CONF" in change["change"]] == []
    assert (
        remedies["note"]
        == "To replay the allocator's settings: tbmem analyze w.tbmem.npz --what-if expandable_segments:True"
    )
