"""Which device an analysis is about, and its JSON."""

from __future__ import annotations

import json

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import ModuleShare
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, DeviceTotals
from tests.analysis.timelines import recording, training_step


def _recording(**peaks: int) -> AllocationTimeline:
    """One allocation on each device."""
    devices = tuple(
        DeviceTotals(name=name.replace("_", ":"), type=int(name != "cpu"), index=number - 1, events=1)
        for number, name in enumerate(peaks)
    )
    rows = AllocationRows.of(len(peaks), bytes=list(peaks.values()), device=range(len(peaks)), alloc_event=0)
    return AllocationTimeline(source="trace", rows=rows, devices=devices)


def test_an_accelerator_comes_before_the_cpu_and_small_devices_are_not_shown() -> None:
    # given two GPUs, one of which hardly allocates, and a CPU that holds the most
    analysis = analyze(_recording(cpu=9000, cuda_0=9, cuda_1=9001))
    # then 9 bytes are less than a thousandth of 9,001
    assert analysis.main.name == "cuda:1"
    assert [device.name for device in analysis.shown] == ["cuda:1", "cpu"]
    assert list(analysis.to_dict()["devices"]) == ["cpu", "0", "1"]


def test_modules_are_walked_parents_first() -> None:
    def module(name: str, *children: ModuleShare) -> ModuleShare:
        return ModuleShare(name=name, path=name, bytes=0, own_bytes=0, count=0, percent=0.0, children=children)

    root = module("root", module("a", module("b")), module("c"))

    assert [each.name for each in root.walk()] == ["root", "a", "b", "c"]


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
