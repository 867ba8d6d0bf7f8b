"""Floors, oldest first, go in; whether they climb like memory that is kept, and how surely, comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tbmem.analysis.detector.floors import LowWaterMark

_JUMP = 0.45
"""Largest single rise, as a share of the growth: above it memory has changed its level once, not grown."""
_HALF = 0.2
"""Smallest growth in either half, as a share of the growth: below it a ramp has ended, or just begun."""
_LAST_QUARTER = 0.14
"""The same for the last quarter."""
_RISES = 0.6
"""Smallest share of the floors that lie above the one before."""
_LEAST_PART = 0.1
"""Part of the largest rise that a rise must be to count."""
_EVENTS_JUMP = 0.4
_EVEN = 0.5
"""Rises that differ by no more than this factor are alike."""
_COUNTS_CLIMB = 0.6
"""Kendall's tau of the live allocations from which on they count as climbing."""
_WORK_GROWS = 0.05
"""Share by which the steps' own need must have grown to explain growth without new allocations."""


def climbs(levels: Sequence[float], least: float, sigmas: float) -> bool:
    """Whether levels climb throughout: no plateau, no single jump, hardly a fall.

    Args:
        levels: At least six floors.
        least: Smallest growth that counts, in bytes.
        sigmas: How far the order of the levels must be from one by chance (Mann and Kendall's z).
    """
    growth = levels[-1] - levels[0]
    if growth < least or growth <= 0:
        return False
    count = len(levels)
    middle = count // 2
    if (
        levels[-1] - levels[middle - 1] < _HALF * growth
        or levels[middle] - levels[0] < _HALF * growth
        or levels[-1] - levels[-1 - count // 4] < _LAST_QUARTER * growth
    ):
        return False
    changes = [after - before for before, after in pairwise(levels)]
    if max(changes) > _JUMP * growth or sum(change > 0 for change in changes) < _RISES * len(changes):
        return False
    return kendall(levels) >= tau_for(count, sigmas)


def kendall(values: Sequence[float]) -> float:
    """Kendall's tau of values against their order: 1 if each is above all before it; ties count as nothing."""
    ups = 0
    for later in range(1, len(values)):
        value = values[later]
        for earlier in values[:later]:
            if value > earlier:
                ups += 1
            elif value < earlier:
                ups -= 1
    return 2 * ups / (len(values) * (len(values) - 1))


def tau_for(count: int, sigmas: float) -> float:
    """The tau of ``count`` values that is ``sigmas`` standard deviations from chance, 1 where none is so far."""
    return min(sigmas * math.sqrt(2 * (2 * count + 5) / (9 * count * (count - 1))), 1.0)


def is_line(levels: Sequence[float]) -> bool:
    """Whether each rise is much like the others."""
    changes = sorted(after - before for before, after in pairwise(levels))
    usual = changes[len(changes) // 2]
    return changes[0] >= _EVEN * usual and usual >= _EVEN * changes[-1]


def since_last_fall(marks: Sequence[LowWaterMark]) -> Sequence[LowWaterMark]:
    """The floors from the last one on that was lower than the one before."""
    for at in range(len(marks) - 1, 0, -1):
        if marks[at].level < marks[at - 1].level:
            return marks[at:]
    return marks


def rises_regularly(levels: Sequence[float], least: float, events: int) -> bool:
    """Whether levels that never fall rise again and again after much the same number of blocks.

    Args:
        levels: Floors without a fall.
        least: Smallest growth that counts, in bytes.
        events: How many separate rises there must be.
    """
    growth = levels[-1] - levels[0]
    if growth < least or growth <= 0:
        return False
    changes = [0.0, *(after - before for before, after in pairwise(levels))]
    highest = max(changes)
    rises = [at for at, change in enumerate(changes) if change > _LEAST_PART * highest]
    if len(rises) < events or highest > _EVENTS_JUMP * growth:
        return False
    gaps = [after - before for before, after in pairwise(rises)]
    usual = sorted(gaps)[len(gaps) // 2]
    return len(levels) - 1 - rises[-1] <= usual and max(gaps) <= 2 * usual + 1


def is_explained(marks: Sequence[LowWaterMark], more: Sequence[LowWaterMark]) -> bool:
    """Whether growth comes without new allocations because the steps themselves need more (longer sequences).

    Args:
        marks: The floors that climb.
        more: Those and as many before them as there are.

    Returns:
        ``True`` also where a single tensor may be growing but there are too few floors to be sure.
    """
    counts = [mark.blocks for mark in marks if mark.blocks is not None]
    if len(counts) < len(marks):
        return False
    if counts[-1] > counts[0] and kendall(counts) >= _COUNTS_CLIMB:
        return False
    needs = [mark.work for mark in more if mark.work is not None]
    if len(more) < 2 * len(marks) and len(more) < 20:
        return True
    return needs[-1] - needs[0] > _WORK_GROWS * max(needs[0], 1) and kendall(needs) > 0.3
