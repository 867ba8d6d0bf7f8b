"""History of one device of a run in bounded memory, and the rule for a run's peak."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tbmem.analysis.detector.growth_test import MARKS_TO_JUDGE
from tbmem.analysis.detector.low_water_marks import BLOCK
from tbmem.analysis.growth_rate import Point, Splice, StepTime, steady_growth_rate
from tbmem.model.columns import F64
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow


class RunPeak:
    """The highest step of a run, from samples as they are taken or from the rows of a log: both give the same.

    A step without a peak counts with its level, and only in a run without peaks; a step of the CPU in a profiler window
    counts only as a spike, or in a run without others.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[bool, bool], Peak] = {}
        self._spike: Peak | None = None  # the highest in a window
        self._total: int | None = None
        self._own = 0  # what is tbmem's of the resident memory, in bytes, when nothing is recorded

    @property
    def peak(self) -> Peak | None:
        """The highest so far; ``None`` if no level is known."""
        if not self._highest:
            return None
        best = min(self._highest)
        highest = self._highest[best]
        if self._spike is not None and self._spike.of_the_program > highest.of_the_program:
            highest = self._spike
        # what is left up to a limit of addresses is read once a second, and may be more by then
        peak = replace(highest, total=None if self._total is None else max(self._total, highest.bytes))
        recorded = self._highest.get((True, best[1]), peak)
        if recorded.bytes <= peak.bytes:
            return peak
        return replace(peak, recorded=recorded.bytes, recorded_step=recorded.step)

    def add(self, samples: Sequence[MemorySample]) -> None:
        """Add samples; the same one may come twice."""
        for sample in samples:
            self._note(sample, sample.highest, sample.step)

    def add_row(self, row: SampleRow) -> None:
        """Add a row of the log."""
        step = row.sample.step if row.peak_step is None else row.peak_step
        self._note(row.sample, row.highest, step, ended=row.count > 0)

    def add_finding(self, finding: Finding) -> None:
        """Add a finding of the device: what a spike in a window needed without tbmem's part is known."""
        known = _spike_in_window(finding)
        if known is None:
            return
        reached, added = known
        if self._spike is None or reached - self._own > self._spike.of_the_program:
            self._spike = Peak(
                device=finding.device,
                rank=finding.rank,
                bytes=reached + added,
                step=finding.first_step,
                counter="host_peak_rss",
                own=self._own + added,
            )

    def _note(self, sample: MemorySample, highest: int | None, step: int, *, ended: bool = True) -> None:
        self._total = sample.device_total or self._total
        if not sample.holds_profiler:
            self._own = sample.host_own or 0
        if highest is None:
            return
        quality = sample.holds_profiler, sample.peak is None
        before = self._highest.get(quality)
        if before is None or highest > before.bytes:
            counter = "peak_allocated"
            if sample.peak_allocated is None:
                counter = "allocated" if sample.peak is None else "host_peak_rss"
            own = sample.host_own or 0 if counter == "host_peak_rss" else 0
            self._highest[quality] = Peak(
                device=sample.device,
                rank=sample.rank,
                bytes=highest,
                step=step,
                counter=counter,
                own=own,
                ended=ended,
            )


def _spike_in_window(finding: Finding) -> tuple[int, int] | None:
    """Of a spike in a profiler window the bytes that it reached, and those that tbmem had added to them."""
    reached, added = finding.evidence.get("peak_bytes"), finding.evidence.get("left_out_bytes")
    if finding.kind is not FindingKind.SPIKE or type(reached) is not int or type(added) is not int:
        return None
    return reached, added


def peak_levels(device: str, columns: Mapping[str, F64]) -> F64:
    """Contribution of each row of a log's columns to the run's peak by the same rule, 0 where there is none."""
    resident = ("host_peak_rss",) if device == "cpu" else ()
    level = columns["peak_allocated"]
    for name in (*resident, "allocated_max", "allocated"):
        level = np.where(np.isnan(level), columns[name], level)
    recorded = (columns["profiled"] == 1) & (device == "cpu")
    return np.nan_to_num(level if recorded.all() else np.where(recorded, 0, level))


_POINTS = 2048  # limit of points; beyond it two neighbours become one
_FEWEST_POINTS, _EVENLY = 3, 0.25  # levels of a short run that rises, and part of its mean pace at which it always does
_SETTLING = 0.2  # share of a run that is ignored for its growth: allocator, optimizer state and caches are set up there


