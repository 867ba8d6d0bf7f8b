"""Rows of a live log go in, one by one; what a device has done so far, in bounded memory, comes out: Track."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.growth_rate import Point, Splice, StepTime, growth_rate
from tbmem.analysis.runs.run_peak import RunPeak
from tbmem.model.monitor_log import SampleRow
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample

_POINTS = 2048
"""Points kept; beyond that two neighbours become one."""
_SETTLING = 0.2
"""Share of a run that does not count for its growth: allocator, optimizer state and caches are set up there."""


class Track:
    """One device of one rank."""

    def __init__(self, device: str, rank: int) -> None:
        self.device = device
        self.rank = rank
        self.last: MemorySample | None = None
        self.last_level: int | None = None
        """Allocated after the last step, without the profiler's memory if such a step is known."""
        self.rows = 0
        self.judged = 0
        """Steps that hold the training's memory alone."""
        self._peak = RunPeak()
        self._has_plain_level = False
        self._splice = Splice()
        self._step_time = StepTime()
        self._floors: list[Point] = []
        self._levels = _Course()
        self._peaks = _Course()

    def add(self, row: SampleRow) -> None:
        """Take one more row in."""
        sample = self.last = row.sample
        self.rows += 1
        self._peak.add_row(row)
        self._step_time.add(sample.step, sample.time, profiled=sample.profiled)
        if sample.holds_profiler:
            self._splice.interrupt()  # the profiler's own records lie in the same heap
            self.last_level = self.last_level if self._has_plain_level else sample.allocated
            return
        self.judged += row.count
        if sample.allocated is not None:
            self.last_level, self._has_plain_level = sample.allocated, True
        if sample.peak is not None:
            self._peaks.add(sample.peak)
        if row.allocated_min is None or row.allocated_max is None:
            return  # nobody has read the level in these steps
        # where memory climbs, the lowest level of a row is that of its first step
        self._floors.append(self._splice.join(row.first_step, row.allocated_min))
        self._levels.add(row.allocated_max)
        if len(self._floors) > _POINTS:
            self._thin()

    @property
    def peak(self) -> Peak | None:
        """The run's peak."""
        return self._peak.peak

    def levels(self, count: int) -> list[int]:
        """The level after the steps over the run, in at most ``count`` parts, the highest of each, in bytes."""
        return self._levels.parts(count)

    def peaks(self, count: int) -> list[int]:
        """The same of the peaks within the steps: a spike is over when its step ends; empty where none is known."""
        return self._peaks.parts(count)

    def growth_per_step(self) -> float | None:
        """How fast the floor rises, in bytes per step, once the run has settled.

        Returns:
            ``None`` where there are too few points to tell.
        """
        return growth_rate(self._floors[int(len(self._floors) * _SETTLING) :])

    @property
    def step_seconds(self) -> float | None:
        """Duration of a step in seconds; ``None`` where none is known."""
        return self._step_time.seconds

    def _thin(self) -> None:
        even = len(self._floors) // 2 * 2
        pairs = zip(self._floors[:even:2], self._floors[1:even:2], strict=True)
        self._floors = [Point(one.step, min(one.level, other.level)) for one, other in pairs]


class _Course:
    """The highest values of a sequence as it grows, each of equally many, in bounded memory."""

    def __init__(self) -> None:
        self._values: list[int] = []
        self._each = 1
        self._open = 0

    def add(self, value: int) -> None:
        """Take one more in."""
        if self._open:
            self._values[-1] = max(self._values[-1], value)
        else:
            self._values.append(value)
        self._open = (self._open + 1) % self._each
        if not self._open and len(self._values) == _POINTS:
            self._values = np.asarray(self._values).reshape(-1, 2).max(axis=1).tolist()
            self._each *= 2

    def parts(self, count: int) -> list[int]:
        """The highest of each of at most ``count`` parts."""
        if not self._values:
            return []
        parts = np.array_split(np.asarray(self._values), min(count, len(self._values)))
        return [int(part.max()) for part in parts]
