"""Steps at which something happened go in; whether they come in a regular beat comes out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.detector.bounded_list import BoundedList

_KEPT = 12
_MEMBERS = 3
"""Happenings that make a beat; the start of the run counts as one of them, where loops that do something at each step
whose number is a multiple of the period have done it for the first time, and nothing is judged yet."""
_STARTS = (0, 1)
"""Numbers of the step at which such a loop began, counted from 1 or from 0."""
HIGHER = 1.5
"""Factor by which one of a beat must be higher than the others to be none of it."""
_MULTIPLES, _MOST = 4, 0.75
"""Or so many, and this share of all, if some of the beat did not happen."""
_SHORTEST = 8
"""Steps of the shortest period: what is more frequent belongs to the usual."""
_LOOSE, _LOOSEST = 0.06, 4
"""Share of the period, and steps, by which a happening may be early or late; always at least one step."""


class Periodicity:
    """Finds the period of what happens again and again, and tells what does not belong to it."""

    def __init__(self) -> None:
        self._steps: BoundedList[int] = BoundedList(_KEPT)
        self._heights: BoundedList[int] = BoundedList(_KEPT)
        self.period = 0
        """Steps between two happenings, 0 while there is no beat."""
        self.members: Sequence[int] = ()
        """The happenings from which the beat is known."""

    def add(self, step: int, height: int) -> bool:
        """Take in that something happened.

        Args:
            step: When.
            height: How far it stood out, in bytes.

        Returns:
            Whether the beat has become known by it.
        """
        self._heights.append(height)
        if self.expects(step):
            self._steps.append(step)
            self.members = (*self.members[-_KEPT:], step)
            return False
        self._steps.append(step)
        if self.period:
            return False
        found = self._search()
        if found is None:
            return False
        self.period, self.members = found
        return True

    def expects(self, step: int) -> bool:
        """Whether a step is one of the beat, however many are left out."""
        if not self.period:
            return False
        return fits(step, self.members[-1], self.period)

    def _search(self) -> tuple[int, Sequence[int]] | None:
        """A period at whose distance three happenings follow each other, or of which four are multiples."""
        steps = list(self._steps)
        last = steps[-1]
        for before in reversed(steps[:-1]):
            period = last - before
            if period < _SHORTEST:
                continue
            chain, members = [last], [last]
            for step in reversed(steps[:-1]):
                if abs(chain[-1] - step - period) <= _tolerance(period):
                    chain.append(step)
                if _off(last - step, period) <= _tolerance(period):
                    members.append(step)
            known = len(members) + any(_off(last - start, period) == 0 for start in _STARTS)
            if len(chain) >= _MEMBERS or known >= max(_MULTIPLES, _MOST * len(steps)):
                return period, tuple(reversed(members))
            if len(chain) == _MEMBERS - 1 and chain[-1] - period in _STARTS and self._are_alike(*reversed(chain)):
                return period, tuple(reversed(chain))
        return None

    def _are_alike(self, first: int, second: int) -> bool:
        """Whether the second is not much higher; the first may be, what libraries set up comes with it."""
        height = dict(zip(self._steps, self._heights, strict=True))
        return height[second] <= HIGHER * height[first]


def belongs(step: int, members: Sequence[int], period: int) -> bool:
    """Whether a step is one of a beat.

    Args:
        step: Its number.
        members: Steps from which the beat is known.
        period: Steps between two of them.
    """
    return step in members or (bool(members) and fits(step, members[-1], period))


def fits(step: int, other: int, period: int) -> bool:
    """Whether two steps are whole periods apart, or nearly so."""
    return _off(step - other, period) <= _tolerance(period)


def _off(distance: int, period: int) -> int:
    """How far a distance is from the nearest multiple of the period."""
    off = distance % period
    return min(off, period - off)


def _tolerance(period: int) -> float:
    """Steps by which a happening may be early or late."""
    return max(1.0, min(_LOOSE * period, _LOOSEST))
