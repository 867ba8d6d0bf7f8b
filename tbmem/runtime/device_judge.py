"""DeviceJudge: what is known of one device in a run, its last sample, its peak and its findings; all of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.detector.thresholds import available_bytes
from tbmem.analysis.runs.device_history import RunPeak
from tbmem.model.finding import Finding
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.sources.counters.devices import CPU


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


class DeviceJudges:
    """The devices of a process, in the order in which they were found.

    Args:
        new_detector: Makes the detector of a device; ``None`` where samples are not evaluated.
    """

    def __init__(self, new_detector: Callable[[str], Detector | None]) -> None:
        self._new_detector = new_detector
        self._devices: dict[str, DeviceJudge] = {}

    def of(self, device: str) -> DeviceJudge:
        """What is known of a device, which may be new."""
        known = self._devices.get(device)
        if known is None:
            # the CPU was monitored until the accelerator was found
            self._devices.pop(CPU, None)
            known = self._devices[device] = DeviceJudge(self._new_detector(device))
        return known

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Evaluate new samples of all devices."""
        names = dict.fromkeys([sample.device for sample in samples])
        findings: list[Finding] = []
        for name in names:
            own = samples if len(names) == 1 else [sample for sample in samples if sample.device == name]
            findings += self.of(name).judge(own)
        return findings

    def room(self, device: str) -> int | None:
        """Bytes of a device that are still free, if known."""
        return self._devices[device].room

    @property
    def detectors(self) -> dict[str, Detector]:
        """Those of the devices that are evaluated."""
        return {name: known.detector for name, known in self._devices.items() if known.detector is not None}

    @property
    def last(self) -> dict[str, MemorySample]:
        """The last sample of each device; for any thread."""
        return {name: known.last for name, known in list(self._devices.items()) if known.last is not None}

    @property
    def peaks(self) -> list[Peak]:
        """The highest step of each device."""
        return [peak for known in self._devices.values() if (peak := known.peak.peak) is not None]
