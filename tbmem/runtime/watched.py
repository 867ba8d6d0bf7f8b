"""One device's samples go in; its findings, its verdict and its highest level come out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.patterns import Detector
from tbmem.analysis.peaks import RunPeak
from tbmem.config.schema import PatternsConfig
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample


class WatchedDevice:
    """What the monitor keeps for one device.

    Args:
        patterns: When a pattern counts; ``None`` judges nothing.
        awaits_evidence: Whether somebody looks into suspicions.
    """

    def __init__(self, patterns: PatternsConfig | None, *, awaits_evidence: bool) -> None:
        self.detector = Detector(patterns, awaits_evidence=awaits_evidence) if patterns is not None else None
        self.last: MemorySample | None = None
        self.peak = RunPeak()

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Take in new samples, at least one."""
        self.last = samples[-1]
        self.peak.add(samples)
        return self.detector.update_all(samples) if self.detector is not None else []
