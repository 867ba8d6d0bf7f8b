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

    @property
    def next_news(self) -> float:
        """Per cent below which nothing can change."""
        return 0.0 if self._alarmed else self._thresholds[0]

    def update(self, percent: float) -> int:
        """Take in the share of the device that is in use.

        Args:
            percent: Use in per cent of the capacity.

        Returns:
            The number (1, 2, 3) of a threshold passed since the last report, or 0.
        """
        if percent < self.next_news:
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


def available_bytes(sample: MemorySample) -> int | None:
    """Bytes that the device can still give: what the host has available for the CPU; ``None`` if nobody tells."""
    if sample.device == "cpu":
        return sample.host_available
    if sample.device_total is None:
        return None
    used = max(sample.peak_allocated or 0, sample.allocated or 0, sample.device_used or 0)
    return max(sample.device_total - used, 0)
