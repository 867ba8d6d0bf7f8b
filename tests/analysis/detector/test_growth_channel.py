"""Growth that does not end, and everything that only looks like it."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from scipy.stats import theilslopes

from tbmem.analysis.detector.growth_channel import GrowthChannel, GrowthEvent
from tbmem.analysis.detector.growth_test import Change, GrowthTest
from tbmem.analysis.detector.trend import Trend, TrendState
from tbmem.model.evidence import Channel, Suspicion
from tbmem.model.sample import MemorySample
from tests.conftest import GIB, MIB

KIB = 1 << 10
BASE = 40 * GIB


def make_channel(patience: int = 48, min_growth: int = 2 * MIB, min_growth_percent: float = 0.02) -> GrowthChannel:
    test = GrowthTest(patience=patience, min_growth=min_growth, min_growth_percent=min_growth_percent)
    return GrowthChannel(Channel.ALLOCATED, test)


def run(levels: list[int], channel: GrowthChannel | None = None) -> tuple[Trend | None, list[int]]:
    """The leak that stands at the end, and the steps at which one was told or taken back."""
    channel = channel or make_channel()
    events = channel.extend(range(1, len(levels) + 1), levels)
    trend = channel.growth.trend
    told = [event.step for event in events if event.trend.state is TrendState.LEAK]
    return (trend if trend is not None and trend.state is TrendState.LEAK else None), told


def rate_of(levels: list[int]) -> float:
    """The rate of the leak that stands at the end."""
    channel = make_channel()
    growth, _ = run(levels, channel)
    assert growth is not None
    return channel.rate(growth)


def suspected(levels: list[int]) -> list[GrowthEvent]:
    """Suspicions in a series."""
    events = make_channel(patience=10_000).extend(range(1, len(levels) + 1), levels)
    return [event for event in events if event.change is Change.SUSPECTED]


def suspicion(channel: GrowthChannel, events: list[GrowthEvent]) -> Suspicion:
    """The first suspicion as the detector gets it."""
    event = next(event for event in events if event.change is Change.SUSPECTED)
    return channel.suspicion(event.trend, MemorySample(step=event.step, time=0.0, device="cpu"), event.rate)


def rises_of(levels: list[int]) -> int:
    """By how few rises the growth of a series came, as a suspicion says."""
    channel = make_channel()
    channel.extend(range(1, len(levels) + 1), levels)
    first, *_, last = channel.growth.marks.at(0)
    trend = Trend.over([first, last], 0, channel.growth.marks)
    return channel.suspicion(trend, MemorySample(step=len(levels), time=0.0, device="cpu"), 0.0).rises


def climb(steps: int, per_step: int, base: int = BASE) -> list[int]:
    return [base + per_step * step for step in range(steps)]


# growth


@pytest.mark.parametrize("per_step", [MIB, 50 * MIB, 2 * GIB])
@pytest.mark.parametrize("steps", [52, 60, 100, 333, 1000, 5000])
def test_a_clean_leaks_rate_is_that_of_theil_and_sen(per_step: int, steps: int) -> None:
    # given
    levels = climb(steps, per_step)
    sampled = np.linspace(0, steps - 1, min(steps, 200), dtype=int)
    slope = theilslopes(np.array(levels, dtype=float)[sampled], sampled).slope
    # when / then
    assert rate_of(levels) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(
    ("at", "rises"), [((40,), 1), ((24, 40, 64), 3), ((20, 32, 44, 60), 0), (tuple(range(1, 80)), 0)]
)
def test_growth_by_a_few_rises_is_known_as_such(at: tuple[int, ...], rises: int) -> None:
    assert rises_of([BASE + 4 * MIB * sum(step >= rise for rise in at) for step in range(80)]) == rises


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_leaks_rate_is_that_of_theil_and_sen(seed: int) -> None:
    # given: noise as high as ten steps of growth
    dice = random.Random(seed)
    levels = [level + dice.randrange(30 * MIB) for level in climb(400, 3 * MIB)]
    slope = theilslopes(np.array(levels, dtype=float)).slope
    # when / then
    assert rate_of(levels) == pytest.approx(slope, rel=0.02)


def test_growth_is_told_with_where_it_began_and_how_far_it_came() -> None:
    # given / when
    growth, _ = run([BASE] * 100 + climb(100, 10 * MIB))
    # then
    assert growth is not None
    assert 96 <= growth.first.step <= 110
    assert growth.last.step <= 200
    assert growth.first.level == pytest.approx(BASE, abs=100 * MIB)
    assert growth.growth == growth.last.level - growth.first.level


@pytest.mark.parametrize("per_step", [6 * KIB, 256 * KIB, 8 * MIB])
@pytest.mark.parametrize("began", [21, 22, 23, 24, 150, 1001])
def test_growth_after_a_level_that_stood_began_with_the_first_step_that_kept_something(
    per_step: int, began: int
) -> None:
    # given the levels at the ends of steps 1, 2, 3 ..., with objects of Python that come and go
    dice = random.Random(began)
    levels = [BASE + per_step * max(step + 1 - began, 0) + dice.randrange(400) for step in range(1, began + 300)]
    channel = make_channel(patience=10_000)
    # when
    seen = suspicion(channel, channel.extend(range(1, len(levels) + 1), levels))
    # then
    assert (seen.began, seen.may_be_earlier) == (began, False)
    # and the growth is that of the steps from there on
    assert seen.growth == pytest.approx(per_step * seen.judged_steps, abs=800)
    assert seen.judged_steps == seen.last_step - seen.began + 1


@pytest.mark.parametrize("began", [101, 102, 103, 104])
def test_within_a_block_whose_levels_differ_the_growth_tells_where_it_began(began: int) -> None:
    # given steps that end with 20 KiB more or less, but for each fourth, and 500 KiB more from one of them on
    dice = random.Random(began)
    noise = [0 if step % 4 == 1 else 20 * KIB + dice.randrange(400) for step in range(1, began + 60)]
    levels = [BASE + 500 * KIB * max(step + 1 - began, 0) + noise[step - 1] for step in range(1, began + 60)]
    channel = make_channel(patience=10_000)
    # when
    seen = suspicion(channel, channel.extend(range(1, len(levels) + 1), levels))
    # then, to a step
    assert began - 1 <= seen.began <= began
    assert not seen.may_be_earlier


@pytest.mark.parametrize("per_step", [2 * KIB, 6 * KIB, 8 * MIB])
@pytest.mark.parametrize("freed", [0, 8])
def test_growth_that_was_there_with_the_first_steps_that_were_judged_may_be_earlier(per_step: int, freed: int) -> None:
    # given a leak in all steps, of which those of a window are not judged; what that has left is freed after it
    levels = [max(level, BASE + freed * per_step) for level in climb(387, per_step)]
    channel = make_channel(patience=10_000)
    # when
    seen = suspicion(channel, channel.extend(range(13, 400), levels))
    # then
    assert seen.may_be_earlier
    assert seen.began <= 13 + freed


def test_steep_growth_is_not_waited_out() -> None:
    # given: 2 GiB a step on 45 GiB would fill an 80 GiB device in 18 steps
    channel = make_channel(patience=300)
    channel.total = 80 * GIB
    _, changes = run(climb(18, 2 * GIB, 45 * GIB), channel)
    # then
    assert changes[0] == 12


def test_a_steep_cycle_is_told_once_at_most() -> None:
    # given: garbage that nearly fills the device until the collector runs
    channel = make_channel(patience=300)
    channel.total = 80 * GIB
    # when
    _, told = run([45 * GIB + GIB * (step % 30) for step in range(900)], channel)
    # then: told, taken back, and never again
    assert told == [16, 32]


def test_growth_that_leaves_time_is_waited_out() -> None:
    # given: the same on a device ten times as large
    channel = make_channel(patience=300)
    channel.total = 800 * GIB
    # when / then
    assert run(climb(18, 2 * GIB, 45 * GIB), channel)[1] == []


@pytest.mark.parametrize("patience", [48, 96, 300])
def test_gentle_growth_is_waited_out_for_as_many_steps_as_the_patience(patience: int) -> None:
    _, changes = run(climb(400, 10 * MIB), make_channel(patience))
    assert patience <= changes[0] <= 1.1 * patience


def test_a_slow_leak_on_a_high_level_is_found_in_the_end() -> None:
    # given: 300 KiB a step; 0.02 % of 40 GiB are 8.2 MiB
    _, changes = run(climb(400, 300 * KIB))
    # then: not before it has grown by as much
    assert 48 <= changes[0] <= 100


@pytest.mark.parametrize(("per_step", "found"), [(35 * KIB, False), (55 * KIB, True)])
def test_growth_below_the_smallest_that_counts_is_not_told(per_step: int, found: bool) -> None:
    # given: 50 steps only, so that the growth can be no larger
    _, changes = run(climb(50, per_step, base=0), make_channel(min_growth=2 * MIB, min_growth_percent=0))
    # then
    assert bool(changes) is found


def test_growth_below_its_share_of_the_level_is_not_told() -> None:
    # given: 44 MiB of growth; two per cent of 4 GiB are 82 MiB
    assert run(climb(50, MIB, 4 * GIB), make_channel(min_growth=0, min_growth_percent=2))[1] == []
    assert run(climb(50, MIB, GIB), make_channel(min_growth=0, min_growth_percent=2))[1] != []


def test_a_leak_under_a_sawtooth_is_found() -> None:
    # given: gradient accumulation over 8 steps, and 10 MiB kept at each
    levels = [level + GIB * (step % 8) for step, level in enumerate(climb(400, 10 * MIB))]
    # when / then
    assert rate_of(levels) == pytest.approx(10 * MIB, rel=0.02)


def test_a_leak_of_one_block_every_few_steps_is_found() -> None:
    levels = [BASE + 100 * MIB * (step // 10) for step in range(600)]
    assert rate_of(levels) == pytest.approx(10 * MIB, rel=0.02)


# what only looks like growth

FLAT = [BASE] * 400


@pytest.mark.parametrize(
    "levels",
    [
        FLAT,
        [47 * GIB + GIB * (step % 2) for step in range(400)],
        [BASE + 100 * MIB * (step % 4) for step in range(400)],
        [BASE + GIB * (step % 8) for step in range(400)],
        [BASE - 50 * MIB * step for step in range(400)],
        [BASE] * 100 + [BASE + 10 * GIB] * 300,
        [BASE] * 100 + [BASE + 10 * GIB] + [BASE] * 299,
        [BASE + (5 * GIB if step % 50 == 49 else 0) for step in range(400)],
        climb(10, 10 * MIB) + [BASE + 100 * MIB] * 390,
        [round(BASE * (1 + 0.5 * (1 - 0.6**step))) for step in range(400)],
        [0] * 400,
    ],
    ids=[
        "flat",
        "two levels",
        "accumulation over 4",
        "accumulation over 8",
        "falling",
        "one step up",
        "one spike",
        "validation",
        "short ramp",
        "warm-up that slows down",
        "nothing",
    ],
)
def test_what_ends_or_comes_back_is_no_growth(levels: list[int]) -> None:
    assert run(levels) == (None, [])


@pytest.mark.parametrize("ramp", [16, 30, 60, 200])
def test_a_ramp_that_ended_long_ago_is_growth_no_more(ramp: int) -> None:
    # given: a bounded cache that has filled up, then ten times as long at its level
    levels = climb(ramp, 500 * MIB)
    # when
    growth, _ = run(levels + [levels[-1]] * (10 * ramp))
    # then
    assert growth is None


def test_a_leak_of_no_use_to_anybody_stands_when_it_has_ended() -> None:
    # given: confirmed by evidence, which knows that it is a cache that is never hit
    channel = make_channel()
    run(climb(100, 500 * MIB), channel)
    assert channel.growth.trend is not None
    channel.growth.trend.lasting = True
    # when
    growth, told = run([BASE + 99 * 500 * MIB] * 1000, channel)
    # then
    assert growth is not None
    assert told == []


def test_growth_that_falls_back_is_taken_back_with_the_next_floor() -> None:
    # given
    channel = make_channel()
    run(climb(100, 10 * MIB), channel)
    # when
    events = channel.extend(range(101, 109), [BASE] * 8)
    # then
    assert [event.change for event in events] == [Change.FELL]
    assert channel.growth.trend is None


def test_growth_that_falls_back_a_little_stands() -> None:
    # given
    channel = make_channel()
    run(climb(100, 10 * MIB), channel)
    # when: a third of it is free again
    events = channel.extend(range(101, 109), [BASE + 660 * MIB] * 8)
    # then
    assert events == []
    assert channel.growth.trend is not None


@pytest.mark.parametrize(("period", "per_step"), [(12, GIB), (32, 250 * MIB), (64, 125 * MIB)])
def test_growth_that_always_falls_back_again_is_not_told_each_time(period: int, per_step: int) -> None:
    # given: a sawtooth as long as the test looks; that it falls cannot be known the first time
    levels = [BASE + per_step * (step % period) for step in range(10 * period)]
    # when
    _, told = run(levels)
    # then: told and taken back, and again on the way to knowing better
    assert len(told) <= 4
    assert not any(step > 5 * period for step in told)


@pytest.mark.parametrize("percent", [0.01, 0.1, 1.0, 10.0])
def test_flat_noise_is_no_growth(percent: float) -> None:
    # given
    found = 0
    for seed in range(100):
        dice = random.Random(seed)
        levels = [round(BASE * (1 + percent / 100 * dice.random())) for _ in range(300)]
        # when
        found += bool(run(levels)[1])
    # then
    assert found < 2


# suspicion


@pytest.mark.parametrize("per_step", [KIB, 3 * KIB, 260 * KIB, 10 * MIB])
def test_what_grows_at_every_step_is_suspected_within_36_steps(per_step: int) -> None:
    # given: 100 MiB, as a small process on the CPU
    found = suspected(climb(60, per_step, base=100 * MIB))
    # then
    assert len(found) == 1
    assert found[0].step <= 36
    assert found[0].gap == 1


@pytest.mark.parametrize("every", [2, 5, 10])
def test_what_grows_now_and_then_is_suspected_with_its_distance(every: int) -> None:
    # given
    found = suspected([100 * MIB + 100 * KIB * (step // every) for step in range(120)])
    # then
    assert found[0].step <= 72
    assert found[0].gap == every


@pytest.mark.parametrize(("every", "gap"), [(1, 1), (20, 20)])
def test_the_distance_of_rises_is_in_steps_where_each_fifth_is_read(every: int, gap: int) -> None:
    # given: of what rises from each reading to the next it is not known how often it rises in between
    channel = make_channel(patience=10_000)
    events: list[GrowthEvent] = []
    for step in range(0, 400, 5):
        events += channel.extend((step,), (100 * MIB + 100 * KIB * (step // every),))
    # then
    assert next(event.gap for event in events if event.change is Change.SUSPECTED) == gap


def test_a_small_leak_is_suspected_in_the_noise_of_pythons_heap() -> None:
    # given: 10 KiB a step, and objects that come and go
    dice = random.Random(0)
    levels = [level + dice.randrange(8 * KIB) for level in climb(60, 10 * KIB, base=100 * MIB)]
    # when / then
    assert suspected(levels)[0].step <= 40


@pytest.mark.parametrize("width", [100, 4 * KIB, 256 * KIB, 64 * MIB])
def test_flat_noise_is_hardly_ever_suspected(width: int) -> None:
    # given: twenty thousand steps
    dice = random.Random(0)
    # when / then
    assert len(suspected([GIB + dice.randrange(width) for _ in range(20_000)])) <= 2


def test_a_sawtooth_is_suspected_once_at_most() -> None:
    # given: an epoch of 60 steps
    assert len(suspected([100 * MIB + 40 * KIB * (step % 60) for step in range(6000)])) <= 1


def test_a_leak_above_the_height_of_known_cycles_is_suspected() -> None:
    # given: a sawtooth of 60 steps, then a leak under it
    levels = [100 * MIB + 40 * KIB * (step % 60) + max(step - 600, 0) * 20 * KIB for step in range(2000)]
    # when / then
    assert any(event.step > 600 for event in suspected(levels))


def test_growth_that_is_explained_is_left_alone_until_it_has_doubled() -> None:
    # given: a suspicion that the evidence has dismissed
    channel = make_channel(patience=48)
    levels = climb(400, 100 * KIB, base=100 * MIB)
    channel.extend(range(1, 41), levels[:40])
    assert channel.growth.trend is not None
    channel.growth.trend.explain(None)
    # when it goes on
    events = channel.extend(range(41, 401), levels[40:])
    # then
    assert events[0].change is Change.SUSPECTED
    assert 60 <= events[0].step <= 90


@pytest.mark.parametrize("ends_at", [100, 200])
def test_growth_that_will_end_is_left_alone_until_it_should_have(ends_at: int) -> None:
    # given: a cache with a bound
    channel = make_channel(patience=48)
    levels = climb(400, 100 * KIB, base=100 * MIB)
    channel.extend(range(1, 41), levels[:40])
    assert channel.growth.trend is not None
    channel.growth.trend.explain(ends_at)
    # when it goes on
    events = channel.extend(range(41, 401), levels[40:])
    # then: the end is an estimate, of a buffer that episodes of different lengths fill
    assert 1.3 * ends_at <= events[0].step <= 1.35 * ends_at + 24


def test_what_fills_more_slowly_than_expected_is_left_alone_while_it_has_room() -> None:
    # given: 40 steps of 100 KiB, and room for 20 MiB more, which was expected by step 100
    channel = make_channel(patience=48)
    levels = climb(600, 100 * KIB, base=100 * MIB)
    channel.extend(range(1, 41), levels[:40])
    assert channel.growth.trend is not None
    channel.growth.trend.explain(100, 20 * MIB)
    # when
    events = channel.extend(range(41, 601), levels[40:])
    # then: at 1.35 times the room
    assert 40 + 1.35 * 20 * MIB / (100 * KIB) <= events[0].step + 8 <= 40 + 1.35 * 20 * MIB / (100 * KIB) + 40


def test_growth_that_nobody_could_explain_is_suspected_again_ever_later() -> None:
    # given
    channel = make_channel(patience=10_000)
    levels = climb(2000, 100 * KIB, base=100 * MIB)
    steps: list[int] = []
    # when
    for at, level in enumerate(levels):
        for event in channel.extend([at + 1], [level]):
            assert event.change is Change.SUSPECTED
            steps.append(event.step)
            channel.growth.leave_open()
    # then
    gaps = [after - before for before, after in zip(steps, steps[1:], strict=False)]
    assert 3 <= len(steps) <= 7
    assert all(after >= 1.9 * before for before, after in zip(gaps, gaps[1:], strict=False))


@pytest.mark.parametrize(("pace", "again"), [(100, True), (60, True), (20, False)])
def test_growth_that_nobody_could_explain_is_suspected_again_if_it_keeps_its_pace(pace: int, again: bool) -> None:
    # given: a suspicion that was left open
    channel = make_channel(patience=10_000)
    levels = climb(60, 100 * KIB, base=100 * MIB)
    channel.extend(range(1, 61), levels)
    channel.growth.leave_open()
    # when it goes on, as fast or more slowly
    slower = climb(240, pace * KIB, base=levels[-1])
    events = channel.extend(range(61, 301), slower)
    # then
    assert [event.change for event in events] == ([Change.SUSPECTED] if again else [])


def test_what_stays_after_an_unjudged_stretch_is_no_growth() -> None:
    # given: six stretches that leave 3 MiB each, as a profiler may
    channel = make_channel()
    told: list[GrowthEvent] = []
    # when
    for part in range(6):
        told += channel.extend(range(100 * part, 100 * part + 40), [100 * MIB + 3 * MIB * part] * 40)
        channel.interrupt()
    # then
    assert told == []


def test_a_leak_goes_on_where_windows_come_more_often_than_readings() -> None:
    # given a leak of which every step is read
    test = GrowthTest(patience=48, min_growth=2 * MIB, min_growth_percent=0.02)
    watched = GrowthChannel(Channel.ALLOCATED, test)
    told = watched.extend(range(1, 65), climb(64, 400 * KIB))
    watched.growth.confirm()
    # when then one step in a hundred is, and a window of three steps comes every 23
    for step in range(65, 1065):
        if step % 23 < 3:
            watched.interrupt()
            continue
        level = BASE + step * 400 * KIB if step % 100 == 99 else None
        told += watched.extend_updated([True], [step], [level], None, None)
    # then
    assert Change.ENDED not in [event.change for event in told]
    trend = watched.growth.trend
    assert trend is not None
    assert trend.growth > 0.7 * 1000 * 400 * KIB


def test_a_list_that_is_emptied_in_steps_that_are_not_judged_has_fallen() -> None:
    # given: a list of a MiB a step, emptied in step 100, which is looked at
    channel = make_channel()
    channel.extend(range(1, 96), climb(95, MIB))
    assert channel.growth.trend is not None
    # when
    channel.interrupt()
    told = channel.extend(range(105, 200), climb(95, MIB, base=BASE + 4 * MIB))
    # then the growth is not that of both
    assert Change.FELL in [event.change for event in told]
    trend = channel.growth.trend
    assert trend is None or trend.growth < 100 * MIB


def test_what_it_keeps_does_not_grow_with_the_run() -> None:
    # given
    def size(steps: int) -> int:
        channel = make_channel()
        run([BASE + (step * 7919) % GIB for step in range(steps)], channel)
        return len(pickle.dumps(channel))

    # when / then
    assert size(50_000) < 1.5 * size(5_000)


@pytest.mark.parametrize(("channel", "ended"), [(Channel.HOST, False), (Channel.ALLOCATED, True)])
def test_growth_of_the_resident_memory_has_not_ended_while_it_fills_what_a_recording_left_free(
    channel: Channel, ended: bool
) -> None:
    # given: 100 KiB a step; a recording leaves 8 MiB free in the heap, from which the next 80 steps are served
    test = GrowthTest(patience=48, min_growth=2 * MIB, min_growth_percent=0.02)
    watched = GrowthChannel(channel, test)
    watched.extend(range(1, 65), climb(64, 100 * KIB))
    watched.growth.confirm()
    # when
    watched.interrupt()
    top = BASE + 64 * 100 * KIB + 8 * MIB
    events = watched.extend(range(101, 181), [top] * 80)
    # then
    assert [event.change for event in events] == ([Change.ENDED] if ended else [])


def test_growth_that_stays_where_it_is_for_longer_than_a_recording_can_hide_it_has_ended() -> None:
    # given
    test = GrowthTest(patience=48, min_growth=2 * MIB, min_growth_percent=0.02)
    watched = GrowthChannel(Channel.HOST, test)
    watched.extend(range(1, 65), climb(64, 100 * KIB))
    watched.growth.confirm()
    # when
    watched.interrupt()
    events = watched.extend(range(101, 301), [BASE + 64 * 100 * KIB + 8 * MIB] * 200)
    # then
    assert [event.change for event in events] == [Change.ENDED]


def test_what_is_kept_lifts_the_lowest_levels_as_well() -> None:
    # given a leak, and steps that hold more and more of which they let go
    leak, longer = make_channel(), make_channel()
    leak.extend(range(1, 401), climb(400, MIB))
    longer.extend(range(1, 401), [BASE + (MIB * step if step // 20 % 2 else 0) for step in range(400)])
    # when
    shares = [
        channel.lasting_share(Trend.over([marks.at(0)[0], marks.at(0)[-1]], 0, marks))
        for channel, marks in ((leak, leak.growth.marks), (longer, longer.growth.marks))
    ]
    # then
    assert shares[0] == pytest.approx(0.75, abs=0.1)
    assert shares[1] < 0.1


@pytest.mark.parametrize(("read", "stands"), [(True, True), (False, False)])
def test_growth_stands_still_where_it_was_read_and_has_not_gone_on(read: bool, stands: bool) -> None:
    # given growth of 100 steps
    channel = make_channel(patience=1000)
    channel.extend(range(1, 101), climb(100, MIB))
    assert channel.growth.trend is not None
    # when then a hundred steps are at its height, or were not read
    levels = [BASE + 100 * MIB if read else None] * 100
    channel.extend_updated([True] * 100, range(101, 201), levels, None, None)
    # then
    assert channel.stands_still(channel.growth.trend) is stands
