"""Control variate for a level: takes out what the size of a step's batch explains."""

from __future__ import annotations

from collections.abc import Sequence

_ENOUGH = 32  # steps from which the relation is learned
_WINDOW = 512  # steps after which what was learned counts half
_MEAN = 32  # steps over which the usual need is averaged
_MOVING = 0.25  # share of steps in which both must have changed: where they hardly ever do there is no noise to remove
_SMALLEST = 512  # bytes of the smallest block of an allocator: less is no change of a step's need
_OUTLIER = 6.0  # times the usual change from which on a change counts less
_EXPLAINED = 0.25  # share of the changes (r squared) that the peaks must explain
_CHANCE = 10.0  # the same for few steps, divided by their number: chance explains some of few changes
_EXACT = 1e-6  # share of the products below which what is left of them is rounding
_CHANGED = 0.1  # relative change of the relation from which on the new one is used


class ControlVariate:
    """Takes the noise of batches of varying size out of the level.

    A larger batch needs more within its step (the peak's distance from the level), and leaves more behind at its
    end. The relation of the two is learned from their changes from one step to the next, so that neither a leak nor
    a change of level has a part in it.
    """

    def __init__(self) -> None:
        self._slope = self._offset = 0.0
        """Bytes left behind for each byte that the step itself needed, 0 where there is no relation; and what keeps the
        corrected level from jumping when that changes."""
        self._need: float | None = None
        self._level = -1
        self._steps = self._moved = 0.0
        self._w = self._n = self._l = self._nn = self._nl = self._ll = 0.0
        """Weighted sums of the changes and of their products, from which the relation is learned."""
        self._mean = self._last = 0.0
        self._usual_need = self._usual_level = 0.0
        self._due = _ENOUGH

    def correct(self, levels: Sequence[int], peaks: Sequence[int]) -> Sequence[float]:
        """The levels at the steps' ends that steps of usual size would have left behind, in bytes."""
        level = levels[0]
        if self._is_still(level) and levels.count(level) == len(levels):
            # nothing moves: all that must be noted is that time passes
            self._steps += len(levels)
            self._need = float(peaks[-1] - level)
            return levels
        return [self._correct(level, peak) for level, peak in zip(levels, peaks, strict=True)]

    def _is_still(self, level: int) -> bool:
        return level == self._level and not self._slope and not self._offset

    def _correct(self, level: int, peak: int) -> float:
        need = float(peak - level)
        if self._need is None:
            self._need, self._level, self._mean = need, level, need
            return level
        if self._is_still(level):
            self._steps += 1
            self._need = need
            return level
        more_need, more_level = need - self._need, level - self._level
        self._need, self._level = need, level
        self._steps += 1
        weight = self._weight(more_need, more_level)
        if more_level:
            self._moved += abs(more_need) >= _SMALLEST
            self._w += weight
            self._n += weight * more_need
            self._l += weight * more_level
            self._nl += weight * more_need * more_level
            self._ll += weight * more_level * more_level
            self._nn += weight * more_need * more_need
        if self._steps >= self._due:
            self._learn()
        if not self._slope:
            self._last = level + self._offset
        elif abs(need - self._mean) <= _OUTLIER * self._usual_need:
            self._last = level - self._slope * need + self._offset
        # else the relation does not reach so far: as if the step had not been read
        if weight == 1.0:
            self._mean += (need - self._mean) / _MEAN
        return self._last

    def _weight(self, more_need: float, more_level: float) -> float:
        """The weight of a change: next to nothing for one far larger than the others (an outlier, validation)."""
        need, height = abs(more_need), abs(more_level)
        first = not self._usual_need and not self._usual_level
        excess = max(_ratio(need, self._usual_need), _ratio(height, self._usual_level)) / _OUTLIER
        share = 1.0 if first else 1.0 / max(excess, 1.0)
        self._usual_need += (need * share - self._usual_need) / _MEAN
        self._usual_level += (height * share - self._usual_level) / _MEAN
        return share * share

    def _learn(self) -> None:
        """Learn the relation anew; the corrected level must not jump when it changes."""
        self._due *= 2
        if self._steps >= _WINDOW:
            for name in ("_steps", "_moved", "_w", "_n", "_l", "_nn", "_nl", "_ll"):
                setattr(self, name, getattr(self, name) / 2)
            self._due = _WINDOW
        need, level, count = self._n, self._l, max(self._w, 1e-9)
        # about their means: where both only climb, as with a cache that is copied to grow, neither explains the other
        nn, nl, ll = self._nn - need * need / count, self._nl - need * level / count, self._ll - level * level / count
        related = (
            self._moved >= _MOVING * self._steps
            and nl > _EXACT * self._nl
            and nl * nl >= (_EXPLAINED + _CHANCE / self._steps) * nn * ll
        )
        slope = min(nl / nn, 1.0) if related else 0.0
        if abs(slope - self._slope) > _CHANGED * max(slope, self._slope):
            self._offset += (slope - self._slope) * self._mean
            self._slope = slope


def _ratio(value: float, usual: float) -> float:
    return value / usual if usual else float(value > 0)
