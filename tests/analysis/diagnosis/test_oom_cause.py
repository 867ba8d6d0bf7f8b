"""Why a request did not fit: hand-built moments, one cause each."""

from __future__ import annotations

from dataclasses import replace

from tbmem.analysis.diagnosis.oom_cause import pieces_without_blocks, reasons_of
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.oom import MACHINE, AllocatorUsage, Cause, Limit, OomEvent, Reason
from tbmem.units import GIB, MIB

FULL = OomEvent(
    device="cuda:0",
    step=40,
    requested=2 * GIB,
    limits=(Limit(name="the device", total=80 * GIB, free=GIB),),
    device_free=GIB,
    device_total=80 * GIB,
    pieces=AllocatorUsage(reserved=78 * GIB, active=78 * GIB, largest_free=0),
    process=78 * GIB,
)


def _leak(growth: int, **others: object) -> Finding:
    return Finding(
        kind=FindingKind.LEAK,
        severity=Severity.CRITICAL,
        device="cuda:0",
        first_step=3,
        last_step=30,
        message="",
        evidence={"channel": "allocated", "growth_bytes": growth, "bytes_per_step": growth / 27, "holder": "list 'x'"},
        advice="detach it",
        **others,  # type: ignore[arg-type]
    )


def _causes(reasons: tuple[Reason, ...]) -> list[tuple[Cause, bool]]:
    return [(reason.cause, reason.enough) for reason in reasons]


def test_a_full_device_is_the_capacity() -> None:
    (reason,) = reasons_of(FULL)

    assert (reason.cause, reason.enough) == (Cause.CAPACITY, False)
    assert "79.00 GiB of the device's 80.00 GiB are in use; 2.00 GiB more does not fit" in reason.text
    assert reason.advice


def test_a_request_larger_than_the_device_is_the_capacity_whatever_else_is_there() -> None:
    # given a leak, gaps and other processes, and a request of more than all there is
    pieces = AllocatorUsage(reserved=60 * GIB, active=30 * GIB, fragmented=30 * GIB, largest_free=GIB)
    shortage = replace(FULL, requested=100 * GIB, pieces=pieces, process=60 * GIB)

    reasons = reasons_of(shortage, [_leak(90 * GIB)])

    assert reasons[0].cause is Cause.CAPACITY
    assert "the request alone (100.00 GiB) is larger than the device (80.00 GiB)" in reasons[0].text
    assert reasons[0].advice.startswith("check the shape of the tensor that is made there; ")


def test_inactive_pieces_that_would_have_been_enough_together_are_fragmentation() -> None:
    # given 8 GiB in gaps, the largest of 1 GiB, and a request for two
    pieces = AllocatorUsage(reserved=78 * GIB, active=70 * GIB, fragmented=8 * GIB, largest_free=GIB)

    (reason,) = reasons_of(replace(FULL, pieces=pieces))

    assert (reason.cause, reason.enough, reason.bytes) == (Cause.FRAGMENTATION, True, 8 * GIB)
    assert "8.00 GiB of it fragmented, in gaps between used blocks; the largest block is 1.00 GiB" in reason.text
    assert "expandable_segments" in reason.advice


def test_a_few_small_gaps_are_not_why() -> None:
    # given gaps that would not have been enough and are less than a twentieth of the device
    pieces = AllocatorUsage(reserved=78 * GIB, active=78 * GIB - 100 * MIB, fragmented=100 * MIB, largest_free=50 * MIB)

    assert _causes(reasons_of(replace(FULL, pieces=pieces))) == [(Cause.CAPACITY, False)]


def test_many_gaps_that_would_not_have_been_enough_stand_beside_the_capacity() -> None:
    pieces = AllocatorUsage(reserved=78 * GIB, active=72 * GIB, fragmented=6 * GIB, largest_free=GIB)

    reasons = reasons_of(replace(FULL, pieces=pieces, requested=10 * GIB))

    assert _causes(reasons) == [(Cause.CAPACITY, False), (Cause.FRAGMENTATION, False)]


def test_a_large_free_block_of_another_stream_is_said_so() -> None:
    pieces = AllocatorUsage(reserved=78 * GIB, active=70 * GIB, cached=8 * GIB, largest_free=4 * GIB)

    assert "belongs to another stream or pool" in reasons_of(replace(FULL, pieces=pieces))[0].text


def test_counters_alone_do_not_invent_a_largest_block() -> None:
    pieces = pieces_without_blocks(78 * GIB, 70 * GIB, 5 * GIB)

    (reason,) = reasons_of(replace(FULL, pieces=pieces))

    assert (pieces.cached, pieces.fragmented) == (3 * GIB, 5 * GIB)
    assert "largest" not in reason.text


