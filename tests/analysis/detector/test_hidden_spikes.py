"""Spikes that only looks at the program have seen, beside one that the resident peak has shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbmem.analysis.detector.hidden_spikes import HiddenSpikes
from tbmem.analysis.detector.resident_peaks import ResidentPeak, ResidentPeaks
from tbmem.analysis.detector.spike_test import Excursion, ExcursionKind
from tbmem.model.finding import Finding
from tests.conftest import MIB
from tests.model.test_finding import make_finding

USUAL = 375 * MIB
LEAST = 16 * MIB


def spike(step: int, height: int = 140) -> Finding:
    return make_finding(first_step=step, last_step=step, evidence={"height_bytes": height * MIB})


def hidden(allocated: dict[int, int], *reported: Finding) -> list[Excursion]:
    peaks = ResidentPeaks()
    peaks.extend(ResidentPeak(step, USUAL, USUAL - 30 * MIB) for step in range(13, 220))
    spikes = HiddenSpikes(lambda first, last: peaks, LEAST)
    spikes.note({step: size * MIB for step, size in allocated.items()})
    return spikes.beside(reported, lambda step: False)


def test_a_step_that_needed_what_malloc_had_kept_is_a_spike_beside_one() -> None:
    # given: a step whose resident peak is the usual one
    found = hidden({60: 140, 130: 80}, spike(60))
    # then its height is what it has allocated
    assert found == [Excursion(ExcursionKind.SPIKE, 130, 130, USUAL, USUAL, kept=80 * MIB)]
    assert found[0].height == 80 * MIB


def test_a_step_of_a_period_that_was_reported_is_no_spike_beside_one() -> None:
    # given: evaluations of each tenth step, of which looks have seen one after malloc had kept what they need
    peaks = ResidentPeaks()
    peaks.extend(ResidentPeak(step, USUAL, USUAL - 30 * MIB) for step in range(13, 220))
    spikes = HiddenSpikes(lambda first, last: peaks, LEAST)
    spikes.note({130: 80 * MIB})
    # then
    assert spikes.beside([], lambda step: step % 10 == 0) == []


def test_a_step_that_looks_have_seen_needs_no_other_spike_beside_it() -> None:
    # given resident peaks that malloc's free memory hides, in steps of which one needed far more than the next
    found = hidden({40: 19, 60: 24, 130: 80, 170: 22, 200: 20})
    # then
    assert [each.first_step for each in found] == [130]
    assert hidden({60: 70, 130: 80, 170: 60, 200: 65}) == []  # they vary


def test_what_the_highest_has_allocated_counts_not_the_holes_that_it_has_left() -> None:
    # given a step that allocated an eighth of what the highest did, whose resident peak is twice as high
    highest = spike(60, height=320)
    highest = replace(highest, evidence={**highest.evidence, "needed_bytes": 160 * MIB})
    # when / then
    assert [each.first_step for each in hidden({130: 27}, highest)] == [130]
    assert hidden({130: 27}, spike(60, height=320)) == []


@pytest.mark.parametrize(
    ("allocated", "reported"),
    [
        ({130: 17}, [spike(60)]),  # so little beside it may be chance
        ({63: 80}, [spike(60)]),  # of the same event
        ({130: 15}, [spike(60, height=20)]),  # less than any spike of the resident memory
        ({90: 80, 130: 90, 160: 80}, [spike(60)]),  # with it more than three: they recur
        ({90: 28, 130: 35, 160: 24}, [spike(60)]),  # steps that vary
        ({130: 80}, [spike(30), spike(60), spike(90)]),
        ({400: 80}, [spike(60)]),  # no resident peak of it is known
    ],
)
def test_what_is_no_spike_of_its_own(allocated: dict[int, int], reported: list[Finding]) -> None:
    assert hidden(allocated, *reported) == []


def test_those_that_stand_apart_are_found_among_steps_that_vary() -> None:
    # given two large steps, and others of which none is much larger than the next
    found = hidden({40: 97, 90: 35, 130: 60, 160: 28, 200: 24}, spike(60))
    # then
    assert [each.first_step for each in found] == [40, 130]


def test_one_is_remembered_after_its_resident_peak_is_forgotten() -> None:
    # given
    peaks = ResidentPeaks()
    spikes = HiddenSpikes(lambda first, last: peaks, LEAST)
    for step in range(13, 2000):
        peaks.append(ResidentPeak(step, USUAL, USUAL - 30 * MIB))
        # when it is noted from time to time, beside others that are small
        if step % 64 == 0:
            spikes.note({130: 80 * MIB, **dict.fromkeys(range(140, step, 10), 17 * MIB)})
    # then
    assert [each.first_step for each in spikes.beside([spike(60)], lambda step: False)] == [130]
