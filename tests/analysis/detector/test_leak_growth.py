"""With which growth leaks are told: what is kept, what the holder gains, or the resident memory."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.detector import Detector, judge
from tbmem.model.evidence import Channel, Outcome
from tbmem.model.sample import MemorySample
from tbmem.units import GIB, KIB, MIB
from tests.analysis.detector.test_detector import HEAP, conclusion, feed, heap, leaking
from tests.analysis.detector.test_resident_growth import pinned


def grows_by(resident: int) -> list[MemorySample]:
    """A leak of 64 KiB a step, with which the resident memory grows by so many bytes a step."""
    return heap(leaking(400), host_rss=[300 * MIB + resident * step for step in range(400)])


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


@pytest.mark.parametrize(("steps", "resident", "rate"), [(80, MIB, 32 * KIB), (300, MIB, MIB), (60, 4 * MIB, 4 * MIB)])
def test_a_heap_that_has_grown_by_little_is_no_measure_of_a_leak(steps: int, resident: int, rate: int) -> None:
    # given: the resident memory grows by 1 MiB a step, in the first 80 steps by less than a quarter of what it is
    samples = pinned(steps, per_step=resident)
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


@pytest.mark.parametrize(("steps", "left"), [(80, None), (400, 8 * GIB / (640 * KIB))])
def test_nothing_is_forecast_while_the_resident_memory_grows_far_faster_than_what_is_kept(
    steps: int, left: float | None
) -> None:
    # given: 4 KiB a step are kept, by which the heap grows by 640
    samples = heap(leaking(steps, 4 * KIB), host_rss=[800 * MIB + 640 * KIB * step for step in range(steps)])
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:60])
    suspicion = next(each for each in detector.suspicions if each.channel is Channel.ALLOCATED)
    # when
    (leak,) = detector.conclude(suspicion, conclusion(Outcome.CONFIRMED, share=0.98))
    feed(detector, samples[60:])
    # then
    assert leak.evidence["steps_left"] is None
    assert "out of memory" not in leak.message
    assert detector.verdict().evidence["steps_left"] == (left if left is None else pytest.approx(left, rel=0.05))


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
