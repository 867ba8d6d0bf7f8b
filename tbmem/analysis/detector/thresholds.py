"""Tests of a device's counters against fixed thresholds: how full it is, and what fragmentation wastes."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.model.sample import MemorySample

_HYSTERESIS = 2.0  # per cent by which use must fall below a threshold before passing it is reported again
_SHARE = 0.2  # share of the reserved memory that fragmentation must waste to be reported
_SPLIT = 0.5  # share of the loss that must lie in pieces of segments that are partly in use; the rest is free cache
_LEAST = 256 << 20  # bytes below which fragmentation does not matter
_LASTING = 4  # readings in a row that must show fragmentation
FRAGMENTATION_EVERY = 8
"""Steps between two readings of it."""


class CapacityTest:
    """Compares a device's per cent in use with thresholds in ascending order."""

    def __init__(self, thresholds: Sequence[float]) -> None:
        self._thresholds = tuple(thresholds)
        self._is_news = [True] * len(self._thresholds)
        self.next_news = self._thresholds[0]  # per cent below which nothing can change

    def update(self, percent: float) -> int:
        """Add the per cent of the capacity in use; returns the number (1, 2, 3) of a threshold newly passed, or 0."""
        if percent < self.next_news:
            return 0
        news = 0
        for number, threshold in enumerate(self._thresholds):
            if percent >= threshold and self._is_news[number]:
                self._is_news[number] = False
                news = number + 1
            elif percent < threshold - _HYSTERESIS:
                self._is_news[number] = True
        self.next_news = self._thresholds[0] if all(self._is_news) else 0.0
        return news


class FragmentationTest:
    """Tells free memory that cannot serve a request from a cache that can.

    What is reserved beyond the largest amount that was ever allocated at once (never used, as in the analysis of a
    recording) was needed only because the free pieces did not fit; it counts as lost as far as fragmented memory, free
    pieces of segments that are partly in use, explains it. Reserved minus allocated alone is never called so.
    """

    def __init__(self) -> None:
        self._highest = 0
        self._times = 0
        self.never_used = 0  # bytes reserved at the last reading beyond the most that was allocated at once

    def note_peak(self, peak: int) -> None:
        """Note bytes that were allocated at once."""
        if peak > self._highest:
            self._highest = peak

    def update(self, reserved: int, split: int) -> bool:
        """Add bytes reserved and in split pieces; returns whether much is lost for a while, once until it is better."""
        self.never_used = reserved - self._highest
        if min(self.never_used, round(split / _SPLIT)) < max(_SHARE * reserved, _LEAST):
            self._times = 0
            return False
        self._times += 1
        return self._times == _LASTING

    @property
    def stands(self) -> bool:
        """Whether memory is lost now."""
        return self._times >= _LASTING


def available_bytes(sample: MemorySample) -> int | None:
    """Bytes that the device can still give, for the CPU those of the host; ``None`` where that is not known."""
    if sample.device == "cpu":
        return sample.host_available
    if sample.device_total is None:
        return None
    used = max(sample.peak_allocated or 0, sample.allocated or 0, sample.device_used or 0)
    return max(sample.device_total - used, 0)
