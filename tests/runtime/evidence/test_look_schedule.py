"""When to look, with a clock that the test sets."""

from __future__ import annotations

import random

import pytest

from tbmem.runtime.evidence.look_schedule import INTERVAL, LastNumbers, LookSchedule

LOOK = 100e-6  # seconds of a processor that a look takes


class Steps:
    """Steps of a training loop, at which a schedule looks; every figure in seconds."""

    def __init__(self, usual: float, look: float = LOOK) -> None:
        self.now = self.worked = 0.0
        self.usual, self.look = usual, look
        self.step = 0
        self.schedule = LookSchedule(lambda: self.now, lambda: self.worked)
        self._next_look = self.schedule.wait
        self._limit: float | None = None
        self._expires: float | None = None
        self._together = self._untimed = 1
        self.starts = 0  # of the timer

    def run(self, duration: float, *, is_high: bool = False) -> list[float]:
        """One step; returns when in it was looked."""
        self.step += 1
        began, ends = self.now, self.now + duration
        self._untimed -= 1
        if self._untimed <= 0:
            self._untimed = self._together
            self._expires = None if self._limit is None else began + self._limit
            self.starts += self._limit is not None
        looks = []
        while (at := min(self._next_look, self._expires or self._next_look)) < ends:
            has_expired = at == self._expires
            self.now = at
            self.schedule.begin_look(self.step, self._limit if has_expired else None)
            self.worked += self.look
            self.schedule.end_look(self.step, is_high=is_high)
            looks.append(at - began)
            self._next_look = at + self.schedule.wait
            self._expires = None if has_expired else self._expires
        self.now = ends
        self._limit, self._together = self.schedule.limit, self.schedule.steps_together
        return looks

    def starts_in(self, count: int) -> int:
        """How often the timer is started in so many usual steps."""
        before = self.starts
        self.run_many(count)
        return self.starts - before

    def run_many(self, count: int) -> list[list[float]]:
        """Usual steps, of which none is like the other."""
        chance = random.Random(1)
        return [self.run(self.usual * chance.uniform(0.9, 1.1)) for _ in range(count)]


def test_looks_are_apart_in_ordinary_steps() -> None:
    # given steps of 7 ms
    steps = Steps(0.007)
    steps.run_many(2000)
    # when
    spent = steps.worked
    looks = sum(len(looks) for looks in steps.run_many(2000))
    # then they take no more than a thousandth or two of the time
    assert looks > 100
    assert (steps.worked - spent) / (2000 * 0.007) < 5e-3


def test_a_long_step_is_looked_at_every_millisecond() -> None:
    steps = Steps(0.007)
    steps.run_many(300)
    looks = steps.run(0.06)
    assert looks[0] <= 1.5 * 1.1 * 0.007
    assert len(looks) > 30


def test_short_steps_of_a_long_run_are_timed_together() -> None:
    # given
    steps = Steps(0.003)
    steps.run_many(1100)
    # then starting the timer takes 0.2 % of the time, and a long step is still looked at often
    assert steps.starts_in(1000) * 25e-6 < 0.0022 * 1000 * 0.003
    looks = steps.run(0.06)
    assert looks[0] <= 5.5 * 1.1 * 0.003
    assert len(looks) > 20


def test_steps_that_are_not_short_are_timed_one_by_one() -> None:
    steps = Steps(0.02)
    steps.run_many(1100)
    assert steps.starts_in(500) == 500


def test_what_is_usual_in_a_loop_of_short_steps_is_known_after_an_eighth_of_a_second() -> None:
    # given steps of 2 ms
    steps = Steps(0.002)
    steps.run_many(65)
    # when one takes five times as long
    looks = steps.run(0.01)
    # then it is looked at from half of a usual one beyond a usual one on
    assert looks[0] <= 1.5 * 1.1 * 0.002
    assert len(looks) >= 6


def test_a_high_step_is_looked_at_often_after_the_first_look() -> None:
    # given steps of which none is long
    steps = Steps(0.1)
    steps.run_many(100)
    # when
    looks = steps.run(0.1, is_high=True)
    # then
    assert looks[0] < 2 * INTERVAL
    assert len(looks) > 30


def test_a_few_steps_are_looked_at_from_their_beginning_whatever_they_need() -> None:
    # given
    steps = Steps(0.02)
    # when
    whole = [looks for looks in steps.run_many(2000) if steps.schedule.is_whole(steps.step) or len(looks) > 5]
    # then eight at first, and one in five seconds after that
    assert all(looks[0] < 0.002 for looks in whole[:8])
    assert 12 <= len(whole) <= 20


def test_a_long_evaluation_is_hardly_looked_at_more_often() -> None:
    steps = Steps(0.05)
    steps.run_many(200)
    before = steps.worked
    looks = steps.run(60)
    assert steps.worked - before < 0.12
    assert looks[-1] - looks[-2] > 0.05


@pytest.mark.parametrize("look", [LOOK, 2e-3])
def test_looks_at_long_steps_end_with_their_credit(look: float) -> None:
    # given steps of which every other one is long
    steps = Steps(0.01, look)
    steps.run_many(200)
    # when
    for _ in range(5000):
        steps.run(0.01)
        steps.run(0.05)
    # then they have taken 0.2 s and a share
    assert steps.worked < 0.3 + 0.006 * steps.now


def test_dear_looks_are_further_apart() -> None:
    cheap, dear = Steps(0.03), Steps(0.03, look=600e-6)
    few, many = (sum(len(looks) for looks in steps.run_many(2000)) for steps in (dear, cheap))
    assert few < many
    assert dear.schedule.wait > 0.1


def test_the_oldest_numbers_are_forgotten() -> None:
    numbers = LastNumbers()
    assert numbers.that(0.5) == 0
    for number in range(100):
        numbers.add(number)
    assert len(numbers) == 64
    assert numbers.that(0.0) == 36
    assert numbers.that(0.5) == 68
