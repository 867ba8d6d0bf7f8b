"""Sums of a brushed range."""

from __future__ import annotations

from tbmem.present.views.range import brushed_view
from tests.present.views.recordings import two_steps


def test_the_whole_recording() -> None:
    recorded = two_steps()
    rows = recorded.analysis.timeline.rows

    whole = brushed_view(recorded, axis="event")

    assert whole["allocated"]["count"] == int((rows.alloc_event >= 0).sum())
    assert whole["freed"]["bytes"] == int(rows.bytes[rows.free_event >= 0].sum())
    assert whole["at_begin"] == 50
    assert whole["at_end"] == whole["alive"]["bytes"] + whole["throughout"]["bytes"]
    assert whole["highest"] == recorded.analysis.main.peak.bytes


def test_a_part_of_it() -> None:
    # given the second step: 64 bytes in event 10, 1000 in 11, 16 in 12, which is freed in 13, and 400 in 14
    part = brushed_view(two_steps(), axis="event", begin=12, end=14)

    assert (part["allocated"]["count"], part["allocated"]["bytes"]) == (2, 416)
    assert part["freed"]["bytes"] == 16
    assert part["alive"]["bytes"] == 400
    assert part["throughout"]["bytes"] == 50 + 64 + 1000
    assert sum(part["allocated"]["by_category"]) == 416
    assert part["allocated"]["largest"]["bytes"] == [400, 16]


def test_the_list_is_cut_and_the_sum_is_not() -> None:
    whole = brushed_view(two_steps(), axis="event", limit=1)

    assert whole["allocated"]["largest"]["bytes"] == [1000]
    assert whole["allocated"]["count"] == 10
