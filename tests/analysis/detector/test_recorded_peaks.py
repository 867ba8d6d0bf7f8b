"""Spikes in steps that were recorded, between the memory of the records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tbmem.analysis.detector.recorded_peaks import RecordedPeaks
from tbmem.analysis.detector.spike_test import Confirmation, Excursion, ExcursionKind
from tests.conftest import MIB

USUAL = 300
RECORDED = Confirmation("window.pt.trace.json.gz")


def spikes(
    recorded: Sequence[int],
    *,
    records: Sequence[int] = (0, 0, 0),
    before: Sequence[int] = (USUAL,),
    after: Sequence[int] = (USUAL,) * 40,
    excess: int | None = 1000,
    ends: Sequence[int] = (),
) -> list[Excursion]:
    """What is found in the end for resident peaks of recorded steps and the bytes of their records, all in MiB.

    ``excess``: what the trace tells of the highest; ``ends``: resident memory when steps ended, else the usual peak.
    """
    resident = [end * MIB for end in (*ends, *[USUAL] * (len(before) + len(recorded) + len(after) - len(ends)))]
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.add_plain(range(1, len(before) + 1), [peak * MIB for peak in before], resident[: len(before)])
    test.note_level(100 * MIB, 0)
    for step, (peak, added) in enumerate(zip(recorded, records, strict=True), len(before) + 1):
        test.add_recorded(step, peak * MIB, resident[step - 1], (100 + added) * MIB, 0)
    first = len(before) + len(recorded) + 1
    test.add_plain(range(first, first + len(after)), [peak * MIB for peak in after], resident[first - 1 :])
    return test.ended(lambda step, height: None if excess is None or excess * MIB < height / 2 else RECORDED)


def test_a_recorded_step_that_needed_far_more_is_a_spike_without_its_records() -> None:
    # when: the second of three recorded steps
    [spike] = spikes([302, 510, 306], records=[2, 4, 6])
    # then
    assert (spike.first_step, spike.last_step) == (3, 3)
    assert (spike.peak, spike.usual, spike.left_out) == (506 * MIB, USUAL * MIB, 4 * MIB)


def test_what_records_need_is_no_spike() -> None:
    assert not spikes([400, 500, 600], records=[100, 200, 300])


def test_a_spike_that_is_no_higher_than_its_records_is_not_told() -> None:
    # 90 MiB more than usual, among records of 100 MiB
    assert not spikes([300, 490, 300], records=[0, 100, 0])


def test_steps_that_plain_ones_reach_as_well_are_none() -> None:
    assert not spikes([300, 500, 300], after=[USUAL] * 20 + [490] + [USUAL] * 20)


@pytest.mark.parametrize(("kind", "found"), [(ExcursionKind.SPIKE, 1), (ExcursionKind.PERIODIC, 0)])
def test_a_spike_of_a_plain_step_hides_none_in_a_window(kind: ExcursionKind, found: int) -> None:
    # given: steps 2 and 25 are high, and it is known what the second is
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.note_level(100 * MIB, 0)
    for step, peak in ((2, 500), (3, 301)):
        test.add_recorded(step, peak * MIB, None, 100 * MIB, 0)
    test.add_plain(range(4, 54), [(520 if step == 25 else USUAL) * MIB for step in range(4, 54)], [None] * 50)
    test.note_excursion(Excursion(ExcursionKind.SPIKE, 25, 25, 520 * MIB, USUAL * MIB))
    # when
    test.note_excursion(Excursion(kind, 48, 48, 520 * MIB, USUAL * MIB, period=23, members=(2, 25, 48)))
    # then
    assert len(test.ended(lambda step, height: RECORDED)) == found


def test_windows_in_which_all_steps_are_high_show_no_spike() -> None:
    # what malloc had kept free before is given back after the window
    assert not spikes([500, 510, 505])


def test_a_window_of_one_step_is_compared_with_plain_ones() -> None:
    # given: the run ends with it
    [spike] = spikes([500], records=[3], before=[USUAL] * 40, after=[])
    # then
    assert spike.peak == 497 * MIB


@pytest.mark.parametrize(("excess", "found"), [(200, 1), (104, 1), (90, 0), (-5, 0), (None, 0)])
def test_a_recorded_step_is_a_spike_if_its_tensors_are(excess: int | None, found: int) -> None:
    # 206 MiB more than usual, which may be what lies between the records
    assert len(spikes([302, 510, 306], records=[2, 4, 6], excess=excess)) == found


def test_recorded_steps_are_not_judged_before_the_end() -> None:
    # given
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.note_level(0, 0)
    for step, peak in ((2, 300), (3, 500)):
        test.add_recorded(step, peak * MIB, None, 0, 0)
    # when
    test.add_plain(range(4, 54), [USUAL * MIB] * 50, [None] * 50)
    # then
    assert not test.judged()
    assert len(test.ended(lambda step, height: RECORDED)) == 1


@pytest.mark.parametrize(("plain", "found"), [(5, 0), (12, 1)])
def test_few_plain_steps_are_enough_in_the_end(plain: int, found: int) -> None:
    assert len(spikes([300, 500, 300], after=[USUAL] * plain)) == found


def test_a_window_that_is_open_when_the_run_ends_is_judged() -> None:
    assert len(spikes([300, 500, 300], before=[USUAL] * 40, after=[])) == 1


@pytest.mark.parametrize("at", range(4))
def test_the_steps_after_a_window_are_judged_as_well(at: int) -> None:
    # what is usual is not known yet in them, and a window that a step made too large has ended within the first
    after = [USUAL] * 40
    after[at] = 900
    [spike] = spikes([300, 301], records=[0, 1], after=after)
    assert (spike.first_step, spike.peak, spike.left_out) == (4 + at, 900 * MIB, None)


@pytest.mark.parametrize("known", [Confirmation(), RECORDED])
def test_what_confirms_a_spike_is_known(known: Confirmation) -> None:
    # given
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.note_level(0, 0)
    for step, peak in ((2, 300), (3, 500)):
        test.add_recorded(step, peak * MIB, None, 0, 0)
    test.add_plain(range(4, 54), [USUAL * MIB] * 50, [None] * 50)
    # when
    [spike] = test.ended(lambda step, height: known)
    # then
    assert spike.confirmation is known


def test_what_malloc_keeps_of_a_spike_is_no_spike_of_the_next_step() -> None:
    # given: the step before the window, or its last one, has freed 400 MiB, of which malloc keeps 60
    assert not spikes([360, 305, 306], before=[USUAL] * 40 + [700], after=[USUAL] * 5, ends=[USUAL] * 40 + [360])
    [spike] = spikes([301, 302, 700], before=[USUAL] * 40, after=[360, USUAL], ends=[USUAL] * 42 + [360])
    # then
    assert spike.first_step == 43


def test_a_spike_that_is_held_over_steps_is_told_of_the_first() -> None:
    [spike] = spikes([301, 500, 502], before=[USUAL] * 40, ends=[USUAL] * 41 + [500, 310])
    assert spike.first_step == 42


def test_steps_that_differ_much_anyway_are_no_spikes() -> None:
    # 250 MiB above the usual, where plain ones are up to 150 MiB above
    after = [USUAL] * 20 + [450] + [USUAL] * 20
    assert not spikes([300, 550, 300], after=after)
    assert spikes([300, 650, 300], after=after)


def test_a_window_is_judged_once() -> None:
    # given
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.add_plain(range(1, 41), [USUAL * MIB] * 40, [None] * 40)
    test.note_level(100 * MIB, None)
    # when
    for step, peak in enumerate([300, 500, None], 41):
        test.add_recorded(step, peak and peak * MIB, None, 100 * MIB, None)
    test.add_plain([44], [None], [None])
    test.add_recorded(45, 300 * MIB, None, 100 * MIB, None)
    test.add_plain(range(46, 51), [900 * MIB] + [USUAL * MIB] * 4, [None] * 5)
    # then
    assert [len(test.judged()), len(test.judged())] == [1, 0]
    assert [spike.first_step for spike in test.ended(lambda step, height: RECORDED)] == [42]


def test_what_malloc_does_not_tell_is_not_judged() -> None:
    # given: its counters were not read in the recorded steps
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.add_plain(range(1, 41), [USUAL * MIB] * 40, [None] * 40)
    test.note_level(None, None)
    # when
    test.add_recorded(41, 900 * MIB, None, 100 * MIB, 0)
    test.note_level(100 * MIB, 0)
    test.add_recorded(42, 900 * MIB, None, None, 0)
    test.add_recorded(43, None, None, 100 * MIB, 0)
    # then
    assert not test.ended(lambda step, height: RECORDED)


def test_two_spikes_in_one_window_are_both_told() -> None:
    assert [spike.first_step for spike in spikes([510, 302, 506])] == [2, 4]
    # and the steps after it are plain ones
    assert {spike.first_step for spike in spikes([300, 301, 510], after=[520, *[USUAL] * 40])} == {4, 5}


def test_a_window_that_begins_with_the_run_is_compared_with_what_its_first_step_has_added() -> None:
    # given: no plain step lies before it
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    for step, (peak, heap) in enumerate([(600, 100), (510, 104), (306, 106)], 1):
        test.add_recorded(step, peak * MIB, USUAL * MIB, heap * MIB, 0)
    # when
    test.add_plain(range(4, 54), [USUAL * MIB] * 50, [USUAL * MIB] * 50)
    # then: of the first step it is not known what tbmem has added to it
    [spike] = test.ended(lambda step, height: RECORDED)
    assert (spike.first_step, spike.peak, spike.left_out) == (2, 506 * MIB, 4 * MIB)


def test_a_spike_of_a_plain_step_that_is_known_late_hides_none() -> None:
    # given: step 2 was high, and step 20, which is known as a spike after so many that the window could be judged
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.note_level(100 * MIB, 0)
    for step, peak in ((2, 500), (3, 301)):
        test.add_recorded(step, peak * MIB, None, 100 * MIB, 0)
    test.add_plain(range(4, 54), [(520 if step == 20 else USUAL) * MIB for step in range(4, 54)], [None] * 50)
    assert not test.judged()
    # when
    test.note_excursion(Excursion(ExcursionKind.SPIKE, 20, 20, 520 * MIB, USUAL * MIB))
    # then
    assert [spike.first_step for spike in test.ended(lambda step, height: RECORDED)] == [2]


@pytest.mark.parametrize(("plain", "found"), [(12, 0), (40, 1)])
def test_few_plain_steps_count_with_all_by_which_they_are_apart(plain: int, found: int) -> None:
    # given: resident peaks that chance makes higher or lower, and one of a warm-up that is the highest of all
    after = [USUAL, USUAL - 60, USUAL + 20, USUAL] * (plain // 4)
    assert len(spikes([USUAL + 80, USUAL - 40], records=[0, 0], after=after)) == found


@pytest.mark.parametrize(("known", "found"), [(True, 1), (False, 0)])
def test_what_malloc_keeps_of_a_plain_steps_spike_hides_none_in_a_window(known: bool, found: int) -> None:
    # given: step 2 of a window is high, and step 25 of plain ones, after which malloc keeps 140 MiB for ten steps
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.note_level(100 * MIB, 0)
    for step, peak in ((2, 450), (3, 301)):
        test.add_recorded(step, peak * MIB, None, 100 * MIB, 0)
    peaks = [USUAL] * 21 + [455] + [440] * 10 + [USUAL] * 20
    test.add_plain(range(4, 56), [peak * MIB for peak in peaks], [None] * 52)
    if known:
        test.note_excursion(Excursion(ExcursionKind.SPIKE, 25, 25, 455 * MIB, USUAL * MIB))
    # when / then
    assert len(test.ended(lambda step, height: RECORDED)) == found


@pytest.mark.parametrize(
    ("height", "confirmation", "found"), [(20, RECORDED, 1), (20, Confirmation(), 0), (40, Confirmation(), 1)]
)
def test_a_step_without_a_trace_must_be_twice_as_high(height: int, confirmation: Confirmation, found: int) -> None:
    # given: a window whose second step is high, of which a trace tells or, in a warm-up, nothing
    test = RecordedPeaks(spike_percent=5.0, min_spike=16 * MIB)
    test.note_level(100 * MIB, 0)
    for step, peak in ((1, USUAL), (2, USUAL + height), (3, USUAL)):
        test.add_recorded(step, peak * MIB, None, 100 * MIB, 0)
    test.add_plain(range(4, 54), [USUAL * MIB] * 50, [None] * 50)
    # when / then
    assert len(test.ended(lambda step, height: confirmation)) == found
