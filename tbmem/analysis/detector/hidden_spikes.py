"""Spikes of the CPU that no resident peak shows, because malloc had kept free what an earlier one had needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tbmem.analysis.detector.resident_peaks import ResidentPeaks
from tbmem.analysis.detector.spike_test import EACH, LEAST_PART, RETURN_WITHIN, Excursion
from tbmem.model.finding import Finding

_MOST = 32  # large steps that are remembered, the largest ones
_APART = 2 / 3  # part of a spike's height below which the next lower one must be: steps that vary are no spikes


class HiddenSpikes:
    """The steps of a run that have allocated much, as looks at them have seen.

    Args:
        peaks_in: Returns the resident peaks of the stretch of a run in which some steps lie.
        least: Bytes that a spike of the resident memory has at least.
    """

    def __init__(self, peaks_in: Callable[[int, int], ResidentPeaks], least: int) -> None:
        self._peaks_in = peaks_in
        self._least = least
        self._large: dict[int, Excursion] = {}

    def note(self, allocated: Mapping[int, int]) -> None:
        """Remember large steps, while their resident peaks are known.

        ``allocated``: by step the bytes that looks at it have seen beyond what steps usually allocate.
        """
        for step, size in allocated.items():
            if size >= self._least and step not in self._large:
                found = self._peaks_in(step, step).with_allocated(step, size)
                if found is not None:
                    self._large[step] = found
        while len(self._large) > _MOST:
            del self._large[min(self._large, key=lambda step: self._large[step].height)]

    def beside(self, reported: Sequence[Finding], is_periodic: Callable[[int], bool]) -> list[Excursion]:
        """The largest steps beside the spikes and periods that were reported, in resident peaks, by step.

        With them no more than ``EACH`` are reported of a run, and those stand apart from what the other steps needed.
        """
        others = [each for step, each in self._large.items() if not (_is_near(step, reported) or is_periodic(step))]
        others.sort(key=lambda each: -each.height)
        highest = max([*map(_need, reported), *(each.height for each in others[:1])], default=0)
        for count in range(min(EACH - len(reported), len(others)), 0, -1):
            least = others[count - 1].height
            lower = others[count].height if count < len(others) else 0
            if least >= LEAST_PART * highest and lower < _APART * least:
                return sorted(others[:count], key=lambda each: each.first_step)
        return []


def _need(spike: Finding) -> int:
    """What a spike needed, in bytes: the resident peak may be higher, by holes in malloc's heap."""
    height = int(spike.evidence.get("height_bytes", 0))
    return min(height, int(spike.evidence.get("needed_bytes", height)))


def _is_near(step: int, spikes: Sequence[Finding]) -> bool:
    return any(spike.first_step - RETURN_WITHIN <= step <= spike.last_step + RETURN_WITHIN for spike in spikes)
