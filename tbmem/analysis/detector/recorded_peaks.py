"""Finds spikes of the CPU in steps that were recorded, in whose resident peaks the records lie as well."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_low
from typing import NamedTuple

from tbmem.analysis.detector.spike_test import Excursion, ExcursionKind

_PLAIN = 256
"""Plain steps that are remembered."""
_ENOUGH, _FEW = 32, 8
"""Plain steps from which on recorded ones are judged at once, and when the run ends."""


class _Step(NamedTuple):
    number: int
    peak: int  # resident, in bytes, without what tbmem has added since the last plain step
    added: int  # that, in bytes


class RecordedPeaks:
    """Compares the resident peaks of recorded steps with those of plain ones, before and after.

    The records lie in malloc's heap, which is read at the end of each step: what it has grown by since the last plain
    step is left out of the peak. It is at least what was recorded until then, unless the program has freed as much. A
    recorded step is a spike only where it passes every plain step, and the lowest of its own window, by a spike's
    height and once more by what was left out, which may lie between the program's blocks.

    Args:
        spike_percent: Height in per cent of the usual peak from which on a step is a spike.
        min_spike: The same in bytes.
    """

    def __init__(self, spike_percent: float, min_spike: int) -> None:
        self._share = spike_percent / 100
        self._min_spike = min_spike
        self._plain: deque[int] = deque(maxlen=_PLAIN)
        self._before: tuple[int, int] | None = None  # malloc's and tbmem's bytes after the last plain step
        self._window: list[_Step] = []
        self._ended: list[tuple[Sequence[_Step], Sequence[_Step]]] = []

    def add_recorded(self, step: int, peak: int | None, heap: int | None, own: int | None) -> None:
        """Add a step that was recorded, or was run in a warm-up for it; ``heap`` and ``own`` as in ``note_level``."""
        if self._before is None or peak is None or heap is None:
            return
        added = max(heap - self._before[0], 0) + max((own or 0) - self._before[1], 0)
        self._window.append(_Step(step, peak - added, added))

    def add_plain(self, steps: Sequence[int], peaks: Sequence[int | None]) -> None:
        """Add plain steps that follow each other; the first after a window, which may have ended in it, is judged."""
        if self._window and peaks:
            first, *peaks = peaks
            self._end_window([_Step(steps[0], first, 0)] if first is not None else [])
        self._plain.extend(peak for peak in peaks if peak is not None)

    def note_level(self, heap: int | None, own: int | None) -> None:
        """Note what malloc has handed out after a plain step, and what is tbmem's of the resident memory, in bytes."""
        if heap is not None:
            self._before = heap, own or 0

    def _end_window(self, after: Sequence[_Step] = ()) -> None:
        if self._window:
            self._ended.append((self._window, after))
            self._window = []

    def judged(self, *, ends: bool = False) -> list[Excursion]:
        """The spikes in windows that have ended, once there are enough plain steps or the run ``ends``."""
        if ends:
            self._end_window()
        if not self._ended or len(self._plain) < (_FEW if ends else _ENOUGH):
            return []
        ended, self._ended = self._ended, []
        return [spike for window, after in ended if (spike := self._spike(window, after)) is not None]

    def _spike(self, window: Sequence[_Step], after: Sequence[_Step]) -> Excursion | None:
        """The highest step of a window, or the one after it, if it is a spike."""
        highest = max([*window, *after], key=lambda step: step.peak)
        others = [step.peak for step in window if step is not highest]
        bar = max(*self._plain, min(others, default=0))
        usual = median_low(self._plain)
        if highest.peak - bar < max(self._share * usual, self._min_spike) + highest.added:
            return None
        step, left_out = highest.number, highest.added or None
        return Excursion(ExcursionKind.SPIKE, step, step, highest.peak, usual, kept=0, left_out=left_out)
