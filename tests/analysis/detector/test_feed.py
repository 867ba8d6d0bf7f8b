"""How full the feed finds a device."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.feed import ExcursionEvent, SampleFeed
from tbmem.analysis.detector.resident_peaks import ResidentPeak
from tbmem.analysis.detector.spike_test import Excursion, ExcursionKind
from tbmem.analysis.detector.thresholds import CapacityEvent
from tbmem.config.schema import PatternsConfig
from tbmem.model.evidence import Channel
from tbmem.model.sample import MemorySample
from tests.conftest import GIB, MIB, MakeSample
from tests.model.test_finding import make_finding


def used_percent(sample: MemorySample) -> float | None:
    """How full the watch finds the device."""
    feed = SampleFeed(PatternsConfig(capacity_percent=(1e-9, 1e-8, 1e-7)))
    full = [event for columns in feed.columns([sample]) for event in feed.take(columns)]
    return full[0].percent if full and isinstance(full[0], CapacityEvent) else None


def test_an_accelerator_counts_its_own_peak(make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, 78.0)) == pytest.approx(97.5)


def test_what_other_processes_use_counts_as_well(make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, 46.0, device_used=60 * GIB)) == pytest.approx(75.0)
    assert used_percent(make_sample(1, 45.0, 70.0, device_used=60 * GIB)) == pytest.approx(87.5)


def test_the_cpu_counts_the_whole_machine(make_sample: MakeSample) -> None:
    # given
    sample = make_sample(1, 45.0, device="cpu", host_available=20 * GIB)
    # when / then
    assert used_percent(sample) == pytest.approx(75.0)
    assert used_percent(sample._replace(host_available=0)) == pytest.approx(100.0)


@pytest.mark.parametrize("total", [None, 0])
def test_without_a_capacity_nothing_can_be_said(total: int | None, make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, device_total=total)) is None


def test_what_is_left_shrinks_with_what_the_process_has_taken_since_it_was_read(make_sample: MakeSample) -> None:
    # given a reading of what is left at step 1, and another at step 41, while the process grows
    feed = SampleFeed(PatternsConfig())
    first = make_sample(1, 1.0, device="cpu", host_available=GIB, host_rss=GIB)
    left = []
    for step in (1, 21, 41, 61):
        rows = [first._replace(step=each, host_rss=GIB + each * MIB) for each in range(step, step + 20)]
        rows = [each._replace(host_available=900 * MIB) if step >= 41 else each for each in rows]
        # when
        for columns in feed.columns(rows):
            feed.take(columns)
        left.append(feed.channels[Channel.ALLOCATED].available)
    # then
    assert left == [GIB - 19 * MIB, GIB - 39 * MIB, 881 * MIB, 861 * MIB]


def test_a_cpu_that_does_not_tell_what_is_available_is_not_judged(make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, device="cpu")) is None


def test_counters_that_are_none_use_nothing() -> None:
    assert used_percent(MemorySample(step=1, time=0.0, device="cuda:0", device_total=80 * GIB)) is None


def _resident(step: int, *, level: int, heap: int, resident: int, peak: int, profiled: bool = False) -> MemorySample:
    """A CPU's sample, all in MiB."""
    counters = {"allocated": level * MIB, "reserved": heap * MIB}
    host = {"host_rss": resident * MIB, "host_peak_rss": peak * MIB}
    return MemorySample(step=step, time=step / 10, device="cpu", profiled=profiled, **counters, **host)


@pytest.mark.parametrize("after", ["pages stay", "pages go back"])
def test_a_spike_in_pages_that_a_recording_gave_back_is_as_high_as_it_was(after: str) -> None:
    # given: a recording has made the heap 300 MiB larger than it has to be, and given the pages back
    feed = SampleFeed(PatternsConfig())
    plain = [_resident(step, level=200, heap=310, resident=500, peak=500) for step in range(1, 4)]
    recorded = [_resident(step, level=210, heap=610, resident=800, peak=800, profiled=True) for step in range(4, 7)]
    usual = [_resident(step, level=200, heap=610, resident=500, peak=500) for step in range(7, 100)]
    # when: a step needs 90 MiB more, which then stay in memory or not
    spike = _resident(100, level=200, heap=610, resident=590, peak=590)
    stays = 590 if after == "pages stay" else 500
    rest = [_resident(step, level=200, heap=610, resident=stays, peak=stays) for step in range(101, 120)]
    samples = [*plain, *recorded, *usual, spike, *rest]
    events = [event for columns in feed.columns(samples) for event in feed.take(columns)]
    # then
    (found,) = [event for event in events if isinstance(event, ExcursionEvent)]
    assert (found.excursion.kind.value, found.excursion.first_step) == ("spike", 100)
    assert found.excursion.height == 90 * MIB


