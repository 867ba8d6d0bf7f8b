"""Forecast of when memory will run out, with a band, from low-water marks that climb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tbmem.analysis.growth_rate import Point, quantile, slopes, thinned
from tbmem.units import format_bytes

_LOW, _HIGH = 0.1, 0.9  # quantiles of the slopes that make the band
_FIGURES = 4  # of a number of steps: nobody knows more of a day that is weeks ahead


class Forecast(NamedTuple):
    """When a device will be full if memory goes on growing as it did, in steps."""

    steps: int
    steps_low: int  # the same at the growth rate of the fastest tenth of the comparisons
    steps_high: int | None  # and at that of the slowest; ``None`` if it then never ends
    seconds: float | None = None  # ``steps`` in seconds, where the time of a step is known
    rate: float = 0.0  # bytes per step, from which ``steps`` are computed
    resident_rate: float | None = None  # the same, where the resident memory grows faster than what is kept

    def at_rate(self, rate: float) -> Forecast:
        """The same at another growth rate, in bytes per step."""
        share = self.rate / rate
        steps, low = _rounded(self.steps * share), _rounded(self.steps_low * share)
        high = None if self.steps_high is None else _rounded(self.steps_high * share)
        return self._replace(steps=steps, steps_low=low, steps_high=high, rate=rate)

    def at_speed(self, seconds: float | None) -> Forecast:
        """The same where a step takes so long; ``None``: not known."""
        return self if seconds is None else self._replace(seconds=self.steps * seconds)


def forecast(
    points: Sequence[Point], *, capacity: float | None = None, room: float | None = None, lift: float = 0.0, step: int
) -> Forecast | None:
    """Estimate when low-water marks will have filled a device; ``None`` where they do not climb.

    Args:
        points: The marks.
        capacity: Bytes that there are in all.
        room: Bytes that are left, where the capacity is not known.
        lift: How far the steps reach above the marks, in bytes.
        step: The step from which to count.
    """
    points = thinned(points)
    ordered = slopes(points)
    if not ordered:
        return None
    middle, low, high = (quantile(ordered, share) for share in (0.5, _LOW, _HIGH))
    if middle <= 0:
        return None

    def steps_at(slope: float) -> int:
        left = room
        if capacity is not None:
            starts = sorted(level - slope * at for at, level in points)
            left = capacity - quantile(starts, 0.5) - slope * step
        assert left is not None  # nosec B101  # for the type checker
        return _rounded(max((left - lift) / slope, 0))

    steps, soon = steps_at(middle), steps_at(high)
    late = steps_at(low) if low > 0 else None
    return Forecast(steps, min(soon, steps), None if late is None else max(late, steps), rate=middle)


def _rounded(steps: float) -> int:
    return int(float(f"{steps:.{_FIGURES}g}")) if steps >= 10**_FIGURES else round(steps)


def resident_reason(bytes_per_step: float | None) -> str:
    """What follows a forecast that another growth decides: ``', as the resident memory grows by 4.00 MiB per step'``.

    Args:
        bytes_per_step: Growth of the resident memory, if that decides; ``None`` if the growth that was found does.
    """
    if bytes_per_step is None:
        return ""
    return f", as the resident memory grows by {format_bytes(round(bytes_per_step))} per step"
