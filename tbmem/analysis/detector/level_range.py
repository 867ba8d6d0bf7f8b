"""Between which levels memory was, and how often it was read: what a verdict without a finding says."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.growth_rate import ENOUGH_STEPS


class LevelRange:
    """The range of a level in bytes, and how often it was read: malloc's figures are rationed where that takes long."""

    def __init__(self) -> None:
        self.lowest = self.highest = 0
        self.readings = 0
        self._unread = 0  # steps since the last one

    def add(self, levels: Sequence[int | None]) -> None:
        """Add the level after each of some steps, ``None`` where it was not read."""
        known = [level for level in levels if level is not None]
        if not known:
            self._unread += len(levels)
            return
        low, high = min(known), max(known)
        self.lowest, self.highest = min(self.lowest, low) if self.readings else low, max(self.highest, high)
        self.readings += len(known)
        self._unread = next(at for at, level in enumerate(reversed(levels)) if level is not None)

    def tells_of(self, steps: int) -> bool:
        """Whether it was read in enough of so many steps, and in the later half of them."""
        return self.readings >= ENOUGH_STEPS and 2 * self._unread <= steps
