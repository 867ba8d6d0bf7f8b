"""One device's samples go in; its findings, its verdict and its highest level come out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.limits import Limits
from tbmem.analysis.patterns import Detector
from tbmem.analysis.peaks import RunPeak
from tbmem.config.schema import PatternsConfig
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample


class WatchedDevice:
    """What the monitor keeps for one device.

    Args:
        limits: When a pattern counts; ``None`` judges nothing.
        awaits_evidence: Whether somebody looks into suspicions.
    """

    def __init__(self, limits: Limits | None, *, awaits_evidence: bool) -> None:
        self.detector = Detector(limits, awaits_evidence=awaits_evidence) if limits is not None else None
        self.last: MemorySample | None = None
        self.peak = RunPeak()

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Take in new samples, at least one."""
        self.last = samples[-1]
        self.peak.add(samples)
        return self.detector.update_all(samples) if self.detector is not None else []


def limits_of(patterns: PatternsConfig) -> Limits:
    """The detector's limits as the configuration gives them."""
    return Limits(
        warmup_steps=patterns.warmup_steps,
        patience=patterns.patience,
        min_growth_bytes=patterns.min_growth_bytes,
        min_growth_percent=patterns.min_growth_percent,
        spike_percent=patterns.spike_percent,
        held_spike_percent=patterns.held_spike_percent,
        min_spike_bytes=patterns.min_spike_bytes,
        min_resident_spike_bytes=patterns.min_resident_spike_bytes,
        capacity_percent=tuple(patterns.capacity_percent),
    )
