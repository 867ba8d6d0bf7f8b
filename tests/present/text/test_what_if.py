"""Replays under other settings as a table."""

from __future__ import annotations

import json
from dataclasses import replace

from tbmem.analysis.allocator.what_if import FailedRequest, ReplayFigures, WhatIf
from tbmem.present.text.what_if import what_if_lines, what_if_view
from tbmem.units import GIB, MIB

BEFORE = ReplayFigures(
    settings="torch's defaults",
    peak_allocated=6 * GIB,
    peak_reserved=8 * GIB,
    end_reserved=4 * GIB,
    end_cached=GIB,
    end_fragmented=512 * MIB,
    segments=40,
)
AFTER = replace(BEFORE, settings="expandable_segments:True", peak_reserved=6 * GIB, segments=7)
REPLAY = WhatIf(device="cuda:0", recorded_reserved=8 * GIB, before=BEFORE, after=(AFTER,))


def _text(replay: WhatIf) -> str:
    return "\n".join(what_if_lines("x", [replay]))


def test_a_row_for_each_setting() -> None:
    heading, _, _, before, after, *_ = what_if_lines("x", [replace(REPLAY, gpu="h100")])

    assert heading == "x, GPU 0, 8.00 GiB were reserved; replayed on h100"
    assert before.strip().startswith("torch's defaults")
    assert "the recording's" in before
    assert "75.0 %" in before
    assert "-2.00 GiB" in after
    assert "100.0 %" in after


def test_a_replay_that_ran_out_of_memory_is_no_saving() -> None:
    failed = replace(AFTER, failure="no room", replayed=0.25)

    text = _text(replace(REPLAY, after=(failed,)))

    assert "not to compare" in text
    assert "-2.00 GiB" not in text
    assert (
        "out of memory under expandable_segments:True after 25 % of the recording, where its row ends: no room." in text
    )


def test_the_conclusion_names_the_best_setting() -> None:
    worse = replace(AFTER, settings="max_split_size_mb:128", peak_reserved=9 * GIB)

    text = _text(replace(REPLAY, after=(worse, AFTER)))

    assert "expandable_segments:True lowers the peak of reserved memory by 2.00 GiB (25.0 %).\n" in text
    assert "Settings can save little" not in text
    assert "None of the other settings lowers" in _text(replace(REPLAY, after=(worse,)))
    # and where a replay ended before there is none
    assert "lowers" not in _text(replace(REPLAY, before=replace(BEFORE, failure="no room")))


def test_where_almost_all_is_allocated_settings_can_save_little() -> None:
    text = _text(replace(REPLAY, before=replace(BEFORE, peak_allocated=8_000 * MIB)))

    assert "Settings can save little here: under the recording's own 97.7 % of it is allocated." in text


def test_a_request_that_failed_fits_or_not() -> None:
    refused = (FailedRequest(requested=70 * MIB, room=100 * MIB),)
    before, after = replace(BEFORE, served=(False,)), replace(AFTER, served=(True,))
    replay = replace(REPLAY, refused=refused, before=before, after=(after,))

    assert "70.00 MiB failed when 100.00 MiB could be reserved in all; it fits under expandable_seg" in _text(replay)
    assert "does not fit under the other settings" in _text(replace(replay, after=(replace(after, served=(False,)),)))
    assert "so it cannot tell" in _text(replace(replay, before=replace(before, served=(True,))))
    # and a replay that ended before it says nothing
    assert "70.00 MiB" not in _text(replace(replay, after=(replace(after, served=()),)))


def test_json() -> None:
    view = json.loads(json.dumps(what_if_view("x", [REPLAY])))

    assert view["name"] == "x"
    assert view["devices"][0]["after"][0]["peak_reserved"] == 6 * GIB
