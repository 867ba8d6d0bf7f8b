"""Spikes of the CPU that no resident peak shows, because malloc had kept free what an earlier one had needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tbmem.analysis.detector.resident_peaks import ResidentPeaks
from tbmem.analysis.detector.spike_test import EACH, LEAST_PART, RETURN_WITHIN, Excursion
from tbmem.model.finding import Finding


def hidden_spikes(
    allocated: Mapping[int, int],
    reported: Sequence[Finding],
    peaks_in: Callable[[int, int], ResidentPeaks],
    least: int,
) -> list[Excursion]:
    """The largest steps beside some spikes that were reported, in resident peaks, by step.

    With them no more than ``EACH`` are reported of a run: more recur, and the first tells of them.

    Args:
        allocated: By step the bytes that looks at it have seen beyond what steps usually allocate.
        reported: The spikes; without one there is no other.
        peaks_in: Returns the resident peaks of the stretch of a run in which some steps lie.
        least: Bytes that a spike of the resident memory has at least.
    """
    if not 0 < len(reported) < EACH:
        return []
    highest = max(int(spike.evidence.get("height_bytes", 0)) for spike in reported)
    enough = {step: size for step, size in allocated.items() if size >= max(least, LEAST_PART * highest)}
    others = {step: size for step, size in enough.items() if not _is_near(step, reported)}
    if len(reported) + len(others) > EACH:
        return []
    found = (peaks_in(step, step).with_allocated(step, size) for step, size in sorted(others.items()))
    return [spike for spike in found if spike is not None]


def _is_near(step: int, spikes: Sequence[Finding]) -> bool:
    return any(spike.first_step - RETURN_WITHIN <= step <= spike.last_step + RETURN_WITHIN for spike in spikes)
