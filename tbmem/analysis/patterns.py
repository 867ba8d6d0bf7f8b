"""One MemorySample at a time goes in; findings (leak, spike, level shift, near capacity) and a verdict come out.

The same object judges live and over a recorded series; its memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tbmem.analysis import sentences
from tbmem.analysis.capacity import CapacityTest, used_percent
from tbmem.analysis.growth import Change, GrowthTest
from tbmem.analysis.spikes import Jump, SpikeTest
from tbmem.model.evidence import Channel, Conclusion, Outcome, Suspicion
from tbmem.model.finding import Finding, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import MIB

ENOUGH_STEPS = 8
"""Judged steps below which there is no verdict."""
_SUSPICIOUS_BYTES = 24 << 10
_WORSE = 2.0
"""A leak is reported again when it has grown by this factor."""


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
        awaits_evidence: Whether somebody answers suspicions through ``conclude``.
    """

    def __init__(self, limits: Limits | None = None, *, awaits_evidence: bool = False) -> None:
        self._awaits_evidence = awaits_evidence
        self._suspects = GrowthTest(patience=24, min_growth=_SUSPICIOUS_BYTES, min_growth_percent=0.0)
        self._suspicion: Suspicion | None = None
        self._concluded: Conclusion | None = None
        self._not_before = 0
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
        self._range: tuple[int, int] | None = None
        self._reported_growth = 0
        self._worst_spike: Finding | None = None
        self._fullest: Finding | None = None
        self._interrupted = False
        self._free_heap = 0
        self._has_peaks = False

    def update(self, sample: MemorySample) -> Sequence[Finding]:
        """Take in the next sample of the device.

        Args:
            sample: Counters after a step; steps must ascend.

        Returns:
            What has just become clear, usually nothing.
        """
        self._has_peaks |= sample.host_peak_rss is not None
        findings = self._judge(sample)
        if sample.reserved is not None and sample.allocated is not None:
            self._free_heap = sample.reserved - sample.allocated
        return findings

    def update_all(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Take in several samples: the same findings as from ``update`` one by one."""
        return [finding for sample in samples for finding in self.update(sample)]

    @property
    def suspicions(self) -> Sequence[Suspicion]:
        """Suspicions that stand and are not concluded, one per channel at most."""
        return () if self._suspicion is None else (self._suspicion,)

    def conclude(self, suspicion: Suspicion, conclusion: Conclusion) -> Sequence[Finding]:
        """Take in what the evidence says about a suspicion."""
        sample = self._sample
        if sample is None:
            return ()
        self._suspicion = None
        if conclusion.outcome is Outcome.CONFIRMED:
            self._concluded = conclusion
            return (sentences.confirmed(sample, suspicion, conclusion),)
        self._not_before = sample.step + 2 * (suspicion.last_step - suspicion.first_step)
        if conclusion.outcome is Outcome.DISMISSED:
            return (sentences.dismissed(sample, suspicion, conclusion),)
        return ()

    def _suspect(self, sample: MemorySample, findings: list[Finding]) -> None:
        if sample.allocated is None:
            return
        self._suspects.update(sample.step, sample.allocated)
        growth = self._suspects.current
        if growth is None:
            self._suspicion = None
        elif self._suspicion is None and self._concluded is None and sample.step >= self._not_before:
            self._suspicion = Suspicion(
                device=sample.device,
                rank=sample.rank,
                channel=Channel.ALLOCATED,
                first_step=growth.first_step,
                last_step=growth.last_step,
                base=growth.base,
                level=growth.level,
            )
            findings.append(sentences.suspect(sample, self._suspicion))

    def _judge(self, sample: MemorySample) -> list[Finding]:
        self._sample = sample
        findings: list[Finding] = []
        self._judge_capacity(sample, findings)
        if sample.step <= self._limits.warmup_steps:
            return findings
        if sample.profiled and sample.device == "cpu":
            # the profiler's own records lie in the same heap: its steps say nothing about the training
            if not self._interrupted:
                self._interrupted = True
                findings.extend(self.close())
            return findings
        if self._interrupted:
            self._spikes.rebase()
            self._interrupted = False
        if self._awaits_evidence:
            self._suspect(sample, findings)
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
            return sentences.no_steps()
        if self._growth.current is not None:
            return sentences.leak(sample, self._growth.current)
        if self._worst_spike is not None:
            return self._worst_spike
        if self._fullest is not None and self._fullest.severity is not Severity.INFO:
            return self._fullest
        if self._judged < ENOUGH_STEPS:
            return sentences.too_early(sample, self._judged, ENOUGH_STEPS)
        return sentences.stable(sample, *(self._range or (0, 0)), self._judged)

    def _judge_growth(self, sample: MemorySample, findings: list[Finding]) -> None:
        level = sample.allocated
        if level is None:
            return
        low, high = self._range or (level, level)
        self._range = (min(low, level), max(high, level))
        change, growth = self._growth.update(sample.step, level), self._growth.current
        if change is None:
            return
        if growth is None:
            self._reported_growth = 0
            fell = change is Change.FELL
            findings.append(sentences.fallen_back(sample) if fell else sentences.ended(sample))
        elif growth.bytes >= _WORSE * self._reported_growth:
            self._reported_growth = growth.bytes
            findings.append(sentences.leak(sample, growth))

    def _judge_spike(self, sample: MemorySample, findings: list[Finding]) -> None:
        needed = self._needed(sample)
        if needed is None:
            return
        jump = self._spikes.update(sample.step, needed)
        if jump is not None:
            findings.append(self._jump_finding(sample, jump))

    def _needed(self, sample: MemorySample) -> int | None:
        """The step's peak; on the CPU less what malloc had free when the step began.

        malloc keeps what a spike has freed, or gives it back, as it happens to lie: the resident peak alone would
        call the first a change of level.
        """
        if sample.device != "cpu":
            return sample.highest
        if sample.host_peak_rss is not None:
            return max(sample.host_peak_rss - self._free_heap, 0)
        # steps shorter than the peak's readings have none of their own; where there never is one, the level serves
        return None if self._has_peaks else sample.allocated

    def _judge_capacity(self, sample: MemorySample, findings: list[Finding]) -> None:
        percent = used_percent(sample)
        if percent is None:
            return
        level = self._capacity.update(percent)
        if level:
            finding = sentences.near_capacity(sample, percent, level)
            if level == self._capacity.highest:
                self._fullest = finding
            findings.append(finding)

    def _jump_finding(self, sample: MemorySample, jump: Jump) -> Finding:
        finding = sentences.level_shift(sample, jump) if jump.lasting else sentences.spike(sample, jump)
        worst = self._worst_spike
        if not jump.lasting and (worst is None or jump.peak > worst.evidence["peak_bytes"]):
            self._worst_spike = finding
        return finding


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
