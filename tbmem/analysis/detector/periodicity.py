"""Period of events that recur: the steps at which they are expected."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

_REMEMBERED = 12  # events that are remembered
_STARTS = (0, 1)
"""Numbers of the step at which a loop began that does something at each step whose number is a multiple of the period,
counted from 1 or from 0. It has done it for the first time then, when nothing is judged yet."""
HIGHER = 1.5
"""Factor by which an event must be higher than the periodic ones to be none of them."""
_CHANCE = 0.01
"""Expected number of periods by chance below which events are periodic."""
_ALIKE, _ALIKE_BY_CHANCE = 1.25, 0.4
"""Factor within which heights are alike, and how often two are of those that scatter by 30 %."""
_SHORTEST = 8  # steps of the shortest period: what is more frequent belongs to the usual
_LOOSE, _LOOSEST = 0.06, 4
"""Share of the period, and steps, by which an event may be early or late; always at least one step."""


class Periodicity:
    """Finds the period of events that recur."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self.period = 0  # steps between two events, 0 while no period is known
        self.members: Sequence[int] = ()  # steps of the events from which the period is known

    def add(self, step: int, height: int) -> bool:
        """Add an event and its height in bytes; returns whether it has revealed the period."""
        self._events.append((step, height))
        if self.period:
            if self.expects(step):
                self.members = (*self.members[-_REMEMBERED:], step)
            return False
        self.period, self.members = self._search()
        return bool(self.period)

    def expects(self, step: int) -> bool:
        """Whether a step is one of the period, however many are left out."""
        return bool(self.period) and _fits(step, self.members[-1], self.period)

    def _search(self) -> tuple[int, Sequence[int]]:
        """The period from the last event to an earlier one that is least likely to be chance, if that is unlikely."""
        last, found = self._events[-1][0], []
        for before, _ in list(self._events)[:-1]:
            if (period := last - before) >= _SHORTEST:
                members = [step for step, _ in self._events if _fits(last, step, period)]
                found.append((self._chance(period, members), period, members))
        chance, period, members = min(found, default=(1.0, 0, []))
        return (period, members) if chance <= _CHANCE else (0, ())

    def _chance(self, period: int, members: Sequence[int]) -> float:
        """Expected number of periods that as many events confirm if they come at random.

        Two of the events make the period; each other one lies as near to one of its steps as those that confirm it
        with the probability ``near``. So many pairs, and choices of those that confirm it, were tried.
        """
        last, others, confirming = members[-1], len(self._events) - 2, len(members) - 2
        exact = (last - members[0]) / round((last - members[0]) / period)
        off = max(abs((last - step) / exact - round((last - step) / exact)) for step in members) * exact
        near = min(1.0, (2 * round(off) + 1) / period)
        chance = (len(self._events) - 1) * math.comb(others, confirming) * near**confirming
        starts = any((last - start) % period == 0 for start in _STARTS)
        alike = self._alike(members)
        if confirming + starts == 0 or (confirming == 0 and not alike):
            return 1.0
        chance *= len(_STARTS) / period if starts else 1.0
        tells = alike and (confirming == others or not self._alike([step for step, _ in self._events]))
        return chance * _ALIKE_BY_CHANCE ** (len(members) - 1) if tells else chance

    def _alike(self, steps: Sequence[int]) -> bool:
        """Whether some events are of about one height; the first may be higher: what libraries set up comes with it."""
        heights = [height for step, height in self._events if step in steps]
        return max(heights[1:]) <= _ALIKE * min(heights)


def even_period(steps: Sequence[int], heights: Sequence[int]) -> int:
    """The distance of three events or more that lie evenly, or 0. Where they are alike, give or take one step."""
    distances = [after - before for before, after in pairwise(steps)]
    is_even = len(distances) > 1 and max(distances) - min(distances) <= (max(heights) <= _ALIKE * min(heights))
    return distances[-1] if is_even and distances[-1] >= _SHORTEST else 0


def belongs(step: int, members: Sequence[int], period: int) -> bool:
    """Whether a step is periodic, given steps from which the period is known."""
    return step in members or (bool(members) and _fits(step, members[-1], period))


def _fits(step: int, other: int, period: int) -> bool:
    """Whether two steps are whole periods apart, or nearly so."""
    return _distance(step, other, period) <= _tolerance(period)


def _distance(step: int, other: int, period: int) -> int:
    off = (step - other) % period
    return min(off, period - off)


def _tolerance(period: int) -> float:
    return max(1.0, min(_LOOSE * period, _LOOSEST))
