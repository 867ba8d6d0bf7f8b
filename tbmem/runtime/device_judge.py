"""DeviceJudge: what is known of one device in a run, its last sample, its peak and its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.detector.thresholds import available_bytes
from tbmem.analysis.runs.device_history import RunPeak
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample


@dataclass
class DeviceJudge:
    """One device; without a detector its samples are not evaluated."""

    detector: Detector | None
    last: MemorySample | None = None
    peak: RunPeak = field(default_factory=RunPeak)

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Evaluate new samples, at least one."""
        self.last = samples[-1]
        self.peak.add(samples)
        return self.detector.update_all(samples) if self.detector is not None else []

    @property
    def room(self) -> int | None:
        """Bytes that are still free after the last sample, if known."""
        return available_bytes(self.last) if self.last is not None else None
