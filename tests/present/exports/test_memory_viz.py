"""Pickles for pytorch.org/memory_viz, read back as its page reads them."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.analysis.timelines import recording
from tests.offline.snapshots import snapshot
from tests.present.exports.traces import traced

_PAGE_READS = {
    *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK"),
    *("MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
"""What the reader of pytorch.org/memory_viz knows of pickles (torch, ``MemoryViz.js``)."""


def _drawn_peak(data: dict[str, Any], device: int) -> int:
    """The highest point that the page draws: blocks of which there is no event are there from the beginning."""
    events = data["device_traces"][device]
    alive: dict[int, int] = {}
    before = total = change = most = 0
    for event in events:
        if event["action"] == "alloc":
            alive[event["addr"]] = event["size"]
            change += event["size"]
        elif event["action"] == "free_completed":
            before += 0 if event["addr"] in alive else event["size"]
            alive.pop(event["addr"], None)
            change -= event["size"]
        most = max(most, change)
    for segment in data["segments"]:
        for block in segment["blocks"] if segment["device"] == device else ():
            if block["state"] == "active_allocated" and block["address"] not in alive:
                before += block["requested_size"]
    return before + total + most


@pytest.mark.parametrize("source", ["trace", "snapshot"])
def test_memory_viz(source: str) -> None:
    analysis = traced() if source == "trace" else analyze(timeline_of_snapshot(snapshot([3000, 100], freed=[50])))

    written = memory_viz_pickle(analysis)

    # then the page's reader knows every word of it
    used = {opcode.name for opcode, _, _ in pickletools.genops(written)}
    assert used <= _PAGE_READS
    data = pickle.loads(written)
    assert _drawn_peak(data, 0) == analysis.main.peak.bytes
    # and each entry has what the page asks for
    for event in data["device_traces"][0]:
        assert {"action", "addr", "size", "stream", "frames"} <= event.keys()
    for segment in data["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    # and where events have categories, one is unknown: the page fails without
    categories = {event["category"] for event in data["device_traces"][0] if "category" in event}
    assert not categories or "unknown" in categories
    assert bool(categories) == (source == "trace")


def test_a_snapshot_comes_back_from_memory_viz_as_it_was() -> None:
    timeline = timeline_of_snapshot(snapshot([3000, 100], freed=[50, 60]))

    again = timeline_of_snapshot(pickle.loads(memory_viz_pickle(analyze(timeline))))

    assert again.devices == timeline.devices
    assert again.peak(0) == timeline.peak(0)
    assert again.rows.bytes.tolist() == timeline.rows.bytes.tolist()
    assert again.stacks.frames == timeline.stacks.frames


def test_what_was_there_before_is_drawn() -> None:
    device = {"base_bytes": 700, "unlisted_bytes": 200}
    analysis = analyze(recording({"bytes": 500}, {"bytes": 8, "begin": 0, "end": 1}, device=device))

    data = pickle.loads(memory_viz_pickle(analysis))

    assert _drawn_peak(data, 0) == analysis.main.peak.bytes == 708