def _excursions_seen_now_and_then(samples: list[MemorySample], since: int = 0) -> list[ExcursionEvent]:
    """What is found where malloc's counters are read in each 16th step from one on."""
    feed = SampleFeed(PatternsConfig())
    rationed = [
        each._replace(allocated=None, reserved=None) if each.step >= since and each.step % 16 else each
        for each in samples
    ]
    events = [event for sample in rationed for columns in feed.columns([sample]) for event in feed.take(columns)]
    return [event for event in events if isinstance(event, ExcursionEvent)]


def test_a_spike_between_two_readings_of_malloc_is_found_by_its_resident_peak() -> None:
    # given
    samples = [
        _resident(step, level=200, heap=310, resident=500, peak=590 if step == 100 else 500) for step in range(1, 120)
    ]
    # when
    (found,) = _excursions_seen_now_and_then(samples)
    # then
    assert (found.excursion.kind.value, found.excursion.first_step) == ("spike", 100)


def test_a_spike_is_found_where_the_resident_memory_has_moved_since_the_last_reading_of_malloc() -> None:
    # given: malloc takes 3 MiB from the system in each odd step and gives them back in each even one
    levels = [(step, 3 * (step % 2)) for step in range(1, 120)]
    samples = [
        _resident(step, level=200, heap=310 + more, resident=500 + more, peak=690 if step == 100 else 503)
        for step, more in levels
    ]
    # when: it was read last in step 96, and the step before the spike has ended 3 MiB higher
    (found,) = _excursions_seen_now_and_then(samples)
    # then
    assert (found.excursion.kind.value, found.excursion.first_step) == ("spike", 100)
    assert found.excursion.height == 187 * MIB


def test_what_malloc_keeps_of_a_spike_before_it_is_read_again_is_no_change_of_level() -> None:
    # given: a larger step has left 90 MiB in malloc's heap, of which its next reading, 12 steps later, will tell
    samples = [
        _resident(step, level=200, heap=310 if step < 100 else 400, resident=high, peak=high)
        for step, high in ((step, 500 if step < 100 else 590) for step in range(1, 150))
    ]
    # when
    (found,) = _excursions_seen_now_and_then(samples)
    # then
    assert (found.excursion.kind.value, found.excursion.first_step) == ("spike", 100)


def test_pages_that_malloc_keeps_of_a_spike_are_no_level_where_its_counters_are_read_late() -> None:
    # given: a recording has given 80 MiB of the heap back, which is read ten steps later; a spike takes them again
    plain = [_resident(step, level=125, heap=155, resident=360, peak=360) for step in range(1, 4)]
    recorded = [_resident(step, level=130, heap=400, resident=605, peak=605, profiled=True) for step in range(4, 7)]
    usual = [_resident(step, level=125, heap=245, resident=370, peak=370) for step in range(7, 100)]
    spike = _resident(100, level=125, heap=360, resident=550, peak=900)
    rest = [_resident(step, level=125, heap=360, resident=550, peak=550) for step in range(101, 150)]
    # when
    (found,) = _excursions_seen_now_and_then([*plain, *recorded, *usual, spike, *rest], since=7)
    # then
    assert (found.excursion.kind.value, found.excursion.first_step) == ("spike", 100)
    assert found.excursion.height == 530 * MIB


def test_pages_that_come_back_after_a_recording_are_no_spike() -> None:
    # given: a recording has given 200 MiB of the heap back, and the first larger steps use 70 MiB of it again for good
    feed = SampleFeed(PatternsConfig())
    plain = [_resident(step, level=150, heap=410, resident=600, peak=600) for step in range(1, 4)]
    recorded = [_resident(step, level=160, heap=610, resident=800, peak=800, profiled=True) for step in range(4, 7)]
    first = [_resident(step, level=150, heap=610, resident=600, peak=600) for step in range(7, 10)]
    rest = [_resident(step, level=150, heap=610, resident=670, peak=670) for step in range(10, 80)]
    # when
    samples = [*plain, *recorded, *first, *rest]
    events = [event for columns in feed.columns(samples) for event in feed.take(columns)]
    events += feed.close()
    # then
    assert not [event for event in events if isinstance(event, ExcursionEvent)]


def test_a_peak_that_is_high_beside_what_is_alive_only_is_no_spike() -> None:
    # given: a step needs 32 MiB more, 8 % of what is alive and 4 % of the resident peak
    feed = SampleFeed(PatternsConfig())
    usual = [_resident(step, level=200, heap=600, resident=800, peak=800) for step in range(1, 100)]
    high = _resident(100, level=200, heap=600, resident=800, peak=832)
    rest = [_resident(step, level=200, heap=600, resident=800, peak=800) for step in range(101, 120)]
    # when
    events = [event for columns in feed.columns([*usual, high, *rest]) for event in feed.take(columns)]
    # then
    assert not [event for event in events if isinstance(event, ExcursionEvent)]


