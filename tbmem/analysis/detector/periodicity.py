"""Period of events that recur: the steps at which they are expected."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_REMEMBERED = 12  # events that are remembered
_MEMBERS = 3
"""Events that make a period; the start of the run counts as one of them, where loops that do something at each step
whose number is a multiple of the period have done it for the first time, and nothing is judged yet."""
_STARTS = (0, 1)  # numbers of the step at which such a loop began, counted from 1 or from 0
HIGHER = 1.5
"""Factor by which an event must be higher than the periodic ones to be none of them."""
_MULTIPLES, _MOST = 4, 0.75  # or so many, and this share of all, if some of the periodic events did not happen
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
        """A period at whose distance three events follow each other, or of which four are multiples; else 0."""
        steps, heights = [step for step, _ in self._events], dict(self._events)
        last = steps[-1]
        for before in reversed(steps[:-1]):
            period = last - before
            if period < _SHORTEST:
                continue
            chain, members = [last], [last]
            for step in reversed(steps[:-1]):
                if abs(chain[-1] - step - period) <= _tolerance(period):
                    chain.append(step)
                if _fits(last, step, period):
                    members.append(step)
            known = len(members) + any((last - start) % period == 0 for start in _STARTS)
            if len(chain) >= _MEMBERS or known >= max(_MULTIPLES, _MOST * len(steps)):
                return period, tuple(reversed(members))
            # the first of two may be much higher, what libraries set up comes with it, but not the second
            follows_start = len(chain) == _MEMBERS - 1 and chain[1] - period in _STARTS
            if follows_start and heights[last] <= HIGHER * heights[chain[1]]:
                return period, tuple(reversed(chain))
        return 0, ()


def belongs(step: int, members: Sequence[int], period: int) -> bool:
    """Whether a step is periodic, given steps from which the period is known."""
    return step in members or (bool(members) and _fits(step, members[-1], period))


def _fits(step: int, other: int, period: int) -> bool:
    """Whether two steps are whole periods apart, or nearly so."""
    off = (step - other) % period
    return min(off, period - off) <= _tolerance(period)


def _tolerance(period: int) -> float:
    return max(1.0, min(_LOOSE * period, _LOOSEST))
