"""What an out-of-memory knows about free memory, and its JSON."""

from __future__ import annotations

import json

from tbmem.model.oom import AllocatorUsage, Cause, Limit, OomEvent, OomHolder, OomReport, Reason, RunContext
from tests.conftest import GIB, MakeSample


def test_the_tightest_limit_says_what_is_free() -> None:
    # given a cgroup that is tighter than the machine
    limits = (Limit(name="cgroup", total=100, free=5), Limit(name="the machine", total=900, free=300))
    # then
    assert OomEvent(device="cpu", step=3, requested=10, limits=limits).free == 5
    assert OomEvent(device="cpu", step=3, requested=10).free is None


def test_a_limit_is_only_near_as_long_as_no_request_failed() -> None:
    assert OomEvent(device="cpu", step=3, requested=None).only_near
    assert not OomEvent(device="cpu", step=3, requested=8).only_near
    # a plain MemoryError does not say how much was requested
    assert not OomEvent(device="cpu", step=3, requested=None, error="MemoryError").only_near


def test_what_an_allocator_does_not_use_is_cached_or_fragmented() -> None:
    usage = AllocatorUsage(reserved=100, active=70, cached=20, fragmented=10)

    assert usage.free == usage.reserved - usage.active == 30


def test_a_report_is_plain_json() -> None:
    # given
    event = OomEvent(
        device="cuda:0",
        step=7,
        requested=64,
        limits=(Limit(name="the device", total=128, free=32),),
        device_free=40,
        device_total=128,
        pieces=AllocatorUsage(reserved=96, active=80, fragmented=16),
        line="train.py:31 in forward()",
    )
    reason = Reason(cause=Cause.FRAGMENTATION, bytes=16, enough=False, text="in pieces", advice="expandable segments")
    report = OomReport(
        shortage=event,
        reasons=(reason,),
        holdings=(OomHolder(name="list 'kept'", bytes=48, count=3, lines=("train.py:9",)),),
        seen=80,
        notes=("One note.",),
    )
    # when
    data = json.loads(json.dumps(report.to_dict()))
    # then
    assert (data["requested_bytes"], data["free_bytes"], data["seen_bytes"]) == (64, 32, 80)
    assert (data["device_free_bytes"], data["device_total_bytes"]) == (40, 128)
    assert data["limits"] == [{"name": "the device", "total": 128, "free": 32}]
    assert data["pieces"] == {"reserved": 96, "active": 80, "cached": 0, "fragmented": 16, "largest_free": None}
    assert (data["reasons"][0]["cause"], data["reasons"][0]["enough"]) == ("fragmentation", False)
    assert data["holders"] == [{"name": "list 'kept'", "bytes": 48, "count": 3, "lines": ["train.py:9"], "largest": ""}]
    assert (data["line"], data["notes"]) == ("train.py:31 in forward()", ["One note."])


def test_a_report_without_an_allocator_has_none_of_its_figures() -> None:
    event = OomEvent(device="cpu", step=0, requested=None, error="MemoryError")

    data = json.loads(json.dumps(OomReport(shortage=event, reasons=()).to_dict()))

    assert data["pieces"] is data["requested_bytes"] is data["free_bytes"] is None
    assert data["limits"] == data["reasons"] == data["holders"] == []


def test_what_is_in_use_is_the_exact_peak_or_the_level_at_the_end(make_sample: MakeSample) -> None:
    # given a GPU's step with an exact peak, and one of the CPU without
    samples = {"cuda:0": make_sample(3, 1, 4), "cpu": make_sample(3, 2)._replace(device="cpu", peak_allocated=None)}
    # then
    assert RunContext(4, last=samples).in_use == 4 * GIB
    assert RunContext(4, last={"cpu": samples["cpu"]}).in_use == 2 * GIB
    assert RunContext(4).in_use == 0
