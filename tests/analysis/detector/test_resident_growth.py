"""Resident memory against what is alive: a heap that is pinned, and one that is free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest

from tbmem.analysis.detector.detector import Detector, judge
from tbmem.model.evidence import Channel, Outcome
from tbmem.model.finding import FindingKind
from tbmem.model.sample import MemorySample
from tbmem.units import GIB, KIB, MIB
from tests.analysis.detector.test_detector import HEAP, conclusion, feed, heap, kinds, leaking


def pinned(steps: int, heap_grows: bool = True, per_step: int = 20 * MIB) -> list[MemorySample]:
    """What is alive grows by 32 KiB a step, the resident memory by 20 MiB: through malloc's heap, or beside it.

    As much less is left on the host, of 64 GiB at first.
    """
    levels, grown = leaking(steps, 32 * KIB), [per_step * step for step in range(steps)]
    reserved = [2 * HEAP + (each if heap_grows else 32 * KIB * step) for step, each in enumerate(grown)]
    resident, left = [300 * MIB + each for each in grown], [64 * GIB - each for each in grown]
    return heap(levels, reserved=reserved, host_rss=resident, host_available=left)


def test_what_pins_the_heap_is_one_leak_of_the_resident_memorys_size() -> None:
    # given
    samples = pinned(300)
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:40])
    suspicion = next(each for each in detector.suspicions if each.channel is Channel.ALLOCATED)
    # when
    lasting = detector.lasting_rate(suspicion)
    (leak,) = detector.conclude(suspicion, conclusion(Outcome.CONFIRMED, share=0.98))
    again = feed(detector, samples[40:])
    verdict = detector.verdict()
    # then
    assert lasting == pytest.approx(20 * MIB, rel=0.3)
    for finding in (leak, verdict, *again):
        assert finding.kind is FindingKind.LEAK
        assert finding.evidence["channel"] == "allocated"
        assert finding.evidence["bytes_per_step"] == pytest.approx(20 * MIB, rel=0.3)
        assert finding.evidence["alive_bytes_per_step"] == pytest.approx(32 * KIB, rel=0.05)
        # memory runs out at the rate that the sentence names, in the first one as in the last
        left = finding.evidence["steps_left"] * finding.evidence["bytes_per_step"]
        assert left == pytest.approx(64 * GIB - 20 * MIB * finding.last_step, rel=0.01)
    assert "held by list 'losses' in train()" in verdict.message
    assert "of it is alive, 98 % of that explained" in verdict.message  # the holder's share is not the resident rate's
    assert verdict.evidence["steps_left"] == pytest.approx(64 * GIB / (20 * MIB) - 300, rel=0.1)


def test_a_leak_that_pins_the_heap_is_told_again_when_four_times_as_much_is_resident() -> None:
    # given: what is alive and the resident memory both go on growing, each reported by a channel of its own
    grown = [finding.evidence["growth_bytes"] for finding in judge(pinned(1500))[:-1]]

    assert len(grown) == 2
    assert all(later >= 4 * before for before, later in pairwise(grown))


def test_a_heap_that_was_not_read_for_long_is_compared_up_to_its_last_reading() -> None:
    # given: malloc's counters have become too expensive; what is alive is known by a cheaper reading
    samples = [sample if sample.step < 200 else sample._replace(reserved=None) for sample in pinned(900)]

    verdict = judge(samples)[-1]

    assert verdict.evidence["bytes_per_step"] == pytest.approx(20 * MIB, rel=0.1)
    assert verdict.evidence["alive_bytes_per_step"] == pytest.approx(32 * KIB, rel=0.1)


def test_what_the_heap_took_once_is_no_part_of_the_rate() -> None:
    # given a leak of 32 KiB a step; in step 60 malloc takes 200 MiB for a larger step
    taken = [200 * MIB if step >= 60 else 0 for step in range(200)]
    levels = leaking(200, 32 * KIB)
    resident = [300 * MIB + 32 * KIB * step + taken[step] for step in range(200)]
    reserved = [level + 6 * MIB + more for level, more in zip(levels, taken, strict=True)]
    detector = Detector(awaits_evidence=True)
    samples = heap(levels, reserved=reserved, host_rss=resident)
    feed(detector, samples[:40])
    # when
    detector.conclude(detector.suspicions[0], conclusion(Outcome.CONFIRMED))
    feed(detector, samples[40:])
    # then
    evidence = detector.verdict().evidence
    assert evidence["bytes_per_step"] == pytest.approx(32 * KIB, rel=0.05)
    assert "alive_bytes_per_step" not in evidence


def test_a_heap_that_was_pinned_and_grows_more_slowly_is_the_same_leak() -> None:
    # given a holder of 32 KiB a step, and a heap that grows by 200 KiB a step at first, and by 60 in the second half
    grown = [0, *accumulate((200 if step < 200 else 46 if step < 300 else 74) * KIB for step in range(399))]
    reserved = [2 * HEAP + round(0.6 * each) for each in grown]
    samples = heap(leaking(400, 32 * KIB), reserved=reserved, host_rss=[300 * MIB + each for each in grown])
    detector, findings = Detector(awaits_evidence=True), []
    holder = conclusion(Outcome.CONFIRMED, explained=32.0 * KIB, evidence={"holder": "list 'losses' in train()"})
    # when looks at the resident memory find nothing
    for sample in samples:
        findings += detector.update(sample)
        for suspicion in detector.suspicions:
            is_alive = suspicion.channel is Channel.ALLOCATED
            answer = holder if is_alive else conclusion(Outcome.OPEN, reason="nothing was found")
            findings += detector.conclude(suspicion, answer)
    # then
    leaks = [finding for finding in (*findings, detector.verdict()) if finding.kind is FindingKind.LEAK]
    assert {leak.evidence["channel"] for leak in leaks} == {"allocated"}
    assert leaks[-1].evidence["holder"] == "list 'losses' in train()"
    assert leaks[-1].evidence["bytes_per_step"] == pytest.approx(32 * KIB, rel=0.05)


def test_a_second_leak_beside_mallocs_heap_is_told_apart() -> None:
    # given a leak of a mapping beside one of small objects
    samples = pinned(400, heap_grows=False)
    # when
    channels = {finding.evidence["channel"] for finding in judge(samples) if finding.kind is FindingKind.LEAK}
    # then
    assert channels == {"allocated", "host"}


def heap_that_keeps(growth: Sequence[int]) -> list[MemorySample]:
    """Steps in which malloc keeps so many more bytes free, which are resident."""
    return heap(
        [HEAP] * len(growth),
        reserved=[HEAP + 6 * MIB + more for more in growth],
        host_rss=[300 * MIB + more for more in growth],
    )


def test_resident_growth_that_is_free_in_the_heap_is_not_looked_into() -> None:
    # given a heap that grows by what it keeps free
    growth = [100 * KIB * step for step in range(120)]
    detector = Detector(awaits_evidence=True)
    # when
    findings = feed(detector, heap_that_keeps(growth))
    # then
    assert set(kinds(findings)) == {"dismissed"}  # at first, and when it has doubled
    assert not detector.suspicions


def test_growth_out_of_sight_that_is_free_in_the_heap_is_dismissed() -> None:
    # given growth that malloc does not show at first, looked into without finding anything
    growth = [100 * KIB * step for step in range(80)]
    samples = heap(
        [HEAP] * 80,
        reserved=[HEAP + 6 * MIB + (more if step >= 60 else 0) for step, more in enumerate(growth)],
        host_rss=[300 * MIB + more for more in growth],
    )
    detector = Detector(awaits_evidence=True)
    feed(detector, samples)
    (suspicion,) = detector.suspicions
    # when
    (finding,) = detector.conclude(suspicion, conclusion(Outcome.CONFIRMED, reason="neither Python nor torch holds it"))
    # then
    assert finding.kind is FindingKind.DISMISSED
    assert "free in malloc's heap" in finding.message


@pytest.mark.parametrize(("grown", "verdict"), [(30 * MIB, "stable"), (60 * MIB, "growing")])
def test_a_block_that_malloc_keeps_is_no_growth(grown: int, verdict: str) -> None:
    # given: resident memory that grows for 60 steps by what malloc keeps free
    growth = [min(step, 60) * grown // 60 for step in range(100)]
    detector = Detector(awaits_evidence=True)
    # when
    findings = feed(detector, heap_that_keeps(growth))
    # then
    assert "dismissed" in kinds(findings)
    assert detector.verdict().kind.value == verdict


def test_what_was_dismissed_as_free_heap_is_not_named_as_the_reason_of_a_leak() -> None:
    # given growth that was free in the heap, and goes on outside of it
    free = [3 * MIB * step for step in range(60)]
    samples = heap(
        [HEAP] * 400,
        reserved=[HEAP + (free[step] if step < 60 else free[-1]) for step in range(400)],
        host_rss=[300 * MIB + 3 * MIB * step for step in range(400)],
    )
    # when
    findings = feed(Detector(), samples)
    # then
    assert kinds(findings)[-1] == "leak"
    assert "free in malloc's heap" not in findings[-1].message


@pytest.mark.parametrize(("touched", "is_told"), [(2, False), (20, True)])
def test_a_change_of_level_is_told_where_it_is_in_memory(touched: int, is_told: bool) -> None:
    # given a library that allocates a buffer of 20 MiB in step 100, and uses so many MiB of it
    grown = [0 if step < 100 else 20 for step in range(300)]
    samples = heap(
        [HEAP + more * MIB for more in grown],
        reserved=[2 * HEAP + more * MIB for more in grown],
        host_rss=[300 * MIB + (touched if more else 0) * MIB for more in grown],
    )
    # when
    verdict = judge(samples)[-1]
    # then
    assert verdict.kind is (FindingKind.LEVEL_SHIFT if is_told else FindingKind.STABLE)
