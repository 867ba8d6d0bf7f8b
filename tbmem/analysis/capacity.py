"""How full a device is goes in; the threshold that it has just passed comes out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.model.sample import MemorySample

_HYSTERESIS = 2.0
"""Per cent by which use must fall below a threshold before passing it is news again."""


class CapacityTest:
    """Watches a device's share of use against rising thresholds.

    Args:
        thresholds: Ascending percentages of the capacity.
    """

    def __init__(self, thresholds: Sequence[float]) -> None:
        self._thresholds = tuple(thresholds)
        self._is_news = [True] * len(self._thresholds)
        self._alarmed = False
        self.highest = 0
        """The highest threshold passed so far: 0 none, 1 the first, and so on."""

    def update(self, percent: float) -> int:
        """Take in the share of the device that is in use.

        Args:
            percent: Use in per cent of the capacity.

        Returns:
            The number (1, 2, 3) of a threshold passed since the last report, or 0.
        """
        if percent < self._thresholds[0] and not self._alarmed:
            return 0
        news = 0
        for number, threshold in enumerate(self._thresholds):
            if percent >= threshold and self._is_news[number]:
                self._is_news[number] = False
                news = number + 1
            elif percent < threshold - _HYSTERESIS:
                self._is_news[number] = True
        self._alarmed = not all(self._is_news)
        self.highest = max(self.highest, news)
        return news


def used_percent(sample: MemorySample) -> float | None:
    """How full the device is in per cent of its capacity.

    An accelerator counts this process's own peak, and all processes where the driver was asked; the CPU
    counts the whole machine (or the cgroup), since there all share one memory.
    """
    total = sample.device_total
    if not total:
        return None
    if sample.device == "cpu":
        if sample.host_available is None:
            return None
        return 100.0 * (total - sample.host_available) / total
    used = max(sample.peak or 0, sample.allocated or 0, sample.device_used or 0)
    return 100.0 * used / total


def steps_left(sample: MemorySample, bytes_per_step: float) -> int | None:
    """Steps until the device is full, if memory grows on at this rate; ``None`` if that cannot be said."""
    total = sample.device_total
    if not total or bytes_per_step <= 0:
        return None
    used = max(sample.peak or 0, sample.allocated or 0)
    left = sample.host_available if sample.device == "cpu" else total - used
    return None if left is None else max(round(left / bytes_per_step), 0)