def test_others_on_the_device() -> None:
    # given 30 GiB that are in use and not ours
    pieces = AllocatorUsage(reserved=49 * GIB, active=49 * GIB, largest_free=0)

    (reason,) = reasons_of(replace(FULL, pieces=pieces, process=49 * GIB))

    assert (reason.cause, reason.enough, reason.bytes) == (Cause.OTHER_PROCESSES, True, 30 * GIB)


def test_what_a_context_of_cuda_takes_is_nobody_elses() -> None:
    pieces = AllocatorUsage(reserved=79 * GIB - 600 * MIB, active=79 * GIB - 600 * MIB)

    assert _causes(reasons_of(replace(FULL, pieces=pieces, process=pieces.reserved))) == [(Cause.CAPACITY, False)]


def test_a_leak_that_was_flagged_comes_first_and_is_followed_to_the_step() -> None:
    # given a leak of 27 GiB by step 30, that went on until step 40
    reasons = reasons_of(FULL, [_leak(27 * GIB)])

    assert _causes(reasons) == [(Cause.LEAK, True)]
    assert reasons[0].bytes == 37 * GIB
    assert "a leak was flagged at step 30: about 37.00 GiB since step 3, held by list 'x'" in reasons[0].text
    assert reasons[0].advice == "detach it"


def test_a_leak_that_nobody_had_time_to_look_into_points_to_what_holds_most() -> None:
    unknown = replace(_leak(27 * GIB), evidence={**_leak(27 * GIB).evidence, "holder": None})

    expected = "what holds most, listed in the report, may be what grows; detach it"
    assert reasons_of(FULL, [unknown])[0].advice == expected


def test_a_leak_of_another_device_or_one_that_was_taken_back_is_no_reason() -> None:
    elsewhere = replace(_leak(27 * GIB), device="cuda:1")
    taken_back = replace(_leak(27 * GIB), kind=FindingKind.GROWING)

    assert _causes(reasons_of(FULL, [elsewhere, _leak(27 * GIB), taken_back])) == [(Cause.CAPACITY, False)]


def test_a_leak_on_the_host_is_a_reason_there_and_none_on_the_device() -> None:
    leak = _leak(27 * GIB)
    on_the_host = replace(leak, evidence={**leak.evidence, "channel": "heap"})
    host = replace(FULL, device="cpu", pieces=None)

    assert _causes(reasons_of(FULL, [on_the_host])) == [(Cause.CAPACITY, False)]
    assert _causes(reasons_of(host, [on_the_host]))[0][0] is Cause.LEAK
    assert Cause.LEAK not in [cause for cause, _ in _causes(reasons_of(host, [leak]))]


def test_on_the_host_the_tightest_limit_is_named_with_what_to_change() -> None:
    # given a container of 8 GiB on a machine with plenty
    limits = (Limit(name="cgroup", total=8 * GIB, free=GIB), Limit(name="the machine", total=64 * GIB, free=40 * GIB))
    shortage = replace(FULL, device="cpu", limits=limits, pieces=None, process=6 * GIB, device_free=40 * GIB)
    shortage = replace(shortage, device_total=64 * GIB)

    reasons = reasons_of(shortage)

    assert reasons[0].cause is Cause.CAPACITY
    assert "7.00 GiB of the cgroup's 8.00 GiB are in use" in reasons[0].text
    assert "container" in reasons[0].advice


def test_near_a_limit_a_leak_that_holds_most_is_why() -> None:
    # given a limit that is nearly reached, and nothing that has failed
    near = replace(FULL, requested=None)
    # then
    assert _causes(reasons_of(near, [_leak(50 * GIB)])) == [(Cause.LEAK, False), (Cause.CAPACITY, False)]
    assert reasons_of(near, [_leak(50 * GIB)])[0].advice == "detach it"
    # and one that holds less stands beside it
    assert _causes(reasons_of(near, [_leak(10 * GIB)])) == [(Cause.CAPACITY, False), (Cause.LEAK, False)]


def test_of_addresses_only_what_is_resident_holds_memory() -> None:
    # given 6 of 7 GiB of addresses are taken, and 4 GiB are resident, 2.7 GiB of which a leak holds
    limit = Limit(name="RLIMIT_AS", total=7 * GIB, free=GIB)
    near = replace(FULL, device="cpu", requested=None, limits=(limit,), process=4 * GIB, pieces=None)
    leak = replace(_leak(2 * GIB), device="cpu")
    # then
    assert _causes(reasons_of(near, [leak]))[0] == (Cause.LEAK, False)
    in_machine = replace(near, limits=(replace(limit, name=MACHINE),))
    assert _causes(reasons_of(in_machine, [leak]))[0] == (Cause.CAPACITY, False)


def test_nothing_known_is_still_a_sentence() -> None:
    (reason,) = reasons_of(OomEvent(device="cpu", step=1, requested=None))

    assert reason.text == "live memory and the request exceed the capacity"
