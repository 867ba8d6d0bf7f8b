"""A test for memory that is lost to fragmentation while a program runs."""

from __future__ import annotations

_SHARE = 0.2
"""Share of the reserved memory that must be lost."""
_SPLIT = 0.5
"""Share of the loss that must lie in pieces of segments that are partly in use; the rest is free cache."""
_LEAST = 256 << 20
"""Bytes below which nobody minds."""
_LASTING = 4
"""Readings in a row."""
EVERY = 8
"""Steps between two readings."""


class FragmentationTest:
    """Tells free memory that cannot serve a request from a cache that can.

    What is reserved beyond the largest amount that was ever allocated at once (never used, as in the analysis of a
    recording) was needed only because the free pieces did not fit; it counts as lost as far as fragmented memory, free
    pieces of segments that are partly in use, explains it. Reserved minus allocated alone is never called so.
    """

    def __init__(self) -> None:
        self._highest = 0
        self._times = 0
        self.never_used = 0
        """Bytes reserved at the last reading beyond the most that was allocated at once."""

    def note_peak(self, peak: int) -> None:
        """Take in the largest amount that was allocated at once."""
        if peak > self._highest:
            self._highest = peak

    def update(self, reserved: int, split: int) -> bool:
        """Take in a reading.

        Args:
            reserved: Bytes that the allocator holds.
            split: Of these, free pieces of segments that are partly in use.

        Returns:
            Whether much has been lost for a while, told once until it gets better.
        """
        self.never_used = reserved - self._highest
        if min(self.never_used, round(split / _SPLIT)) < max(_SHARE * reserved, _LEAST):
            self._times = 0
            return False
        self._times += 1
        return self._times == _LASTING

    @property
    def stands(self) -> bool:
        """Whether it is so now."""
        return self._times >= _LASTING
