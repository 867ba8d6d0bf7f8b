"""Traces for Perfetto, read back as it reads them."""

from __future__ import annotations

import json

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.present.exports.perfetto import perfetto_json
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.offline.snapshots import snapshot
from tests.present.exports.traces import traced


def test_perfetto() -> None:
    analysis = traced()

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
