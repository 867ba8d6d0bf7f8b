"""How full a device is goes in; the threshold that it has just passed comes out."""

from __future__ import annotations

from collections.abc import Sequence

_HYSTERESIS = 2.0
"""Per cent by which use must fall below a threshold before passing it is news again."""


class CapacityTest:
    """Watches a device's share of use against rising thresholds.

    Args:
        thresholds: Ascending percentages of the capacity.
    """

    def __init__(self, thresholds: Sequence[float]) -> None:
        self._thresholds = tuple(thresholds)
        self.highest = 0
        """The highest threshold passed so far: 0 none, 1 the first, and so on."""
        self._reported = 0

    def update(self, percent: float) -> int:
        """Take in the share of the device that is in use.

        Args:
            percent: Use in per cent of the capacity.

        Returns:
            The number (1, 2, 3) of a threshold passed since the last report, or 0.
        """
        level = sum(percent >= threshold for threshold in self._thresholds)
        if level > self._reported:
            self._reported = level
            self.highest = max(self.highest, level)
            return level
        if self._reported and percent < self._thresholds[self._reported - 1] - _HYSTERESIS:
            self._reported = level
        return 0
