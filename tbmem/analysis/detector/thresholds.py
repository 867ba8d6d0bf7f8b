"""Tests of a device's counters against fixed thresholds: how full it is, and what fragmentation wastes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tbmem.analysis.detector.finding_text import make_finding
from tbmem.analysis.diagnosis.advice import NEAR_CAPACITY_OF_HOST
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_share

_HYSTERESIS = 2.0  # per cent by which use must fall below a threshold before passing it is reported again
_SHARE = 0.2  # share of the reserved memory that fragmentation must waste to be reported
_SPLIT = 0.5  # share of the loss that must lie in pieces of segments that are partly in use; the rest is free cache
_LEAST = 256 << 20  # bytes below which fragmentation does not matter
_LASTING = 4  # readings in a row that must show fragmentation
_EVERY = 8  # steps between two readings of it
_CAPACITY = (
    (Severity.INFO, "memory is tight"),
    (Severity.WARNING, "memory is nearly full"),
    (Severity.CRITICAL, "memory is about to run out"),
)


class CapacityEvent(NamedTuple):
    """A threshold of the capacity was passed."""

    step: int
    percent: float
    level: int  # number of the threshold, from 1

    def finding(self, sample: MemorySample) -> Finding:
        """How much of the device is in use."""
        severity, words = _CAPACITY[self.level - 1]
        is_cpu = sample.device == "cpu"
        place = "what the process may use" if is_cpu else "the device"
        total = format_bytes(sample.device_total or 0)
        message = f"{words}: {self.percent:.1f} % of {place} in use ({total} in all)"
        evidence = {"used_percent": round(self.percent, 2), "device_total_bytes": sample.device_total}
        advice = NEAR_CAPACITY_OF_HOST if is_cpu else ""
        kind = FindingKind.NEAR_CAPACITY
        return make_finding(kind, sample, message, evidence, sample.step, severity=severity, advice=advice)


class CapacityTest:
    """Compares a device's per cent in use with thresholds in ascending order."""

    def __init__(self, thresholds: Sequence[float]) -> None:
        self._thresholds = tuple(thresholds)
        self._is_news = [True] * len(self._thresholds)
        self.next_news = self._thresholds[0]  # per cent below which nothing can change

    def take(self, columns: Any) -> Iterator[CapacityEvent]:
        """Judge columns of samples; the capacity, for the CPU what is available too, is the same in all rows."""
        total, available = columns.device_total[0], columns.host_available[0]
        if not total:
            return
        if columns.device[0] == "cpu":
            if available is not None:
                yield from self._judge(columns.step[0], 100.0 * (total - available) / total)
            return
        used = (columns.peak_allocated, columns.allocated, columns.device_used)
        highest = max(max(filter(None, column), default=0) for column in used)
        if 100.0 * highest / total < self.next_news:
            return
        for step, *amounts in zip(columns.step, *used, strict=True):
            yield from self._judge(step, 100.0 * max(amount or 0 for amount in amounts) / total)

    def _judge(self, step: int, percent: float) -> Iterator[CapacityEvent]:
        if level := self.update(percent):
            yield CapacityEvent(step, percent, level)

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


class FragmentationEvent(NamedTuple):
    """Memory is lost to fragmentation; in bytes."""

    step: int
    never_used: int  # reserved beyond the most that was allocated at once
    fragmented: int  # in free pieces of segments that are partly in use
    reserved: int

    def finding(self, sample: MemorySample) -> Finding:
        """Free memory that cannot serve a request."""
        share = format_share(self.never_used, self.reserved)
        message = (
            f"{format_bytes(self.never_used)} ({share} that are reserved) were unused even at the peak:"
            f" {format_bytes(self.fragmented)} are fragmented, in gaps between used blocks that fit no request"
        )
        sizes = {f"{name}_bytes": getattr(self, name) for name in ("never_used", "fragmented", "reserved")}
        evidence = {"channel": Channel.RESERVED.value, **sizes}
        kind, severity = FindingKind.FRAGMENTATION, Severity.WARNING
        return make_finding(kind, sample, message, evidence, sample.step, severity=severity)


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

    def take(self, columns: Any) -> Iterator[FragmentationEvent]:
        """Judge columns of samples, where the allocator counts peaks and free pieces."""
        if columns.peak_allocated[0] is None:
            return
        self.note_peak(max(columns.peak_allocated))
        reserved, split = columns.reserved, columns.inactive_split
        if reserved[0] is None or split[0] is None:
            return
        for at in range(-columns.step[0] % _EVERY, len(reserved), _EVERY):
            if split[at] is not None and self.update(reserved[at], split[at]):
                yield FragmentationEvent(columns.step[at], self.never_used, split[at], reserved[at])

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
