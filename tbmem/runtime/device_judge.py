"""DeviceJudge: what is known of one device in a run, its last sample, its peak and its findings; all of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.detector.recorded_peaks import Confirms, unconfirmed
from tbmem.analysis.detector.thresholds import available_bytes
from tbmem.analysis.runs.device_history import RunPeak
from tbmem.interruption import raise_interruption
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.present.lines import get_logger
from tbmem.sources.counters.devices import CPU

_CLEARLY = 1.01
"""Times as high as all steps what comes after the last one must be to count: a few pages are always touched."""
_MOST_FAILURES = 3
"""Batches of samples in succession."""


class DeviceJudge:
    """One device; without a detector its samples are not evaluated.

    An exception of the program's (a timeout by SIGALRM) that arrives in the middle of the evaluation leaves the
    detector half updated. If it fails later, these samples are passed over; if it goes on failing, it begins anew.

    Args:
        new_detector: Makes the detector; ``None`` where samples are not evaluated.
    """

    def __init__(self, new_detector: Callable[[], Detector | None]) -> None:
        self._new_detector = new_detector
        self.detector = new_detector()
        self.last: MemorySample | None = None
        self.peak = RunPeak()
        self._is_evaluating = self._was_interrupted = False
        self._failures = 0

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Evaluate new samples, at least one."""
        self.last = samples[-1]
        self.peak.add(samples)
        return self._evaluated(self.detector, samples) if self.detector is not None else []

    def _evaluated(self, detector: Detector, samples: Sequence[MemorySample]) -> list[Finding]:
        self._was_interrupted = self._was_interrupted or self._is_evaluating
        self._is_evaluating = True
        try:
            findings = detector.update_all(samples)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            raise_interruption(error)
            if not self._was_interrupted:
                raise
            findings = []
            self._failures += 1
            if self._failures == _MOST_FAILURES:
                get_logger().debug("the detector begins anew after an exception of the program's", exc_info=True)
                self.detector, self._was_interrupted, self._failures = self._new_detector(), False, 0
        else:
            self._failures = 0
        self._is_evaluating = False
        return findings

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
            known = self._devices[device] = DeviceJudge(partial(self._new_detector, device))
        return known

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Evaluate new samples of all devices."""
        names = dict.fromkeys([sample.device for sample in samples])
        findings: list[Finding] = []
        for name in names:
            own = samples if len(names) == 1 else [sample for sample in samples if sample.device == name]
            findings += self.of(name).judge(own)
        return findings

    def close(self, confirms: Confirms = unconfirmed) -> list[Finding]:
        """End the run: what was still open; ``confirms``: what recordings tell."""
        findings = [finding for detector in self.detectors.values() for finding in detector.close(confirms)]
        for finding in findings:
            self.of(finding.device).peak.add_finding(finding)
        return findings

    def verdicts(self, findings: Iterable[Finding]) -> list[Finding]:
        """One finding per device that states its verdict; an out-of-memory error in ``findings`` takes precedence."""
        ran_out = {finding.device: finding for finding in findings if finding.kind is FindingKind.OOM}
        return [ran_out.get(name) or detector.verdict() for name, detector in self.detectors.items()]

    def note_peaks(self, samples: Iterable[MemorySample]) -> None:
        """Add samples that are not evaluated to the peaks."""
        for sample in samples:
            self.of(sample.device).peak.add([sample])

    def note_unfinished(self, row: SampleRow) -> None:
        """Add the peak of a step that has not ended."""
        self.of(row.sample.device).peak.add_row(row)

    def is_raised_by(self, sample: MemorySample) -> bool:
        """Whether a step that has not ended has needed clearly more than all before: an evaluation after training."""
        known = self._devices.get(sample.device)
        peak = known.peak.peak if known is not None else None
        return peak is not None and not sample.holds_profiler and (sample.highest or 0) > _CLEARLY * peak.bytes

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
