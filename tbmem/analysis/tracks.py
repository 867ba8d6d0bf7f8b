"""Rows of a live log go in, one by one; what a device has done so far, in bounded memory, comes out: Track."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
        self.peak: Peak | None = None
        self.peak_reserved: int | None = None
        """Highest ``peak_reserved``, or ``reserved``, in bytes."""
        self.rows = 0
        self._steps: list[int] = []
        self._floors: list[int] = []
        self._levels: list[int] = []
        self._peaks: list[int | None] = []

    def add(self, row: SampleRow) -> None:
        """Take one more row in."""
        sample = self.last = row.sample
        self.rows += 1
        self._note_peak(row)
        if sample.allocated is None or (sample.profiled and sample.device == "cpu"):
            return  # the profiler's own records lie in the same heap
        self._steps.append(sample.step)
        self._floors.append(sample.allocated if row.allocated_min is None else row.allocated_min)
        self._levels.append(sample.allocated if row.allocated_max is None else row.allocated_max)
        self._peaks.append(sample.peak)
        if len(self._steps) > _POINTS:
            self._thin()

    def levels(self, count: int) -> list[int]:
        """The level after the steps over the run, in at most ``count`` parts, the highest of each, in bytes."""
        return _parts(self._levels, count)

    def peaks(self, count: int) -> list[int]:
        """The same of the peaks within the steps: a spike is over when its step ends; empty where none is known."""
        return _parts([peak for peak in self._peaks if peak is not None], count)

    def growth_per_step(self) -> float | None:
        """How fast the floor rises, in bytes per step: the median slope between any two points after the start.

        Returns:
            ``None`` where there are too few points to tell.
        """
        skipped = int(len(self._steps) * _SETTLING)
        return median_slope(self._steps[skipped:], self._floors[skipped:])

    def _note_peak(self, row: SampleRow) -> None:
        sample = row.sample
        reserved = sample.reserved if sample.peak_reserved is None else sample.peak_reserved
        if reserved is not None:
            self.peak_reserved = max(reserved, self.peak_reserved or 0)
        reached = row.allocated_max if sample.peak is None and row.allocated_max is not None else sample.highest
        if reached is None or (self.peak is not None and reached <= self.peak.bytes):
            return
        counter = "peak_allocated" if sample.peak_allocated is not None else "host_peak_rss"
        self.peak = Peak(
            device=sample.device,
            bytes=reached,
            step=sample.step,
            counter="allocated" if sample.peak is None else counter,
            total=sample.device_total,
            first_step=row.first_step if row.count > 1 else None,
        )

    def _thin(self) -> None:
        self._steps = self._steps[1::2]
        even = len(self._steps) * 2
        self._floors = np.asarray(self._floors[:even]).reshape(-1, 2).min(axis=1).tolist()
        self._levels = np.asarray(self._levels[:even]).reshape(-1, 2).max(axis=1).tolist()
        pairs = zip(self._peaks[:even:2], self._peaks[1:even:2], strict=True)
        self._peaks = [max((peak for peak in pair if peak is not None), default=None) for pair in pairs]


def _parts(values: Sequence[int], count: int) -> list[int]:
    """The highest of each of at most ``count`` parts."""
    parts = np.array_split(np.asarray(values), min(count, len(values))) if values else []
    return [int(part.max()) for part in parts]


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
