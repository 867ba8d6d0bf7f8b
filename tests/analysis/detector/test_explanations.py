"""What explains growth: a buffer that fills, free heap, and the same growth in another channel."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.detector import Detector, judge
from tbmem.model.evidence import Channel, Outcome
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.sample import MemorySample
from tbmem.units import KIB, MIB
from tests.analysis.detector.test_detector import HEAP, conclusion, heap, leaking


def test_a_buffer_that_fills_explains_the_resident_memory_too_also_where_a_look_finds_nothing() -> None:
    # given a replay buffer of small objects, of which malloc shows a fifth, and a look that has found it
    samples = heap(
        [HEAP + 6 * KIB * step for step in range(1500)],
        host_rss=[300 * MIB + 30 * KIB * step for step in range(1500)],
    )
    detector = Detector(awaits_evidence=True)
    findings: list[Finding] = []
    # when: the looks at the resident memory fall into steps that add nothing
    for sample in samples:
        findings += detector.update(sample)
        for suspicion in detector.suspicions:
            fills = conclusion(Outcome.DISMISSED, reason="buffer fills", ends_at=3000, room=90 * MIB)
            opened = conclusion(Outcome.OPEN, reason="nothing was found")
            detector.conclude(suspicion, fills if suspicion.channel is Channel.ALLOCATED else opened)
    # then
    assert FindingKind.LEAK not in {finding.kind for finding in findings}
    assert "buffer fills" in detector.verdict().message


def filling(steps: int = 4700) -> list[MemorySample]:
    """A buffer of small objects that fills, in a heap that was larger once and of which later steps tell nothing."""
    levels = [HEAP + KIB * step if step < 1100 else None for step in range(steps)]
    return heap(
        levels,
        reserved=[
            None if level is None else HEAP + (40 if step < 60 else 150) * MIB for step, level in enumerate(levels)
        ],
        host_rss=[300 * MIB + 12 * KIB * step for step in range(steps)],
    )


def test_growth_that_was_free_heap_by_old_figures_is_looked_at_before_it_is_a_leak() -> None:
    # given
    detector = Detector(awaits_evidence=True)
    findings: list[Finding] = []
    # when nobody looks
    for sample in filling():
        findings += detector.update(sample)
    # then it is suspected as other growth is
    host = [finding.kind for finding in findings if finding.evidence["channel"] == "host"]
    assert host.index(FindingKind.DISMISSED) < host.index(FindingKind.SUSPECT) < host.index(FindingKind.LEAK)


@pytest.mark.parametrize(("room", "is_explained"), [(20, True), (8, False)])
def test_resident_memory_may_grow_by_a_few_times_what_fills_a_buffer(room: int, is_explained: bool) -> None:
    # given a first look that finds the buffer, and later ones, of the resident memory, that find nothing
    detector = Detector(awaits_evidence=True)
    buffer = conclusion(Outcome.DISMISSED, reason="buffer fills", ends_at=4700, room=room * MIB)
    nothing = conclusion(Outcome.OPEN, reason="nothing was found")
    findings: list[Finding] = []
    # when
    for sample in filling():
        findings += detector.update(sample)
        for suspicion in detector.suspicions:
            answer = buffer if suspicion.channel is Channel.ALLOCATED else nothing
            findings += detector.conclude(suspicion, answer)
    # then
    assert FindingKind.LEAK not in {finding.kind for finding in findings}
    said = detector.verdict().message
    assert "the resident memory of the process grows" in said
    assert ("buffer fills" in said) is is_explained


def test_growth_beyond_what_a_buffer_can_hold_is_a_leak() -> None:
    # given: 10 MiB of room in the buffer
    detector = Detector(awaits_evidence=True)
    answers = [conclusion(Outcome.DISMISSED, reason="buffer fills", ends_at=100, room=10 * MIB)]
    findings: list[Finding] = []
    # when
    for sample in heap(leaking(2000)):
        findings += detector.update(sample)
        for suspicion in detector.suspicions:
            opened = conclusion(Outcome.OPEN, reason="nothing was found")
            detector.conclude(suspicion, answers.pop() if answers else opened)
    # then
    assert FindingKind.LEAK in {finding.kind for finding in findings}


def test_resident_memory_that_grows_with_what_is_explained_is_no_leak_at_the_end_either() -> None:
    # given: what malloc shows is explained, and begins three steps later than what the kernel shows
    levels = leaking(900, since=12)
    samples = heap([None] * 12 + levels[12:], host_rss=[300 * MIB + 2 * (level - HEAP) for level in levels])
    detector = Detector(awaits_evidence=True)
    # when
    for sample in samples:
        detector.update(sample)
        for suspicion in detector.suspicions:
            longer = conclusion(Outcome.DISMISSED, reason="steps grow")
            opened = conclusion(Outcome.OPEN, reason="nothing was found")
            detector.conclude(suspicion, longer if suspicion.channel is Channel.ALLOCATED else opened)
    # then
    assert detector.verdict().kind is not FindingKind.LEAK


def test_python_objects_that_grow_beside_what_malloc_shows_are_the_same_growth() -> None:
    # given: tensors of 64 KiB a step, and 100 KiB a step of small objects of their holder, outside of malloc
    samples = heap(leaking(700), host_rss=[300 * MIB + 164 * KIB * step for step in range(700)])
    # when / then
    assert {finding.evidence["channel"] for finding in judge(samples)} == {"allocated"}


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_seen_to_keep_nothing_explains_later_growth_of_which_looks_tell_nothing(is_known: bool) -> None:
    # given episodes that become longer: a first look sees that nothing of them is kept, later ones find nothing
    working = conclusion(Outcome.DISMISSED, reason="the steps need more memory", is_working_set=True)
    nothing = conclusion(Outcome.OPEN, reason="nothing was found")
    answers, detector = [working] if is_known else [], Detector(awaits_evidence=True)
    findings: list[Finding] = []
    # when memory falls back once, and climbs again
    for sample in heap([*leaking(100), *leaking(900)]):
        findings += detector.update(sample)
        for suspicion in detector.suspicions:
            findings += detector.conclude(suspicion, answers.pop() if answers else nothing)
    # then
    assert (FindingKind.LEAK in {finding.kind for finding in findings}) is not is_known
    assert ("the steps need more memory" in detector.verdict().message) is is_known


def test_growth_that_another_channel_has_shown_is_not_certain_once_that_has_fallen_back() -> None:
    # given steps that hold more and more, by less than they differ, until they hold less; what is resident stays
    climb = leaking(500)
    levels = [level + (step % 4) * 12 * MIB for step, level in enumerate([*climb, *[HEAP] * 20])]
    host = [185 * MIB + level for level in [*climb, *[climb[-1]] * 20]]
    samples = heap(levels, host_rss=host, reserved=[2 * HEAP] * 520)
    detector = Detector(awaits_evidence=True)
    # when looks find nothing
    findings: list[Finding] = []
    for sample in samples:
        findings += detector.update(sample)
        for suspicion in detector.suspicions:
            findings += detector.conclude(suspicion, conclusion(Outcome.OPEN, reason="nothing was found"))
    # then
    assert FindingKind.LEAK not in {finding.kind for finding in [*findings, detector.verdict()]}


@pytest.mark.parametrize(("lacks_survivors", "counts"), [(False, [True, True]), (True, [False, True])])
def test_a_first_look_that_could_not_follow_what_survives_is_not_enough(
    lacks_survivors: bool, counts: list[bool]
) -> None:
    # given looks that leave it open what grows
    detector = Detector(awaits_evidence=True)
    alive, explanations = detector._feed.channels[Channel.ALLOCATED], detector._explanations
    opened = conclusion(Outcome.OPEN, reason="nothing was found", lacks_survivors=lacks_survivors)
    # when
    counted = []
    for _ in range(2):
        explanations.note(alive, opened)
        counted.append(explanations.was_looked_at(alive))
    # then
    assert counted == counts
