"""One device's samples go in; its findings, its verdict and its highest level come out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.patterns import Detector
from tbmem.config.schema import PatternsConfig
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample
from tbmem.model.summary import Peak
from tbmem.sources.devices import CPU


class WatchedDevice:
    """What the monitor keeps for one device.

    Args:
        patterns: When a pattern counts; ``None`` judges nothing.
        awaits_evidence: Whether somebody looks into suspicions.
    """

    def __init__(self, patterns: PatternsConfig | None, *, awaits_evidence: bool) -> None:
        self.detector = Detector(patterns, awaits_evidence=awaits_evidence) if patterns is not None else None
        self.last: MemorySample | None = None
        self.peak: Peak | None = None
        self._highest = -1

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Take in new samples, at least one."""
        self.last = samples[-1]
        self.note_peak(samples)
        return self.detector.update_all(samples) if self.detector is not None else []

    def note_peak(self, samples: Sequence[MemorySample]) -> None:
        """Keep the highest level of all; samples may come twice."""
        if samples[0].device == CPU:
            reached = [each.peak_allocated or each.host_peak_rss or each.allocated or 0 for each in samples]
        else:
            reached = [each.peak_allocated or each.allocated or 0 for each in samples]
        highest = max(reached)
        if highest <= self._highest:
            return
        self._highest = highest
        sample = samples[reached.index(highest)]
        self.peak = Peak(
            device=sample.device,
            bytes=highest,
            step=sample.step,
            counter=_peak_counter(sample),
            total=sample.device_total,
        )


def _peak_counter(sample: MemorySample) -> str:
    if sample.peak_allocated is not None:
        return "peak_allocated"
    return "allocated" if sample.peak is None else "host_peak_rss"
