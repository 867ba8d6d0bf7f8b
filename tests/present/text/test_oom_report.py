"""Out-of-memory reports in words."""

from __future__ import annotations

from dataclasses import replace

from tbmem.model.oom import AllocatorUsage, Cause, Limit, OomEvent, OomHolder, OomReport, Reason
from tbmem.present.text.oom_report import near_sentence, shortage_lines, shortage_sentence
from tbmem.units import GIB, MIB

EVENT = OomEvent(
    device="cuda:0",
    step=7,
    requested=2 * GIB,
    limits=(Limit(name="the device", total=80 * GIB, free=GIB), Limit(name="cgroup", total=90 * GIB, free=30 * GIB)),
    pieces=AllocatorUsage(reserved=70 * GIB, active=60 * GIB, cached=4 * GIB, fragmented=6 * GIB, largest_free=GIB),
    line="train.py:31",
)
REASON = Reason(cause=Cause.FRAGMENTATION, bytes=6 * GIB, enough=True, text="6 GiB lie in gaps", advice="set it")
OTHER = Reason(cause=Cause.OTHER_PROCESSES, bytes=GIB, enough=False, text="others hold 1 GiB", advice="end them")
REPORT = OomReport(shortage=EVENT, reasons=(REASON, OTHER))


def test_the_report_line_by_line() -> None:
    holders = (
        OomHolder(name="parameters of Net", bytes=GIB, count=1, lines=("net.py:3", "net.py:4")),
        OomHolder(name="list 'seen'", bytes=512 * MIB, count=9, largest="seen[3]"),
    )

    assert shortage_lines(replace(REPORT, holdings=holders, seen=4 * GIB, notes=("no stacks",))) == [
        "requested: 2.00 GiB on GPU 0 at train.py:31, in step 7",
        "free:      1.00 GiB of 80.00 GiB (the device) · 30.00 GiB of 90.00 GiB (cgroup)",
        "reserved:  70.00 GiB (in use 60.00 GiB, fragmented 6.00 GiB, cached 4.00 GiB, largest free block 1.00 GiB)",
        "why:       fragmentation: 6 GiB lie in gaps; without it the request would have fitted",
        "also:      other processes: others hold 1 GiB",
        "do:        set it",
        "the 2 largest holders, of 4.00 GiB that can be seen:",
        "     1.00 GiB  parameters of Net · net.py:3",
        "   512.00 MiB  list 'seen' (9 parts; the largest is seen[3])",
        "note: no stacks",
    ]


def test_what_is_not_known_is_left_out() -> None:
    event = OomEvent(device="cpu", step=7, requested=None, process=3 * GIB, error="MemoryError")

    report = OomReport(shortage=event, reasons=())

    assert shortage_lines(report) == ["requested: an unknown size on CPU, in step 7", "process:   3.00 GiB resident"]
    assert shortage_sentence(report) == "step 7 ran out of memory: a request of unknown size failed"


def test_one_sentence() -> None:
    assert shortage_sentence(REPORT) == (
        "step 7 ran out of memory: 2.00 GiB were requested at train.py:31, 1.00 GiB were free · fragmentation: 6 GiB"
        " lie in gaps"
    )


def test_near_a_limit_the_leak_that_holds_most_is_named() -> None:
    # given
    leak = Reason(cause=Cause.LEAK, bytes=4 * GIB, enough=False, text="a leak was flagged at step 3", advice="clear it")
    capacity = replace(leak, cause=Cause.CAPACITY, text="all is in use")
    limits = (Limit(name="RLIMIT_AS", total=8 * GIB, free=312 * MIB),)
    event = OomEvent(device="cpu", step=7, requested=None, limits=limits, process=6 * GIB)
    # then
    first = near_sentence(OomReport(shortage=event, reasons=(leak, capacity)))
    assert first.endswith("at the limit its requests fail · leak: a leak was flagged at step 3")
    assert near_sentence(OomReport(shortage=event, reasons=(capacity, leak))).endswith("its requests fail")


def test_who_ends_a_process_depends_on_the_limit() -> None:
    def sentence(name: str) -> str:
        limits = (Limit(name=name, total=8 * GIB, free=312 * MIB),)
        event = OomEvent(device="cpu", step=7, requested=None, limits=limits, process=6 * GIB)
        return near_sentence(OomReport(shortage=event, reasons=()))

    assert sentence("cgroup") == (
        "the cgroup is nearly used up: 312.00 MiB of 8.00 GiB left, this process holds 6.00 GiB; at the limit the"
        " kernel kills it without a message"
    )
    assert sentence("the machine").endswith("the kernel kills it without a message")
    assert sentence("RLIMIT_AS").startswith("RLIMIT_AS is nearly used up")
    assert sentence("RLIMIT_AS").endswith("at the limit its requests fail")