class DeviceHistory:
    """One device of one rank."""

    def __init__(self, device: str, rank: int) -> None:
        self.device = device
        self.rank = rank
        self.place = f"rank {rank} {device}"
        self.last: MemorySample | None = None
        self.level_step: int | None = None
        """Step after which the last sample's level was read, if an earlier one."""
        self.last_level: int | None = None
        """Allocated after the last step, without the profiler's memory if such a step is known."""
        self.judged = 0  # steps without a profiler's memory
        self._peak = RunPeak()
        self._has_plain_level = False
        self.levels, self.peaks = BoundedMaxima(), BoundedMaxima()
        """Level after the steps, and peak within them where it is known, in bytes."""
        self.step_time = StepTime()
        self._splice = Splice()
        self._low_water: list[Point] = []
        self._last_point: Point | None = None  # the level after the last step

    def add(self, row: SampleRow) -> None:
        """Add one row; of a step that has not ended only the peak counts."""
        if not row.count:
            self._add_unfinished(row)
            return
        sample = self.last = row.sample
        self.level_step = row.level_step
        self._peak.add_row(row)
        self.step_time.add(sample.step, sample.time, profiled=sample.profiled)
        if sample.holds_profiler:
            self._splice.interrupt()  # the profiler's own records lie in the same heap
            self.last_level = self.last_level if self._has_plain_level else sample.allocated
            return
        self.judged += row.count
        if sample.allocated is not None:
            self.last_level, self._has_plain_level = sample.allocated, True
        if sample.peak is not None:
            self.peaks.add(sample.peak, sample.step)
        if row.allocated_min is None or row.allocated_max is None:
            return  # the level was not read in these steps
        # where memory climbs, the lowest level of a row is that of its first step
        self._low_water.append(self._splice.join(row.first_step, row.allocated_min))
        level = row.allocated_max if sample.allocated is None else sample.allocated
        self._last_point = Point(sample.step - self._splice.steps, level - self._splice.bytes)
        self.levels.add(row.allocated_max, sample.step)
        if len(self._low_water) > _POINTS:
            even = len(self._low_water) // 2 * 2
            pairs = zip(self._low_water[:even:2], self._low_water[1:even:2], strict=True)
            self._low_water = [Point(first.step, min(first.level, second.level)) for first, second in pairs]

    def _add_unfinished(self, row: SampleRow) -> None:
        self._peak.add_row(row)
        if row.sample.peak is not None and not row.sample.holds_profiler:
            self.peaks.add(row.sample.peak, row.sample.step)

    def add_finding(self, finding: Finding) -> None:
        """Add a finding about this device."""
        self._peak.add_finding(finding)
        if known := _spike_in_window(finding):
            self.peaks.raise_at(finding.first_step, known[0])

    @property
    def peak(self) -> Peak | None:
        """The run's peak."""
        return self._peak.peak

    def risen_early(self, least: float, least_share: float) -> tuple[int, int] | None:
        """The first and the last level in bytes, where that has risen all the time, in too few steps to tell why.

        ``least``, ``least_share``: growth that counts, in bytes and as a share of the first level.
        """
        if self.judged >= MARKS_TO_JUDGE * BLOCK or self.last_level is None or self._last_point is None:
            return None
        points = [*dict(self._low_water).items(), self._last_point]
        growth = points[-1][1] - points[0][1]
        pace = growth / max(points[-1][0] - points[0][0], 1)
        if len(points) < _FEWEST_POINTS or growth < max(least, least_share * points[0][1]):
            return None
        is_even = all(up - low >= _EVENLY * pace * (end - begin) for (begin, low), (end, up) in pairwise(points))
        return (round(points[0][1]), self.last_level) if is_even else None

    def growth_per_step(self) -> float | None:
        """Growth of the low-water mark in bytes per step after the start of the run; ``None`` with too few points.

        0 where it has changed its level once.
        """
        return steady_growth_rate(self._low_water[int(len(self._low_water) * _SETTLING) :])


class BoundedMaxima:
    """Maxima of equally long parts of a growing sequence, in bounded memory."""

    def __init__(self) -> None:
        self._values: list[int] = []
        self._steps: list[int] = []  # the last one of each part
        self._part_length = 1
        self._open = 0

    def add(self, value: int, step: int) -> None:
        """Add the value of one step, or of several up to ``step``."""
        if self._open:
            self._values[-1], self._steps[-1] = max(self._values[-1], value), step
        else:
            self._values.append(value)
            self._steps.append(step)
        self._open = (self._open + 1) % self._part_length
        if not self._open and len(self._values) == _POINTS:
            self._values = np.asarray(self._values).reshape(-1, 2).max(axis=1).tolist()
            self._steps = self._steps[1::2]
            self._part_length *= 2

    def raise_at(self, step: int, value: int) -> None:
        """Let the part in which a step lies reach a value: that of a step that was left out."""
        if self._values:
            at = min(bisect_left(self._steps, step), len(self._values) - 1)
            self._values[at] = max(self._values[at], value)

    def parts(self, count: int) -> list[int]:
        """Maxima of at most ``count`` parts."""
        if not self._values:
            return []
        parts = np.array_split(np.asarray(self._values), min(count, len(self._values)))
        return [int(part.max()) for part in parts]
