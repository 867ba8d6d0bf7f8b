"""One MemorySample at a time goes in; findings (leak, spike, level shift, near capacity) and a verdict come out.

The same object judges live and over a recorded series; its memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tbmem.analysis.advice import ADVICE
from tbmem.analysis.capacity import CapacityTest
from tbmem.analysis.growth import Growth, GrowthTest
from tbmem.analysis.spikes import Jump, SpikeTest
from tbmem.model.finding import Evidence, Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import MIB, format_bytes, format_signed

ENOUGH_STEPS = 8
"""Judged steps below which there is no verdict."""
_WORSE = 2.0
"""A leak is reported again when it has grown by this factor."""
_CAPACITY_SEVERITY = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When a pattern counts; the fields are those of the configuration's section ``patterns``."""

    warmup_steps: int = 1
    patience: int = 24
    min_growth_bytes: int = 2 * MIB
    min_growth_percent: float = 0.02
    spike_percent: float = 5.0
    min_spike_bytes: int = 32 * MIB
    capacity_percent: tuple[float, ...] = (87.5, 93.75, 97.5)


class Detector:
    """Judges one device of one rank.

    Args:
        limits: When a pattern counts.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits = limits or Limits()
        self._growth = GrowthTest(
            patience=limits.patience,
            min_growth=limits.min_growth_bytes,
            min_growth_percent=limits.min_growth_percent,
        )
        self._spikes = SpikeTest(spike_percent=limits.spike_percent, min_spike=limits.min_spike_bytes)
        self._capacity = CapacityTest(limits.capacity_percent)
        self._sample: MemorySample | None = None
        self._judged = 0
        self._range = (0, 0)
        self._reported_growth = 0
        self._worst_spike: Finding | None = None
        self._fullest: Finding | None = None
        self._interrupted = False

    def update(self, sample: MemorySample) -> Sequence[Finding]:
        """Take in the next sample of the device.

        Args:
            sample: Counters after a step; steps must ascend.

        Returns:
            What has just become clear, usually nothing.
        """
        self._sample = sample
        findings: list[Finding] = []
        self._judge_capacity(sample, findings)
        if sample.step <= self._limits.warmup_steps:
            return findings
        if sample.profiled and sample.device == "cpu":
            # the profiler's own records lie in the same heap: its steps say nothing about the training
            self._interrupted = True
            return findings
        if self._interrupted:
            self._spikes.rebase()
            self._interrupted = False
        self._judge_growth(sample, findings)
        self._judge_spike(sample, findings)
        self._judged += 1
        return findings

    def close(self) -> Sequence[Finding]:
        """The run has ended: report what was still open."""
        jump = self._spikes.close()
        if jump is None or self._sample is None:
            return ()
        return (self._jump_finding(self._sample, jump),)

    def verdict(self) -> Finding:
        """The state of the device in one finding: leak, spike, near capacity, stable, or too early to tell."""
        sample = self._sample
        if sample is None:
            return _no_steps()
        if self._growth.current is not None:
            return self._leak_finding(sample, self._growth.current)
        if self._worst_spike is not None:
            return self._worst_spike
        if self._fullest is not None and self._fullest.severity is not Severity.INFO:
            return self._fullest
        return self._stable_finding(sample) if self._judged >= ENOUGH_STEPS else self._early_finding(sample)

    def _judge_growth(self, sample: MemorySample, findings: list[Finding]) -> None:
        level = sample.allocated
        if level is None:
            return
        low, high = self._range
        self._range = (min(low, level), max(high, level)) if high else (level, level)
        if not self._growth.update(sample.step, level):
            return
        growth = self._growth.current
        if growth is None:
            self._reported_growth = 0
            findings.append(_fallen_back_finding(sample))
        elif growth.bytes >= _WORSE * self._reported_growth:
            self._reported_growth = growth.bytes
            findings.append(self._leak_finding(sample, growth))

    def _judge_spike(self, sample: MemorySample, findings: list[Finding]) -> None:
        peak = sample.peak
        if peak is None:
            return
        jump = self._spikes.update(sample.step, peak)
        if jump is not None:
            findings.append(self._jump_finding(sample, jump))

    def _judge_capacity(self, sample: MemorySample, findings: list[Finding]) -> None:
        percent = used_percent(sample)
        if percent is None:
            return
        level = self._capacity.update(percent)
        if level:
            finding = _capacity_finding(sample, percent, level)
            if level == self._capacity.highest:
                self._fullest = finding
            findings.append(finding)

    def _jump_finding(self, sample: MemorySample, jump: Jump) -> Finding:
        finding = _level_shift_finding(sample, jump) if jump.lasting else _spike_finding(sample, jump)
        worst = self._worst_spike
        if not jump.lasting and (worst is None or jump.peak > worst.evidence["peak_bytes"]):
            self._worst_spike = finding
        return finding

    def _leak_finding(self, sample: MemorySample, growth: Growth) -> Finding:
        left = _steps_left(sample, growth.bytes_per_step)
        message = (
            f"memory grows by {format_bytes(growth.bytes_per_step)} per step since step {growth.first_step}"
            f" ({format_signed(growth.bytes)} by step {growth.last_step}, and never falls back)"
        )
        if left is not None:
            message += f" · full in about {left:,} steps".replace(",", " ")
        evidence = {
            "bytes_per_step": round(growth.bytes_per_step),
            "growth_bytes": growth.bytes,
            "floor_first_bytes": growth.base,
            "floor_last_bytes": growth.level,
            "steps_left": left,
            "known_by": f"the lowest level of every {growth.block} steps rose 12 times in a row",
            "holder": None,
        }
        return _finding(
            FindingKind.LEAK,
            Severity.CRITICAL,
            sample,
            message,
            first_step=growth.first_step,
            evidence=evidence,
        )

    def _stable_finding(self, sample: MemorySample) -> Finding:
        low, high = self._range
        message = f"stable between {format_bytes(low)} and {format_bytes(high)} over {self._judged} judged steps"
        evidence = {"lowest_bytes": low, "highest_bytes": high, "judged_steps": self._judged}
        return _finding(FindingKind.STABLE, Severity.INFO, sample, message, first_step=1, evidence=evidence)

    def _early_finding(self, sample: MemorySample) -> Finding:
        message = f"too early to tell: {self._judged} of {ENOUGH_STEPS} steps judged"
        return _finding(
            FindingKind.WARMUP,
            Severity.INFO,
            sample,
            message,
            first_step=1,
            evidence={"judged_steps": self._judged},
        )


def judge(samples: Iterable[MemorySample], limits: Limits | None = None) -> list[Finding]:
    """Judge a recorded series as if it were live.

    Args:
        samples: Samples of one device of one rank, steps ascending.
        limits: When a pattern counts.

    Returns:
        All findings in order, the verdict last.
    """
    detector = Detector(limits)
    findings = [finding for sample in samples for finding in detector.update(sample)]
    return [*findings, *detector.close(), detector.verdict()]


def used_percent(sample: MemorySample) -> float | None:
    """How full the device is in per cent of its capacity.

    An accelerator counts this process's own peak, and all processes where the driver was asked; the CPU
    counts the whole machine (or the cgroup), since there all share one memory.
    """
    total = sample.device_total
    if not total:
        return None
    if sample.device == "cpu":
        if sample.host_available is None:
            return None
        return 100.0 * (total - sample.host_available) / total
    used = max(sample.peak or 0, sample.device_used or 0)
    return 100.0 * used / total


def _steps_left(sample: MemorySample, bytes_per_step: float) -> int | None:
    """Steps until the device is full at this rate."""
    total = sample.device_total
    if not total or bytes_per_step <= 0:
        return None
    used = max(sample.peak or 0, sample.allocated or 0)
    left = sample.host_available if sample.device == "cpu" else total - used
    return None if left is None else max(round(left / bytes_per_step), 0)


def _finding(
    kind: FindingKind,
    severity: Severity,
    sample: MemorySample,
    message: str,
    *,
    first_step: int,
    last_step: int | None = None,
    evidence: Evidence,
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        device=sample.device,
        rank=sample.rank,
        first_step=first_step,
        last_step=sample.step if last_step is None else last_step,
        message=message,
        evidence=evidence,
        advice=ADVICE.get(kind, ""),
    )


def _spike_finding(sample: MemorySample, jump: Jump) -> Finding:
    height = jump.peak - jump.usual
    message = (
        f"step {jump.first_step} reached {format_bytes(jump.peak)},"
        f" {format_signed(height)} above the usual {format_bytes(jump.usual)}"
    )
    evidence = {"peak_bytes": jump.peak, "usual_bytes": jump.usual, "height_bytes": height}
    return _finding(
        FindingKind.SPIKE,
        Severity.WARNING,
        sample,
        message,
        first_step=jump.first_step,
        last_step=jump.last_step,
        evidence=evidence,
    )


def _level_shift_finding(sample: MemorySample, jump: Jump) -> Finding:
    height = jump.peak - jump.usual
    message = (
        f"since step {jump.first_step} each step needs {format_signed(height)} more"
        f" ({format_bytes(jump.usual)} before, {format_bytes(jump.peak)} now)"
    )
    evidence = {"peak_bytes": jump.peak, "usual_bytes": jump.usual, "height_bytes": height}
    return _finding(
        FindingKind.LEVEL_SHIFT,
        Severity.INFO,
        sample,
        message,
        first_step=jump.first_step,
        last_step=jump.last_step,
        evidence=evidence,
    )


def _fallen_back_finding(sample: MemorySample) -> Finding:
    message = "the growth reported before has fallen back: something was released, it was no leak"
    evidence = {"allocated_bytes": sample.allocated}
    return _finding(FindingKind.GROWTH, Severity.INFO, sample, message, first_step=sample.step, evidence=evidence)


def _capacity_finding(sample: MemorySample, percent: float, level: int) -> Finding:
    words = ("memory is tight", "memory is nearly full", "memory is about to run out")[level - 1]
    place = "the host's memory" if sample.device == "cpu" else "the device"
    total = format_bytes(sample.device_total or 0)
    message = f"{words}: {percent:.1f} % of {place} in use ({total} in all)"
    evidence = {"used_percent": round(percent, 2), "device_total_bytes": sample.device_total}
    return _finding(
        FindingKind.NEAR_CAPACITY,
        _CAPACITY_SEVERITY[level - 1],
        sample,
        message,
        first_step=sample.step,
        evidence=evidence,
    )


def _no_steps() -> Finding:
    return Finding(
        kind=FindingKind.WARMUP,
        severity=Severity.INFO,
        device="",
        first_step=0,
        last_step=0,
        message="no step was seen",
    )
