"""Finds spikes of the CPU in steps that were recorded, in whose resident peaks the records lie as well."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median_low
from typing import NamedTuple

from tbmem.analysis.detector.spike_test import Confirmation, Excursion, ExcursionKind

_PLAIN = 256
"""Plain steps that are remembered."""
_ENOUGH, _FEW = 32, 8
"""Plain steps from which on those of a window are judged at once, and when the run ends."""
_MOST = 4
"""Recorded steps that are compared in their traces, which takes a fraction of a second each: the highest."""
_AFTER = 4
"""Steps after a window that are judged here: elsewhere they define what is usual from then on."""
_SPREADS = 2.0
"""A spike is so many times as far from the usual as the highest plain step."""
_UNRECORDED = 2.0
"""Times a spike's least height that one of a warm-up must have: no trace shows whether tensors or malloc made it."""
_WINDOWS = 20
"""Windows with high steps that are remembered until the run ends, the last ones."""


Confirms = Callable[[int, int], Confirmation | None]
"""Returns what confirms that a step of a window had tensors of most of so many bytes more than others."""


def unconfirmed(step: int, height: int) -> None:
    """No recording tells more of a step."""


class _Step(NamedTuple):
    number: int
    peak: int  # resident, in bytes, without what tbmem has added since the last plain step
    rise: int | None  # of the resident memory since the step began, as far as known, in bytes
    added: int | None = None  # what tbmem has added; ``None`` for a plain step


