"""Resident memory against what is alive: a heap that is pinned, and one that is free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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


def test_small_objects_that_malloc_does_not_count_are_one_leak_of_what_the_holder_keeps() -> None:
    # given: a list gains 650 KiB a step, of which malloc has 170; Python's arenas are not in its heap
    samples = [
        sample._replace(reserved=2 * HEAP, host_rss=200 * MIB + 700 * KIB * step)
        for step, sample in enumerate(heap(leaking(300, 170 * KIB)))
    ]
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:60])
    suspicion = next(each for each in detector.suspicions if each.channel is Channel.ALLOCATED)
    facts = {"holder": "Trainer.texts"}
    # when
    known = conclusion(Outcome.CONFIRMED, step=60, share=1.0, explained=650 * KIB, evidence=facts)
    (leak,) = detector.conclude(suspicion, known)
    again = feed(detector, samples[60:])
    # then: the first sentence has what is kept, and no other finding has another rate
    assert leak.evidence["heap_bytes_per_step"] == pytest.approx(170 * KIB, rel=0.05)
    assert "100 % of the growth explained) · +170.00 KiB/step of it is in malloc's heap" in leak.message
    for finding in (leak, *again, detector.verdict()):
        assert finding.subject == leak.subject
        assert finding.evidence["bytes_per_step"] == 650 * KIB
        assert finding.evidence["growth_bytes"] == pytest.approx(650 * KIB * finding.evidence["judged_steps"], rel=0.01)
    # and memory runs out at the rate of the resident memory, once that is known to last
    assert leak.evidence["steps_left"] == pytest.approx(8 * GIB / (650 * KIB), rel=0.1)
    assert detector.verdict().evidence["resident_bytes_per_step"] == pytest.approx(700 * KIB, rel=0.05)


def test_a_holder_that_malloc_shows_whole_is_told_at_its_own_rate() -> None:
    # given: the same, but what the holder gains is what malloc counts
    samples = [sample._replace(reserved=2 * HEAP) for sample in heap(leaking(60, 170 * KIB))]
    detector = Detector(awaits_evidence=True)
    feed(detector, samples)
    suspicion = next(each for each in detector.suspicions if each.channel is Channel.ALLOCATED)
    # when
    known = conclusion(Outcome.CONFIRMED, share=1.0, explained=171 * KIB, evidence={"holder": "Trainer.texts"})
    (leak,) = detector.conclude(suspicion, known)
    # then
    assert leak.evidence["bytes_per_step"] == pytest.approx(170 * KIB, rel=0.05)
    assert "heap_bytes_per_step" not in leak.evidence


@pytest.mark.parametrize(("steps", "rate"), [(100, 32 * KIB), (300, MIB)])
def test_a_heap_that_may_only_warm_up_is_no_measure_of_a_leak(steps: int, rate: int) -> None:
    # given: the resident memory grows by 1 MiB a step, in the first 100 steps by a quarter of what it is
    samples = pinned(steps, per_step=MIB)
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:40])
    suspicion = next(each for each in detector.suspicions if each.channel is Channel.ALLOCATED)
    # when
    (leak,) = detector.conclude(suspicion, conclusion(Outcome.CONFIRMED, share=0.98))
    feed(detector, samples[40:])
    # then
    assert leak.evidence["bytes_per_step"] == pytest.approx(32 * KIB, rel=0.1)
    assert detector.verdict().evidence["bytes_per_step"] == pytest.approx(rate, rel=0.1)


def test_a_leaks_first_rate_is_what_its_holder_gains_while_other_memory_is_given_back() -> None:
    # given: each step keeps 128 KiB, and what a window has left, 24 KiB a step, is freed in the steps after it
    levels = [HEAP + 128 * KIB * step - 24 * KIB * min(step, 60) for step in range(400)]
    samples = heap(levels)
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:40])
    # when
    facts = {"holder": "Trainer.losses"}
    known = conclusion(Outcome.CONFIRMED, share=1.0, explained=128 * KIB, evidence=facts)
    (leak,) = detector.conclude(detector.suspicions[0], known)
    feed(detector, samples[40:])
    # then: the first figure is the one that the last has
    for finding in (leak, detector.verdict()):
        assert finding.evidence["bytes_per_step"] == pytest.approx(128 * KIB, rel=0.05)


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


def grows_by(resident: int) -> list[MemorySample]:
    """A leak of 64 KiB a step, with which the resident memory grows by so many bytes a step."""
    return heap(leaking(400), host_rss=[300 * MIB + resident * step for step in range(400)])


def test_memory_runs_out_at_the_rate_of_the_resident_memory() -> None:
    # given: fragments between what is kept, half as much again
    verdict = judge(grows_by(96 * KIB))[-1]
    # then: the leak is what is kept, its end that of what fills the machine
    assert verdict.evidence["bytes_per_step"] == pytest.approx(64 * KIB, rel=0.01)
    assert verdict.evidence["resident_bytes_per_step"] == pytest.approx(96 * KIB, rel=0.01)
    assert verdict.evidence["steps_left"] == pytest.approx(8 * GIB / (96 * KIB), rel=0.01)
    assert ", as the resident memory grows by 96.00 KiB per step" in verdict.message


@pytest.mark.parametrize("resident", [60 * KIB, 64 * KIB, 66 * KIB])
def test_resident_memory_that_grows_as_what_is_kept_is_not_mentioned(resident: int) -> None:
    verdict = judge(grows_by(resident))[-1]
    assert "resident_bytes_per_step" not in verdict.evidence
    assert verdict.evidence["steps_left"] == pytest.approx(8 * GIB / (64 * KIB), rel=0.01)


def test_a_heap_that_has_just_begun_to_grow_brings_the_end_no_nearer() -> None:
    # given: 64 KiB a step are kept, and the heap warms up for 40 steps
    grown = [64 * KIB * step + 400 * KIB * min(step, 40) for step in range(400)]
    samples = heap(leaking(400), host_rss=[300 * MIB + each for each in grown])
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:40])
    # when
    (leak,) = detector.conclude(detector.suspicions[0], conclusion(Outcome.CONFIRMED, share=0.98))
    # then
    assert "resident_bytes_per_step" not in leak.evidence


def test_what_the_heap_took_once_brings_the_end_no_nearer() -> None:
    # given: in step 200 malloc takes 100 MiB for a larger step
    samples = [each._replace(host_rss=each.host_rss + 100 * MIB * (each.step > 200)) for each in grows_by(64 * KIB)]

    assert "resident_bytes_per_step" not in judge(samples)[-1].evidence


def test_the_figures_of_a_heap_that_grows_unevenly_fit_together() -> None:
    # given: 32 KiB a step are kept; the resident memory grows by 200 KiB a step, from step 200 on by 2 MiB
    levels = leaking(400, 32 * KIB)
    grown = [200 * KIB * step + 2 * MIB * max(step - 200, 0) for step in range(400)]
    reserved = [2 * HEAP + each for each in grown]
    resident, left = [300 * MIB + each for each in grown], [8 * GIB - each for each in grown]
    samples = heap(levels, reserved=reserved, host_rss=resident, host_available=left)
    # when
    facts = judge(samples)[-1].evidence
    # then
    assert facts["alive_bytes_per_step"] == pytest.approx(32 * KIB, rel=0.1)
    assert facts["growth_bytes"] == pytest.approx(facts["bytes_per_step"] * facts["judged_steps"], rel=0.1)
    assert facts["steps_left"] == pytest.approx((8 * GIB - grown[-1]) / facts["bytes_per_step"], rel=0.05)


def test_a_leap_is_left_out_of_the_rate_and_said() -> None:
    # given: what is kept pins 1 MiB a step, and in step 200 malloc takes 300 MiB at once
    grown = [MIB * step + 300 * MIB * (step > 200) for step in range(400)]
    reserved = [2 * HEAP + each for each in grown]
    host = [300 * MIB + each for each in grown]
    # when
    verdict = judge(heap(leaking(400, 32 * KIB), reserved=reserved, host_rss=host))[-1]
    # then
    assert verdict.evidence["bytes_per_step"] == pytest.approx(MIB, rel=0.05)
    assert " MiB of it at once)" in verdict.message


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


def test_pages_that_malloc_takes_in_a_few_steps_are_no_rate_where_the_holder_is_known() -> None:
    # given resident memory that rises by 800 KiB a step for a while, and a holder that gains 200
    detector = Detector(awaits_evidence=True)
    samples = heap([None] * 400, host_rss=[300 * MIB + (800 if step < 60 else 200) * KIB * step for step in range(400)])
    feed(detector, samples[:60])
    (suspicion,) = detector.suspicions
    # when
    known = conclusion(Outcome.CONFIRMED, share=0.25, explained=200 * KIB, evidence={"holder": "list 'losses'"})
    (leak,) = detector.conclude(suspicion, known)
    # then
    assert leak.message.startswith("the resident memory of the process +200.00 KiB/step since step ")
    assert " of it at once, 100 % of the growth explained)" in leak.message
