"""Records the next spike like one that was found, where the device's allocator keeps a history."""

from __future__ import annotations

from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample
from tbmem.present.lines import get_logger
from tbmem.runtime.profiling.snapshots import Snapshots

_LIKE = 0.5
"""Part of the known spike's height above the usual level that another one must have."""
_PATIENCE = 1000
"""Steps in which the history is on; each allocation then takes some microseconds more."""


class NextSpike:
    """Waits for a second spike, which has no period that would tell when it comes, and writes a snapshot of it.

    From the first spike on, the history of the device's allocator is recorded, each step anew. The next step that
    reaches at least half as far above the usual level is then in it, with the stack of each allocation. Done once in a
    run; a spike that comes within a window is in that.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._spike: Finding | None = None
        self._until = 0
        self._is_on = self._is_done = False

    @property
    def device(self) -> str | None:
        """The device whose next spike is awaited; ``None`` if none is."""
        return self._spike.device if self._spike is not None else None

    def expect(self, spike: Finding, step: int) -> None:
        """Wait for a spike like this one, found at a step, unless one is awaited or was recorded."""
        if self._spike is None and not self._is_done:
            self._spike, self._until = spike, step + _PATIENCE

    def step(self, step: int, sample: MemorySample | None, *, is_free: bool) -> bool:
        """A step has ended, ``is_free`` outside of windows; returns whether a snapshot was written."""
        if self._spike is None or sample is None or sample.device != self._spike.device:
            return False
        if not self._is_on:
            self._begin(is_free)
            return False
        usual, height = self._spike.evidence["usual_bytes"], self._spike.evidence["height_bytes"]
        reached = sample.highest
        if reached is not None and sample.step == step and reached >= usual + _LIKE * height:
            self.stop(write=f"spike{step}" if is_free else "")
            return is_free
        if step >= self._until:
            self.stop()
        elif is_free:
            self._snapshots.begin_step()
        return False

    def _begin(self, is_free: bool) -> None:
        """Switch the history on; between two windows, which switch it off at their ends."""
        if not is_free:
            return
        self._snapshots.find_history()
        history = self._snapshots.history
        self._is_on = history is not None and (history.start() or history.is_own)
        if not self._is_on:
            self._spike, self._is_done = None, True

    def stop(self, write: str = "") -> None:
        """Wait no more; ``write`` is the label of a snapshot that is written first."""
        was_on, self._is_on = self._is_on, False
        self._is_done, self._spike = self._is_done or was_on, None
        if not was_on:
            return
        try:
            path = self._snapshots.write(write) if write else None
            if path is not None:
                get_logger().info("snapshot: it holds a second spike; tbmem analyze %s tells who needed it", path.name)
        finally:
            self._snapshots.end_history()