class RecordedPeaks:
    """Compares the resident peaks of recorded steps with those of plain ones, before and after.

    The records lie in malloc's heap, which is read at the end of each step: what it has grown by since the last plain
    step is left out of the peak. It is at least what was recorded until then, unless the program has freed as much. A
    recorded step may be a spike where it passes every plain step, and the lowest of its own window, by a spike's height
    and once more by what was left out. Since the records also lie between the program's blocks, so that malloc needs
    more for the same tensors, it is one only if its trace shows these, which is known when the run ends; one of a
    warm-up, which has no trace, must be twice as high. What a spike has freed may stay in malloc's heap: a step in
    which the resident memory did not rise has none of its own. What is known for a spike of a plain step is no measure
    for others, nor are the steps after it until malloc gives that back.

    Args:
        spike_percent: Height in per cent of the usual peak from which on a step is a spike.
        min_spike: The same in bytes.
    """

    def __init__(self, spike_percent: float, min_spike: int) -> None:
        self._share = spike_percent / 100
        self._min_spike = min_spike
        self._plain: deque[tuple[int, int]] = deque(maxlen=_PLAIN)  # step and peak
        self._told: list[Excursion] = []  # spikes of plain steps
        self._before: tuple[int, int] | None = None  # malloc's and tbmem's bytes after the last plain step
        self._resident: int | None = None  # when the last step ended
        self._window: list[_Step] = []
        self._after: list[_Step] = []
        self._ended: list[tuple[Sequence[_Step], Sequence[_Step]]] = []
        self._high: deque[tuple[Sequence[_Step], list[tuple[int, int]]]] = deque(maxlen=_WINDOWS)
        """Windows with high steps, and the plain steps around them: which are spikes is known when the run ends."""

    def add_recorded(
        self, step: int, peak: int | None, resident: int | None, heap: int | None, own: int | None
    ) -> None:
        """Add a step that was recorded, or was run in a warm-up for it.

        Args:
            step: Its number.
            peak: Resident peak in it, in bytes.
            resident: Resident memory when it ended, in bytes.
            heap: As in ``note_level``.
            own: As in ``note_level``.
        """
        if self._after:
            self._end_window()
        rise = self._rise(peak, resident)
        if self._before is None:  # no plain step lies before: what the first of them has added is not known
            self.note_level(heap, own)
            return
        if peak is None or heap is None:
            return
        added = max(heap - self._before[0], 0) + max((own or 0) - self._before[1], 0)
        self._window.append(_Step(step, peak - added, rise, added))

    def add_plain(self, steps: Sequence[int], peaks: Sequence[int | None], resident: Sequence[int | None]) -> None:
        """Add plain steps that follow each other; a window may have ended in the first after it."""
        if not self._window:
            self._plain.extend((step, peak) for step, peak in zip(steps, peaks, strict=True) if peak is not None)
            self._resident = resident[-1]
            return
        rises = [self._rise(peak, end) for peak, end in zip(peaks, resident, strict=True)]
        rows = zip(steps, peaks, rises, strict=True)
        known = [_Step(step, peak, rise) for step, peak, rise in rows if peak is not None]
        room = _AFTER - len(self._after)
        self._after += known[:room]
        if len(known) > room:
            self._end_window()
            self._plain.extend((step.number, step.peak) for step in known[room:])

    def note_excursion(self, excursion: Excursion) -> None:
        """Note what became of an excursion of plain steps."""
        if excursion.kind is ExcursionKind.SPIKE:
            self._told.append(excursion)
        elif excursion.kind is ExcursionKind.PERIODIC:
            self._told = [spike for spike in self._told if spike.first_step not in excursion.members]

    def note_level(self, heap: int | None, own: int | None) -> None:
        """Note what malloc has handed out after a plain step, and what is tbmem's of the resident memory, in bytes."""
        if heap is not None:
            self._before = heap, own or 0

    def _rise(self, peak: int | None, resident: int | None) -> int | None:
        begun, self._resident = self._resident, resident
        return None if peak is None or begun is None else peak - begun

    def _end_window(self) -> None:
        if self._window:
            self._ended.append((self._window, self._after))
            self._window, self._after = [], []

    def judged(self) -> list[Excursion]:
        """The spikes in the steps after windows, once there are enough plain steps."""
        return self._judged(_ENOUGH)

    def ended(self, confirms: Confirms) -> list[Excursion]:
        """The spikes that are known when the run ends, those in recorded steps among them."""
        self._end_window()
        spikes = self._judged(_FEW)
        recorded = [spike for window, plain in self._high for spike in self._spikes(window, window, plain)]
        for spike in sorted(recorded, key=lambda spike: -spike.height)[:_MOST]:
            confirmation = confirms(spike.first_step, spike.height)
            if confirmation is None:
                continue
            if confirmation.file or spike.height >= _UNRECORDED * self._least_height(spike.usual):
                spikes.append(replace(spike, confirmation=confirmation))
        return spikes

    def _least_height(self, usual: int) -> float:
        return max(self._share * usual, self._min_spike)

    def _judged(self, enough: int) -> list[Excursion]:
        if not self._ended or len(self._plain) < enough:
            return []
        ended, self._ended = self._ended, []
        plain = list(self._plain)
        usual = median_low([peak for _, peak in plain])
        self._high += [
            (steps, plain) for steps, _ in ended if max(step.peak for step in steps) >= usual + self._min_spike
        ]
        return [spike for window, after in ended for spike in self._spikes(after, window, plain)]

    def _spikes(
        self, steps: Sequence[_Step], window: Sequence[_Step], plain: Sequence[tuple[int, int]]
    ) -> Iterator[Excursion]:
        """Those of some steps, of a window or after it, that are spikes beside plain ones (step and peak)."""
        peaks = self._without_spikes(plain) or [peak for _, peak in plain]
        usual, most = median_low(peaks), max(peaks)
        least = self._least_height(usual)
        # of few steps, chance may have picked low ones
        spread = most - (usual if len(peaks) >= _ENOUGH else min(peaks))
        height = max(least, _SPREADS * spread)
        for step in steps:
            added = step.added or 0
            lowest = min((other.peak for other in window if other is not step), default=0)
            is_own = step.rise is None or step.rise >= least
            is_higher = step.peak - max(most, lowest) >= least + added
            if is_own and is_higher and step.peak - usual >= height + added:
                yield Excursion(
                    ExcursionKind.SPIKE, step.number, step.number, step.peak, usual, kept=0, left_out=step.added
                )

    def _without_spikes(self, plain: Sequence[tuple[int, int]]) -> list[int]:
        """The peaks of plain steps but those of known spikes, and of the steps after one in what malloc keeps of it."""
        told = {step for spike in self._told for step in range(spike.first_step, spike.last_step + 1)}
        spikes = sorted(self._told, key=lambda spike: spike.first_step)
        peaks: list[int] = []
        kept: float | None = None  # the level above which a step stands in what a spike has left
        for step, peak in plain:
            while spikes and spikes[0].first_step <= step:
                spike = spikes.pop(0)
                kept = peaks[-1] + spike.height / 2 if peaks else None
            if step not in told and (kept is None or peak < kept):
                kept = None
                peaks.append(peak)
        return peaks
