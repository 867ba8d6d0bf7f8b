"""Floors that climb and what there is left go in; when memory will run out, with a band, comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_POINTS = 64
"""Points that are compared with each other; more are thinned out."""
_LOW, _HIGH = 0.1, 0.9
"""Quantiles of the slopes that make the band."""
_FAR = 3
"""Points are compared over at least this part of the stretch: close ones tell noise, not growth."""


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
    points: Sequence[tuple[int, float]],
    *,
    capacity: float,
    lift: float = 0.0,
    step: int | None = None,
) -> Forecast | None:
    """Say when floors that climb will have filled a device.

    Args:
        points: Steps and floors in bytes, steps ascending.
        capacity: Bytes that there are in all.
        lift: How far the steps reach above the floors, in bytes.
        step: The step from which to count; by default that of the last point.

    Returns:
        The forecast; ``None`` where the floors do not climb.
    """
    points = thinned(points)
    slopes = sorted(_slopes(points))
    if not slopes:
        return None
    middle, low, high = (_quantile(slopes, share) for share in (0.5, _LOW, _HIGH))
    if middle <= 0:
        return None
    since = points[-1][0] if step is None else step

    def steps_at(slope: float) -> int:
        starts = sorted(level - slope * at for at, level in points)
        full = (capacity - lift - _quantile(starts, 0.5)) / slope
        return max(round(full - since), 0)

    steps, soon = steps_at(middle), steps_at(high)
    late = steps_at(low) if low > 0 else None

    late = None if late is None else max(late, steps)
    return Forecast(steps, min(soon, steps), late)


def thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """At most ``MOST_POINTS`` of the points, evenly taken, the last one among them."""
    if len(points) <= MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS)]


def _slopes(points: Sequence[tuple[int, float]]) -> list[float]:
    """Bytes per step between any two points that are far enough apart."""
    far = (points[-1][0] - points[0][0]) / _FAR if points else 0
    return [
        (level - base) / (step - start)
        for later, (step, level) in enumerate(points)
        for start, base in points[:later]
        if step - start >= far and step > start
    ]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value at a share of an ordered series, between its neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