@pytest.mark.parametrize("together", [1, 10])
@pytest.mark.parametrize("parts", [4, 32, 128])
def test_the_first_step_of_an_optimizer_after_many_micro_batches_is_no_change_of_level(
    parts: int, together: int, make_sample: MakeSample
) -> None:
    # given: gradients of 10 GiB live until the optimizer steps, and its first step creates a state of 20 GiB
    feed, samples = SampleFeed(PatternsConfig()), []
    for step in range(1, 6 * parts + 1):
        base, updated = (20.0 if step < parts else 40.0), step % parts == 0
        level, known = base if updated else base + 10, updated if step >= parts else None
        samples.append(make_sample(step, level, base + 18 + step % 3 / 10, updated=known))
    # when
    events = []
    for start in range(0, len(samples), together):
        for columns in feed.columns(samples[start : start + together]):
            events += feed.take(columns)
    events += feed.close()
    # then
    assert [event for event in events if isinstance(event, ExcursionEvent)] == []


@pytest.mark.parametrize(("after", "told"), [(900, 0), (950, 1)])
def test_what_steps_need_of_memory_that_malloc_has_free_is_no_change_of_level(after: int, told: int) -> None:
    # given: 50 MiB more than malloc had free before each step, and resident peaks that show little or all of it
    feed = SampleFeed(PatternsConfig())
    feed._resident_peaks.extend(ResidentPeak(step, 899 * MIB, 830 * MIB) for step in range(1, 60))
    feed._resident_peaks.extend(ResidentPeak(step, after * MIB, 880 * MIB) for step in range(60, 66))
    shift = Excursion(ExcursionKind.SHIFT, 60, 65, 880 * MIB, 830 * MIB)
    # when / then
    assert len(list(feed._excursion_events(Channel.HOST, [(65, shift)]))) == told


def test_a_spike_that_is_told_after_a_recording_has_its_resident_peak() -> None:
    # given: two spikes of the first steps, held back until it is known that they have no period, and a recording
    feed = SampleFeed(PatternsConfig())
    peaks = {4: 590, 7: 595}
    plain = [_resident(step, level=200, heap=310, resident=500, peak=peaks.get(step, 500)) for step in range(1, 16)]
    recorded = [_resident(step, level=210, heap=310, resident=500, peak=500, profiled=True) for step in range(16, 19)]
    rest = [_resident(step, level=200, heap=310, resident=500, peak=500) for step in range(19, 80)]
    samples = [*plain, *recorded, *rest]
    # when
    events = [event for columns in feed.columns(samples) for event in feed.take(columns)]
    found = [event for event in [*events, *feed.close()] if isinstance(event, ExcursionEvent)]
    # then
    assert [event.excursion.peak for event in found] == [590 * MIB, 595 * MIB]
    assert all(event.excursion.usual == 500 * MIB for event in found)


def test_a_spike_in_the_step_after_malloc_gave_memory_back_is_found(make_sample: MakeSample) -> None:
    # given a heap of which malloc gives 14 MiB back at each second step, and resident memory that is read a step later
    samples = []
    for step in range(13, 120):
        is_large = step % 2 == 0
        resident = 363 if not is_large else 349
        samples.append(
            make_sample(step, 0.0, device="cpu")._replace(
                allocated=116 * MIB,
                reserved=(146 if is_large else 132) * MIB,
                peak_allocated=None,
                host_rss=resident * MIB,
                host_peak_rss=(554 if step == 80 else 369) * MIB,
            )
        )
    feed = SampleFeed(PatternsConfig())
    # when
    events = [event for columns in feed.columns(samples) for event in feed.take(columns)]
    # then
    spikes = [event.excursion for event in events if isinstance(event, ExcursionEvent)]
    assert [(each.first_step, each.peak) for each in spikes] == [(80, 554 * MIB)]


@pytest.mark.parametrize(("usual", "is_told"), [(345, True), (430, False)])
def test_a_hidden_spike_is_compared_with_what_was_usual_before_malloc_kept_the_first(
    usual: int, is_told: bool, make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given one of 18 MiB in a process of 434 MiB, beside one that was reported
    feed = SampleFeed(PatternsConfig())
    feed.take(next(iter(feed.columns([make_sample(1, 1.0, device="cpu")]))))
    hidden = Excursion(ExcursionKind.SPIKE, 155, 155, 434 * MIB, 434 * MIB, kept=18 * MIB)
    monkeypatch.setattr(feed.hidden, "beside", lambda reported, is_periodic: [hidden])
    reported = make_finding(first_step=70, last_step=70, evidence={"usual_bytes": usual * MIB})
    # when / then
    assert [event.excursion for event in feed.hidden_spikes([reported], lambda step: False)] == [hidden] * is_told
