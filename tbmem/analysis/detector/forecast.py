"""Floors that climb and what there is left go in; when memory will run out, with a band, comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tbmem.analysis.growth_rate import Point, quantile, slopes, thinned

_LOW, _HIGH = 0.1, 0.9
"""Quantiles of the slopes that make the band."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a device will be full if memory grows on as it did."""

    steps: int
    """Steps from the last point on."""
    steps_low: int
    """The same if it grows as fast as the fastest tenth of the comparisons says."""
    steps_high: int | None
    """And as slowly as the slowest; ``None`` if it then never ends."""
    seconds: float | None = None
    """``steps`` in seconds, where the time of a step is known."""
    seconds_low: float | None = None
    seconds_high: float | None = None

    def timed(self, step_seconds: float | None) -> Forecast:
        """The same with seconds.

        Args:
            step_seconds: Seconds of a step; ``None`` if unknown.
        """
        if step_seconds is None:
            return self
        late = None if self.steps_high is None else self.steps_high * step_seconds
        return replace(
            self, seconds=self.steps * step_seconds, seconds_low=self.steps_low * step_seconds, seconds_high=late
        )


def forecast(
    points: Sequence[Point],
    *,
    capacity: float | None = None,
    room: float | None = None,
    lift: float = 0.0,
    step: int | None = None,
) -> Forecast | None:
    """Say when floors that climb will have filled a device, at the growth rate that is told of them.

    Args:
        points: The floors.
        capacity: Bytes that there are in all.
        room: Bytes that are left, where the capacity is not known.
        lift: How far the steps reach above the floors, in bytes.
        step: The step from which to count; by default that of the last point.

    Returns:
        The forecast; ``None`` where the floors do not climb.
    """
    points = thinned(points)
    found = slopes(points)
    if not found:
        return None
    middle, low, high = (quantile(found, share) for share in (0.5, _LOW, _HIGH))
    if middle <= 0:
        return None
    since = points[-1].step if step is None else step

    def steps_at(slope: float) -> int:
        left = room
        if capacity is not None:
            starts = sorted(level - slope * at for at, level in points)
            left = capacity - quantile(starts, 0.5) - slope * since
        assert left is not None
        return max(round((left - lift) / slope), 0)

    steps, soon = steps_at(middle), steps_at(high)
    late = steps_at(low) if low > 0 else None
    return Forecast(steps, min(soon, steps), None if late is None else max(late, steps))
