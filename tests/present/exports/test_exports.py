"""What other tools are given, read back as they read it."""

from __future__ import annotations

import csv
import io
import json
import pickle
import pickletools
from typing import Any

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Category
from tbmem.present.exports.allocations_csv import allocations_csv
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.present.exports.perfetto import perfetto_json
from tbmem.present.exports.speedscope import speedscope_json
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.analysis.timelines import book, recording, training_step
from tests.offline.snapshots import snapshot

_PAGE_READS = {
    *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK"),
    *("MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
"""What the reader of pytorch.org/memory_viz knows of pickles (torch, ``MemoryViz.js``)."""


def _traced() -> Analysis:
    rows = [*training_step(0, 0), *training_step(1, 10)]
    notes = book((-1, 7, 800, Category.PARAMETER, "net.0.weight"), (1.5, 200, 1000, Category.ACTIVATION, "net.0"))
    return analyze(recording(*rows), book=notes, name="here")


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
    analysis = _traced() if source == "trace" else analyze(timeline_of_snapshot(snapshot([3000, 100], freed=[50])))

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


def test_perfetto() -> None:
    analysis = _traced()

    data = json.loads(perfetto_json(analysis))

    counters = [event for event in data["traceEvents"] if event["ph"] == "C" and event["name"] == "memory"]
    assert max(sum(event["args"].values()) for event in counters) == analysis.main.peak.bytes
    assert {"PARAMETER", "ACTIVATION"} <= counters[0]["args"].keys()
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)


def test_what_was_reserved_before_the_recording_is_reserved_when_it_begins_in_perfetto() -> None:
    # given a recording with times, in which the allocator asks the device for nothing
    data = json.loads(perfetto_json(analyze(timeline_of_snapshot(snapshot([3000, 100], freed=[50])))))

    times = {
        name: [event["ts"] for event in data["traceEvents"] if event["ph"] == "C" and event["name"] == name]
        for name in ("memory", "reserved")
    }
    assert times["reserved"] == times["memory"][:1] == [1_000_000]


def test_speedscope() -> None:
    analysis = _traced()

    data = json.loads(speedscope_json(analysis))

    peak, _end = data["profiles"]
    assert (peak["type"], peak["unit"], peak["name"]) == ("sampled", "bytes", "cpu at the peak")
    assert sum(peak["weights"]) == peak["endValue"] == analysis.main.peak.bytes
    frames = data["shared"]["frames"]
    assert all(0 <= number < len(frames) for sample in peak["samples"] for number in sample)
    assert {"name": "loss_of", "file": "/home/me/train.py", "line": 10} in frames


def test_csv() -> None:
    analysis = _traced()

    rows = list(csv.DictReader(io.StringIO(allocations_csv(analysis))))

    assert len(rows) == len(analysis.timeline.rows)
    found = next(row for row in rows if row["name"] == "net.0.weight")
    assert (found["category"], found["basis"], found["bytes"], found["device"]) == ("PARAMETER", "known", "800", "cpu")
    assert {row["line"] for row in rows} == {"", "me/train.py:10 loss_of"}
