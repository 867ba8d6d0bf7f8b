"""What a verdict remembers of the findings: the worst, not the latest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbmem.analysis.detector.spike_test import Excursion, ExcursionKind
from tbmem.analysis.detector.verdict_history import VerdictHistory, comes_with, worst_spike
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.units import MIB


def finding(
    kind: FindingKind, step: int = 40, severity: Severity = Severity.WARNING, height: int = 0, peak: int = 0
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        device="cpu",
        first_step=step,
        last_step=step,
        message="",
        evidence={"channel": "host", "height_bytes": height, "peak_bytes": peak},
    )


def excursion(kind: ExcursionKind, step: int, period: int = 0, members: tuple[int, ...] = ()) -> Excursion:
    return Excursion(kind, step, step, 200 * MIB, 100 * MIB, period, members)


def test_the_highest_spike_is_the_worst_whatever_came_last() -> None:
    # given
    history = VerdictHistory()
    highest = finding(FindingKind.SPIKE, 40, height=300 * MIB)
    # when
    for each in (highest, finding(FindingKind.SPIKE, 80, height=100 * MIB), finding(FindingKind.LEVEL_SHIFT, 90)):
        history.add(each)
    # then it is the verdict, which names the steps of both
    worst = history.severe(fragmented=False)
    assert worst == replace(highest, message=" · the highest of 2: steps 40, 80")


def test_an_evaluation_is_no_verdict_but_is_noted() -> None:
    # given more evaluations than are remembered, and one spike that is lower
    history, spike = VerdictHistory(), finding(FindingKind.SPIKE, 40, height=MIB)
    evaluations = [
        finding(FindingKind.SPIKE, step, Severity.INFO, height=step * MIB, peak=step * MIB) for step in range(50, 90)
    ]
    # when
    for each in evaluations:
        history.add(each)
    # then
    assert history.severe(fragmented=False) is None
    noted = history.noted()
    assert noted is not None
    assert noted.first_step == 89
    assert noted.message == " · the highest of more than 5"
    # and with the spike that is the verdict
    history.add(spike)
    for each in evaluations:
        history.add(each)
    assert history.severe(fragmented=False) is spike


def test_of_spikes_of_about_one_height_the_worst_is_the_runs_peak() -> None:
    # given: what is usual has risen meanwhile; what is alive at the end of a step is another figure
    first = finding(FindingKind.SPIKE, 12, height=300 * MIB, peak=800 * MIB)
    second = finding(FindingKind.SPIKE, 30, height=290 * MIB, peak=810 * MIB)
    lower = finding(FindingKind.SPIKE, 70, height=100 * MIB, peak=900 * MIB)
    held = finding(FindingKind.SPIKE, 90, height=295 * MIB, peak=950 * MIB)
    held.evidence["channel"] = "allocated"
    # when / then
    assert worst_spike([first, second, lower, held]).first_step == second.first_step


def test_being_nearly_full_is_worse_than_a_spike_and_being_tight_is_not() -> None:
    # given
    history, spike = VerdictHistory(), finding(FindingKind.SPIKE, height=MIB)
    history.add(spike)
    # when / then
    history.add(finding(FindingKind.NEAR_CAPACITY, severity=Severity.INFO))
    assert history.severe(fragmented=False) is spike
    full = finding(FindingKind.NEAR_CAPACITY, severity=Severity.CRITICAL)
    history.add(full)
    history.add(finding(FindingKind.NEAR_CAPACITY, severity=Severity.WARNING))
    assert history.severe(fragmented=False) is full


def test_fragmentation_counts_while_it_stands() -> None:
    history, fragmented = VerdictHistory(), finding(FindingKind.FRAGMENTATION)
    history.add(fragmented)
    assert history.severe(fragmented=True) is fragmented
    assert history.severe(fragmented=False) is None


def test_a_period_takes_back_its_spikes_and_its_shift_and_is_news_once() -> None:
    # given
    history = VerdictHistory()
    history.add(finding(FindingKind.SPIKE, 20, height=MIB))
    history.add(finding(FindingKind.LEVEL_SHIFT, 20))
    periodic = excursion(ExcursionKind.PERIODIC, 60, period=20, members=(20, 40, 60))
    # when
    news = [history.note_period(channel, periodic) for channel in (Channel.ALLOCATED, Channel.HOST)]
    # then
    assert news == [True, False]
    assert history.severe(fragmented=False) is None
    assert history.shift() is None


@pytest.mark.parametrize("is_known", [True, False])
def test_a_period_names_the_largest_of_its_spikes_if_that_is_not_the_last(is_known: bool) -> None:
    # given three steps, of which the second is the largest, by what they allocated or by their resident peaks
    history = VerdictHistory()

    def found(kind: FindingKind, step: int, height: int, allocated: int) -> Finding:
        evidence = {"member_steps": [20, 40, 60], "period_steps": 20, "height_bytes": height * MIB}
        evidence |= {"needed_bytes": allocated * MIB} if is_known else {}
        return replace(finding(kind, step), evidence=evidence)

    history.add(found(FindingKind.SPIKE, 20, 95, 60))
    history.add(found(FindingKind.SPIKE, 40, 120, 90))
    # when
    named = history.with_largest(found(FindingKind.PERIODIC, 60, 130 if is_known else 100, 75))
    # then
    told = "needed at least +90.00 MiB more" if is_known else "took +120.00 MiB more memory"
    assert named.message.endswith(f" · the largest was step 40, which {told} than usual")
    assert named.evidence["largest_step"] == 40
    # and nothing where the last is the largest, or about as large
    for size in (200, 85):
        last = found(FindingKind.PERIODIC, 60, size + 30, size)
        assert history.with_largest(last) == last


@pytest.mark.parametrize("is_known", [True, False])
def test_a_verdict_of_several_spikes_says_what_each_allocated_where_that_is_known(is_known: bool) -> None:
    # given
    spikes = [finding(FindingKind.SPIKE, step, height=size * MIB) for step, size in ((83, 60), (171, 90), (262, 30))]
    spikes = [
        replace(each, evidence={**each.evidence, "needed_bytes": 2 * each.evidence["height_bytes"]})
        if is_known or each.first_step != 83
        else each
        for each in spikes
    ]
    # when
    message = worst_spike(spikes).message
    # then
    each = ", which needed at least +120.00 MiB, +180.00 MiB, +60.00 MiB more than usual" if is_known else ""
    word = "largest" if is_known else "highest"
    assert message == f" · the {word} of 3: steps 83, 171, 262{each}"


def test_of_spikes_whose_needs_were_seen_the_largest_is_the_one_that_needed_most() -> None:
    # given three large batches, of which the last is on top of what malloc has kept of the second
    def spike(step: int, height: int, allocated: int, peak: int) -> Finding:
        found = finding(FindingKind.SPIKE, step, height=height * MIB)
        return replace(found, evidence={**found.evidence, "needed_bytes": allocated * MIB, "peak_bytes": peak * MIB})

    spikes = [spike(120, 190, 189, 600), spike(187, 300, 315, 715), spike(270, 310, 252, 722)]
    # when / then
    assert worst_spike(spikes).first_step == 187


@pytest.mark.parametrize(("height", "stands"), [(8 * MIB, False), (40 * MIB, True)])
def test_a_small_part_of_a_spike_that_stays_is_no_level_of_its_own(height: int, stands: bool) -> None:
    # given an evaluation, of which a library keeps a buffer
    history, shift = VerdictHistory(), finding(FindingKind.LEVEL_SHIFT, 50, height=height)
    history.add(finding(FindingKind.SPIKE, 50, Severity.INFO, height=70 * MIB))
    # when
    history.add(shift)
    # then
    assert history.is_kept_of_a_spike(50, height) is not stands
    assert history.shift() is (shift if stands else None)
    # and what rises elsewhere is one
    assert not history.is_kept_of_a_spike(51, height)


def test_a_spike_that_was_reported_explains_that_of_another_channel() -> None:
    # given
    history = VerdictHistory()
    history.add(finding(FindingKind.SPIKE, 40, height=MIB))
    # when / then
    assert history.explains(Channel.HOST, excursion(ExcursionKind.SPIKE, 40))
    assert not history.explains(Channel.HOST, excursion(ExcursionKind.SPIKE, 41))


@pytest.mark.parametrize(
    ("channel", "height", "is_known"),
    [("allocated", 100, True), ("allocated", 80, False), ("host_peak_rss", 100, False)],
)
def test_what_a_spike_still_held_as_its_step_ended_is_no_spike_of_the_next(
    channel: str, height: int, is_known: bool
) -> None:
    # given a spike in step 40, held when that ended or not, and 100 MiB in the step after it
    history, spike = VerdictHistory(), finding(FindingKind.SPIKE, 40, height=height * MIB)
    history.add(replace(spike, evidence={**spike.evidence, "channel": channel}))
    # when / then
    assert history.explains(Channel.HOST, excursion(ExcursionKind.SPIKE, 41)) is is_known


@pytest.mark.parametrize(
    ("first", "last", "growth", "comes"),
    [(20, 90, 110, True), (20, 90, 140, False), (40, 90, 110, False), (20, 39, 110, False)],
)
def test_growth_that_came_with_a_change_of_level_is_that_change(
    first: int, last: int, growth: int, comes: bool
) -> None:
    shift = finding(FindingKind.LEVEL_SHIFT, 40, height=100 * MIB)

    assert comes_with(shift, first, last, growth * MIB) is comes
    assert not comes_with(None, first, last, growth * MIB)
