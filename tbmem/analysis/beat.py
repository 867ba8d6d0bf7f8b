"""Steps at which something happened go in; whether they come in a regular beat comes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_KEPT = 12
_MEMBERS = 3
"""Happenings that make a beat."""
_MULTIPLES, _MOST = 4, 0.75
"""Or so many, and this share of all, if some of the beat did not happen."""
_SHORTEST = 8
"""Steps of the shortest period: what is more frequent belongs to the usual."""
_LOOSE, _LOOSEST = 0.06, 4
"""Share of the period, and steps, by which a happening may be early or late; always at least one step."""


class Beat:
    """Finds the period of what happens again and again, and tells what does not belong to it."""

    def __init__(self) -> None:
        self._steps: deque[int] = deque(maxlen=_KEPT)
        self.period = 0
        """Steps between two happenings, 0 while there is no beat."""
        self.members: Sequence[int] = ()
        """The happenings from which the beat is known."""

    def add(self, step: int) -> bool:
        """Take in that something happened.

        Returns:
            Whether the beat has become known by it.
        """
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
            if len(chain) >= _MEMBERS or len(members) >= max(_MULTIPLES, _MOST * len(steps)):
                return period, tuple(reversed(members))
        return None


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
