"""Rows of a live log go in, one by one; what a device has done so far, in bounded memory, comes out: Track."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbmem.analysis.peaks import RunPeak
from tbmem.model.monitor_log import SampleRow
from tbmem.model.sample import MemorySample
from tbmem.model.summary import Peak

_POINTS = 2048
"""Points kept; beyond that two neighbours become one."""
_PAIRED = 300
"""Points whose slopes are compared with each other: 45 000 pairs."""
_SETTLING = 0.2
"""Share of a run that does not count for its growth: allocator, optimizer state and caches are set up there."""
ENOUGH_POINTS = 4
"""Points below which nothing is said about growth."""


class Track:
    """One device of one rank.

    Args:
        device: As in ``MemorySample.device``.
        rank: Global rank.
    """

    def __init__(self, device: str, rank: int) -> None:
        self.device = device
        self.rank = rank
        self.last: MemorySample | None = None
        self.last_level: int | None = None
        """Allocated after the last step, without the profiler's memory if such a step is known."""
        self.rows = 0
        self._peak = RunPeak()
        self._has_plain_level = False
        self._steps: list[int] = []
        self._floors: list[int] = []
        self._levels: list[int] = []

    def add(self, row: SampleRow) -> None:
        """Take one more row in."""
        sample = self.last = row.sample
        self.rows += 1
        self._peak.add_row(row)
        if sample.allocated is None:
            return
        if sample.holds_profiler:
            self.last_level = self.last_level if self._has_plain_level else sample.allocated
            return
        self.last_level, self._has_plain_level = sample.allocated, True
        self._steps.append(sample.step)
        self._floors.append(sample.allocated if row.allocated_min is None else row.allocated_min)
        self._levels.append(sample.allocated if row.allocated_max is None else row.allocated_max)
        if len(self._steps) > _POINTS:
            self._thin()

    @property
    def peak(self) -> Peak | None:
        """The run's peak."""
        return self._peak.peak

    def levels(self, count: int) -> list[int]:
        """The level over the run in at most ``count`` parts, the highest of each, in bytes."""
        if not self._levels:
            return []
        parts = np.array_split(np.asarray(self._levels), min(count, len(self._levels)))
        return [int(part.max()) for part in parts]

    def growth_per_step(self) -> float | None:
        """How fast the floor rises, in bytes per step: the median slope between any two points after the start.

        Returns:
            ``None`` where there are too few points to tell.
        """
        skipped = int(len(self._steps) * _SETTLING)
        return median_slope(self._steps[skipped:], self._floors[skipped:])

    def _thin(self) -> None:
        self._steps = self._steps[1::2]
        even = len(self._steps) * 2
        self._floors = np.asarray(self._floors[:even]).reshape(-1, 2).min(axis=1).tolist()
        self._levels = np.asarray(self._levels[:even]).reshape(-1, 2).max(axis=1).tolist()


def median_slope(steps: Sequence[int], levels: Sequence[int]) -> float | None:
    """The median of the slopes between any two points (Theil and Sen): a few outliers do not move it.

    Args:
        steps: Ascending.
        levels: Bytes.

    Returns:
        Bytes per step, or ``None`` for fewer points than tell anything.
    """
    if len(steps) < ENOUGH_POINTS:
        return None
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _PAIRED)).astype(int))
    x, y = np.asarray(steps, dtype=float)[chosen], np.asarray(levels, dtype=float)[chosen]
    first, second = np.triu_indices(len(x), k=1)
    apart = x[second] - x[first]
    return float(np.median((y[second] - y[first])[apart > 0] / apart[apart > 0])) if (apart > 0).any() else None
