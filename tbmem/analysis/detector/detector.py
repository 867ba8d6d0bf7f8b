"""MemorySamples go in; findings (suspicion, leak, spike, level shift, near capacity ...) and a verdict come out.

The same object judges live and over a recorded series; its memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tbmem.analysis.detector import finding_text as sentences
from tbmem.analysis.detector.feed import CPU, Event, Fragmented, Full, Jumped, Watch
from tbmem.analysis.detector.finding_text import Growing
from tbmem.analysis.detector.forecast import Forecast
from tbmem.analysis.detector.growth_channel import GrowthChannel, GrowthEvent
from tbmem.analysis.detector.growth_test import Change
from tbmem.analysis.detector.limits import ENOUGH_STEPS
from tbmem.analysis.detector.spike_test import JumpKind
from tbmem.analysis.detector.trend import Rise, Stage
from tbmem.analysis.detector.verdict import History
from tbmem.analysis.growth_rate import StepTime
from tbmem.config.schema import PatternsConfig
from tbmem.model.evidence import Channel, Conclusion, Outcome, Suspicion
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample

__all__ = ["Detector", "judge"]

_SHARE_EXPLAINED = 0.5
"""Share of the resident memory's growth that malloc must show for it to be the same growth."""


class Detector:
    """Judges one device of one rank.

    Args:
        patterns: When a pattern counts.
        awaits_evidence: Whether somebody answers suspicions through ``conclude``; without, none are told.
    """

    def __init__(self, patterns: PatternsConfig | None = None, *, awaits_evidence: bool = False) -> None:
        self._awaits_evidence = awaits_evidence
        patterns = patterns or PatternsConfig()
        self._least_shift = patterns.spike_percent / 100
        """Share of the level by which it must change for good: what libraries keep of the largest batch is less."""
        self._watch = Watch(patterns)
        self._history = History()
        self._suspicions: dict[Channel, Suspicion] = {}
        self._conclusions: dict[Channel, Conclusion] = {}
        self._step_time = StepTime()
        self._sample: MemorySample | None = None

    def update(self, sample: MemorySample) -> Sequence[Finding]:
        """Take in the next sample of the device.

        Args:
            sample: Counters after a step; steps must ascend.

        Returns:
            What has just become clear, usually nothing.
        """
        return self.update_all((sample,))

    def update_all(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Take in several samples: the same findings as from ``update`` one by one, at a fraction of the cost.

        Args:
            samples: Samples of the device, steps ascending.
        """
        if not samples:
            return []
        self._sample = samples[-1]
        findings: list[Finding] = []
        for columns in self._watch.columns(samples):
            events = self._watch.take(columns)
            self._note_time(columns, 0)
            if events:
                by_step = {sample.step: sample for sample in samples}
                # what was still open when a window began is told with the window's first sample
                first = by_step[columns.step[0]]
                for event in events:
                    if event.step in columns.step:
                        self._note_time(columns, columns.step.index(event.step))
                    findings += self._tell(by_step.get(event.step, first), event)
            self._note_time(columns, -1)
        return findings

    def _note_time(self, columns: Any, at: int) -> None:
        """The step of a row of columns has ended; what was noted before counts no more."""
        self._step_time.add(columns.step[at], columns.time[at], profiled=columns.profiled[at])

    @property
    def suspicions(self) -> Sequence[Suspicion]:
        """Suspicions that stand and are not concluded, one per channel at most."""
        return tuple(self._suspicions.values())

    def conclude(self, suspicion: Suspicion, conclusion: Conclusion) -> Sequence[Finding]:
        """Take in what the evidence says about a suspicion.

        Args:
            suspicion: One of ``suspicions``; one that has meanwhile come to nothing is passed over.
            conclusion: What to make of it.

        Returns:
            A leak, or that the suspicion is dismissed, or nothing.
        """
        channel = self._watch.channels[suspicion.channel]
        standing = self._suspicions.pop(suspicion.channel, None)
        sample, rise = self._sample, channel.growth.rise
        if standing is None or sample is None or rise is None:
            return ()
        self._conclusions[suspicion.channel] = conclusion
        if conclusion.outcome is Outcome.OPEN:
            channel.growth.leave_open()
            return ()
        if conclusion.outcome is Outcome.DISMISSED:
            rise.explain(conclusion.ends_at)
            return (sentences.dismissed(sample, standing, conclusion.reason, conclusion.evidence),)
        rise.lasting = conclusion.lasting
        channel.growth.confirm()
        return (sentences.leak(sample, self._growing_now(channel, rise, sample)),)

    def close(self) -> Sequence[Finding]:
        """The run has ended: report what was still open."""
        sample = self._sample
        if sample is None:
            return ()
        return [finding for event in self._watch.close() for finding in self._tell(sample, event)]

    def verdict(self) -> Finding:
        """The state of the device in one finding; too early to tell where too few steps were judged."""
        sample, watch = self._sample, self._watch
        if sample is None:
            return sentences.no_steps()
        growing = [(channel, channel.growth.rise) for channel in watch.channels.values()]
        for channel, rise in growing:
            if rise is not None and rise.stage is Stage.LEAK:
                return sentences.leak(sample, self._growing_now(channel, rise, sample))
        severe = self._history.severe(fragmented=watch.fragments.stands)
        if severe is not None:
            return severe
        if watch.judged < ENOUGH_STEPS:
            return sentences.too_early(sample, watch.judged, ENOUGH_STEPS)
        for channel, rise in growing:
            if rise is not None and self._counts(channel, rise):
                return sentences.growing(sample, self._growing_now(channel, rise, sample))
        lowest, highest = watch.range or (0, 0)
        return self._history.shift() or sentences.stable(sample, lowest, highest, watch.judged, self._history.beat())

    def _counts(self, channel: GrowthChannel, rise: Rise) -> bool:
        """Whether growth that is no leak is worth a verdict."""
        return channel.growth.is_material(rise) and not self._is_malloc(channel, rise)

    def _tell(self, sample: MemorySample, event: Event) -> Sequence[Finding]:
        if isinstance(event, GrowthEvent):
            return self._tell_growth(sample, event)
        if isinstance(event, Jumped):
            found = self._tell_jump(sample, event)
        elif isinstance(event, Full):
            found = sentences.near_capacity(sample, event.percent, event.level)
        else:
            assert isinstance(event, Fragmented)
            found = sentences.fragmentation(sample, event.never_used, event.fragmented, event.reserved)
        if found is None:
            return ()
        self._history.add(found)
        return (found,)

    def _tell_jump(self, sample: MemorySample, event: Jumped) -> Finding | None:
        """The jump as a finding, unless another channel has told it."""
        channel, jump = event.channel, event.jump
        if jump.kind is JumpKind.SHIFT:
            if self._history.has_shift(jump.first_step) or jump.height < self._least_shift * jump.usual:
                return None
            return sentences.level_shift(sample, channel, jump)
        if jump.kind is JumpKind.BEAT:
            return sentences.periodic(sample, channel, jump) if self._history.note_beat(channel, jump) else None
        steps = range(jump.first_step, jump.last_step + 1)
        if self._history.has_spike(steps) or self._history.expects(channel, jump.first_step):
            return None
        return sentences.spike(sample, channel, jump, event.updated)

    def _tell_growth(self, sample: MemorySample, event: GrowthEvent) -> Sequence[Finding]:
        channel, rise = self._watch.channels[event.channel], event.rise
        if event.change is Change.SUSPECTED:
            return self._suspect(sample, channel, event)
        if event.change is Change.CERTAIN:
            self._suspicions.pop(event.channel, None)
            if self._is_malloc(channel, rise):
                return ()
            return (sentences.leak(sample, self._growing(channel, rise, sample, event.rate, event.forecast)),)
        fell = event.change is Change.FELL
        standing = self._suspicions.pop(event.channel, None)
        growing = self._growing(channel, rise, sample, event.rate)
        self._conclusions.pop(event.channel, None)
        if rise.stage is Stage.LEAK and not self._is_malloc(channel, rise):
            return (sentences.taken_back(sample, growing, fell=fell),)
        if standing is not None:
            reason = "it fell back by itself" if fell else "it ended by itself"
            return (sentences.dismissed(sample, standing, reason, {}),)
        return ()

    def _suspect(self, sample: MemorySample, channel: GrowthChannel, event: GrowthEvent) -> Sequence[Finding]:
        if not self._awaits_evidence:
            return ()
        if self._is_malloc(channel, event.rise):
            channel.growth.leave_open()
            return ()
        self._suspicions[channel.channel] = suspicion = channel.suspicion(event.rise, sample, event.rate, event.gap)
        return (sentences.suspect(sample, suspicion),)

    def _is_malloc(self, channel: GrowthChannel, rise: Rise) -> bool:
        """Whether the resident memory grows only because malloc hands out more, which another channel shows."""
        allocated = self._watch.channels[Channel.ALLOCATED]
        if channel.channel is not Channel.HOST or self._sample is None or self._sample.device != CPU:
            return False
        before, after = allocated.level_at(rise.first_step), allocated.level_at(rise.last_step)
        return before is not None and after is not None and after - before >= _SHARE_EXPLAINED * rise.growth

    def _growing_now(self, channel: GrowthChannel, rise: Rise, sample: MemorySample) -> Growing:
        """All that is known about growth that stands now."""
        return self._growing(channel, rise, sample, channel.rate(rise), channel.forecast(rise, sample.step))

    def _growing(
        self, channel: GrowthChannel, rise: Rise, sample: MemorySample, rate: float, ahead: Forecast | None = None
    ) -> Growing:
        """All that is known about growth, for the sentence."""
        return Growing(
            suspicion=channel.suspicion(rise, sample, rate),
            block=channel.steps_of(rise),
            blocks=rise.blocks,
            conclusion=self._conclusions.get(channel.channel),
            forecast=None if ahead is None else ahead.timed(self._step_time.seconds),
        )


def judge(samples: Iterable[MemorySample], patterns: PatternsConfig | None = None) -> list[Finding]:
    """Judge a recorded series as if it were live.

    Args:
        samples: Samples of one device of one rank, steps ascending.
        patterns: When a pattern counts.

    Returns:
        All findings in order, the verdict last.
    """
    detector = Detector(patterns)
    findings = detector.update_all(list(samples))
    return [*findings, *detector.close(), detector.verdict()]
