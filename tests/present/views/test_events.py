"""The allocator's log as a list."""

from __future__ import annotations

from pathlib import Path

from tbmem.present.views.events import events_view
from tbmem.sources.snapshot.reader import read_snapshot, timeline_of_snapshot
from tests.offline.snapshots import snapshot
from tests.present.views.recordings import view_of

RECORDING = view_of(timeline_of_snapshot(snapshot([1000, 5000], freed=[700])))


def test_events_are_listed_in_order_with_their_rows() -> None:
    answer = events_view(RECORDING)

    columns = answer["columns"]
    assert columns["event"] == sorted(columns["event"])
    assert answer["count"] == sum(answer["counts"].values()) == len(columns["event"])
    assert answer["counts"]["alloc"] == columns["action"].count("alloc") == 3
    first = columns["action"].index("alloc")
    assert columns["bytes"][first] == RECORDING.analysis.timeline.rows.bytes[columns["row"][first]]


def test_a_range_and_rare_events_only(corpus: Path) -> None:
    recording = view_of(read_snapshot(corpus / "snapshots/ZidongLiu__memory__2f29ac4.pickle"))

    everything, rare = events_view(recording), events_view(recording, rare=True)
    part = events_view(recording, axis="event", begin=10.0, end=19.0)

    assert part["count"] == 10
    assert everything["count"] == recording.analysis.timeline.devices[0].events
    assert set(rare["columns"]["action"]) == {"segment_alloc"}
    # the figures of all kinds are told in both
    assert rare["counts"] == everything["counts"]


def test_events_are_searched_sorted_and_paged() -> None:
    limits = events_view(RECORDING, search="alloc >900b", sort="bytes", order="desc")
    page = events_view(RECORDING, sort="event", order="desc", offset=1, limit=2)
    of_address = events_view(RECORDING, search=limits["columns"]["address"][0])

    assert limits["columns"]["bytes"] == [5000, 1000]
    assert limits["found"] == 2 < limits["count"]
    every = events_view(RECORDING)["columns"]["event"]
    assert page["columns"]["event"] == every[::-1][1:3]
    assert {*of_address["columns"]["action"]} == {"alloc"}
