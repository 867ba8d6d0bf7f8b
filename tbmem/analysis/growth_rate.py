"""The growth rate of a level: the one definition behind every figure in bytes per step."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

ENOUGH_STEPS = 8
"""Judged steps, or repetitions of a piece of work, below which there is no verdict."""
_MOST_POINTS = 64
"""Points that are compared with each other."""
_FAR = 3
"""Points are compared over at least this part of the stretch: close ones tell noise, not growth."""
_ENOUGH_POINTS = 4
"""Points below which no rate is computed."""
FALLEN_BACK = 0.5
"""Share of a rise that must be free again for it to have fallen back: a cycle, a list that was emptied."""
_SETTLING = 0.25
"""Share of the repetitions of a piece of work in which caches fill; not judged."""
_HALF = 0.2
"""Smallest part of the growth that each half must have: below it memory has changed its level once."""
_FIRST_STRETCH = 8
"""Steps after which the mean duration of a step begins to forget the first ones."""


class Point(NamedTuple):
    """A level, and the step at which it was read."""

    step: int
    """Steps that were not judged are not counted (``Splice``)."""
    level: float


class Splice:
    """Leaves ranges of steps out of a series: their growth and their number.

    Steps under a profiler hold its records as well as the program's memory. What they left behind is taken out of the
    levels after them, and the steps out of the step numbers: a rate over both sides is one of evaluated steps only.

    Args:
        trusts_falls: Whether a level that is far lower afterwards was lowered by the program: a list that was emptied
            meanwhile. What is resident is also lowered by a profiler that gives its own memory back.
    """

    def __init__(self, *, trusts_falls: bool = True) -> None:
        self.bytes, self.steps = 0.0, 0
        """Bytes by which what was left out has moved the level, and its number of steps."""
        self.fallen = 0.0
        """Bytes by which the program has lowered the level in what was left out."""
        self.known_fall = 0.0
        """Bytes by which it is known to have done so in what is left out now, where the level does not tell."""
        self._trusts_falls = trusts_falls
        self._last: Point | None = None
        self._lowest = math.inf  # since the last such fall
        self._is_open = False

    def interrupt(self) -> None:
        """The steps that follow are left out."""
        self.known_fall = 0.0
        self._is_open = self._last is not None

    def join(self, step: int, level: float, unread: int = 0) -> Point:
        """The next point (level in bytes), as far above and after those before as if nothing lay between.

        Of the steps between, so many may be none of those that were left out, but were not read: where counters are
        rationed, a leak would otherwise be lost in the gap. They have their share of its bytes.
        """
        if self._is_open and self._last is not None:
            self._is_open = False
            risen, gap = level - self.bytes - self._last.level, step - self.steps - self._last.step
            left_out = max(gap - unread, 0)
            fallen = self._fallen(self._last.level, risen)
            self.bytes += (risen + fallen) * (left_out / gap if gap > 0 else 1)
            self.steps += left_out
        self._last = Point(step - self.steps, level - self.bytes if self.bytes else level)
        self._lowest = min(self._lowest, self._last.level)
        return self._last

    def _fallen(self, before: float, risen: float) -> float:
        """Bytes by which the program has lowered the level, of those by which it is lower than before."""
        if not self._trusts_falls:
            return min(max(-risen, 0.0), self.known_fall)
        if -risen <= FALLEN_BACK * (before - self._lowest):
            return 0.0
        self._lowest = math.inf
        self.fallen -= risen
        return -risen


def growth_rate(points: Sequence[Point]) -> float | None:
    """How fast a level rises, in bytes per step; ``None`` for too few points to tell.

    It is the median of the slopes between points that are far enough apart (Theil and Sen), which a few outliers do not
    move. A change of level in the middle does (``steady_growth_rate``).
    """
    ordered = slopes(points) if len(points) >= _ENOUGH_POINTS else []
    return quantile(ordered, 0.5) if ordered else None


def steady_growth_rate(points: Sequence[Point]) -> float | None:
    """The same, but 0 where memory has changed its level once: each half has to rise, or fall, as well."""
    rate = growth_rate(points)
    half = len(points) // 2
    parts = [part for part in (growth_rate(points[:half]), growth_rate(points[half:])) if part is not None]
    is_steady = rate is None or len(parts) < 2 or min(part * rate for part in parts) >= _HALF * rate * rate
    return rate if is_steady else 0.0


def growth_per_repetition(levels: Sequence[int]) -> float | None:
    """Bytes that each repetition of the same work keeps; 0 if it does not rise throughout, ``None`` for too few."""
    if len(levels) < ENOUGH_STEPS:
        return None
    judged = levels[max(int(len(levels) * _SETTLING), 1) :]
    third = max(len(judged) // 3, 1)
    low, middle, high = (median(part) for part in (judged[:third], judged[third:-third], judged[-third:]))
    if high <= low or min(middle - low, high - middle) < _HALF * (high - low):
        return 0.0
    return max(growth_rate([Point(number, level) for number, level in enumerate(judged)]) or 0.0, 0.0)


def slopes(points: Sequence[Point]) -> list[float]:
    """Bytes per step between any two of some points that are far enough apart, in ascending order."""
    chosen = thinned(points)
    far = (chosen[-1].step - chosen[0].step) / _FAR if chosen else 0
    return sorted(
        (level - base) / (step - start)
        for later, (step, level) in enumerate(chosen)
        for start, base in chosen[:later]
        if step - start >= far and step > start
    )


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most ``_MOST_POINTS`` of the points, evenly taken, the last one among them."""
    if len(points) <= _MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(index * last / (_MOST_POINTS - 1))] for index in range(_MOST_POINTS)]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value at a share of an ordered series, between its neighbours."""
    below, rest = divmod(share * (len(ordered) - 1), 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + rest * (high - low)


class StepTime:
    """The duration of a step: the mean over later steps that ran without a profiler and without the writing after one.

    The first steps load and compile what the others use: a forecast at their speed is too long. At least the later half
    of the steps counts, with its pauses for validation or checkpoints.
    """

    def __init__(self) -> None:
        self._before = self._now = (0, 0.0)
        """Steps and their seconds: those before the present stretch, which has at most twice as many, and in it."""
        self._last: tuple[int, float, bool] | None = None

    def add(self, step: int, time: float, *, profiled: bool) -> None:
        """Add the Unix time at which a step ended; ``profiled`` if a profiler was on in it or since the one before."""
        last, self._last = self._last, (step, time, profiled)
        if last is not None and not (profiled or last[2]) and step > last[0]:
            if self._left <= 0:
                self._before, self._now = self._now, (0, 0.0)
            self._now = self._now[0] + step - last[0], self._now[1] + max(time - last[1], 0.0)

    def add_up_to(self, at: int, steps: Sequence[int], times: Sequence[float], *, profiled: bool) -> None:
        """Add the steps of a batch up to the one at an index: those that end a stretch, and it, tell the same as all.

        The batch's first step has to be added before the others.
        """
        while self._last is not None and (ends := self._last[0] + max(self._left, 1)) < steps[at]:
            index = bisect_left(steps, ends)
            self.add(steps[index], times[index], profiled=profiled)
        self.add(steps[at], times[at], profiled=profiled)

    @property
    def _left(self) -> int:
        """Steps that the present stretch still takes."""
        return max(2 * self._before[0], _FIRST_STRETCH) - self._now[0]

    @property
    def seconds(self) -> float | None:
        """Mean seconds of a step; ``None`` where none is known."""
        steps, seconds = (sum(pair) for pair in zip(self._before, self._now, strict=True))
        return seconds / steps if seconds else None
