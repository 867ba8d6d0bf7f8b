"""MemorySamples go in; findings (suspicion, leak, spike, level shift, near capacity ...) and a verdict come out.

The same object judges live and over a recorded series; its memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tbmem.analysis.detector import finding_text
from tbmem.analysis.detector.feed import CPU, CapacityEvent, Event, ExcursionEvent, FragmentationEvent, SampleFeed
from tbmem.analysis.detector.finding_text import GrowthFacts
from tbmem.analysis.detector.forecast import Forecast
from tbmem.analysis.detector.growth_channel import GrowthChannel, GrowthEvent
from tbmem.analysis.detector.growth_test import Change
from tbmem.analysis.detector.limits import ENOUGH_STEPS
from tbmem.analysis.detector.spike_test import ExcursionKind
from tbmem.analysis.detector.trend import Trend, TrendState
from tbmem.analysis.detector.verdict import VerdictHistory
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
        self._feed = SampleFeed(patterns)
        self._history = VerdictHistory()
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
        for columns in self._feed.columns(samples):
            events = self._feed.take(columns)
            self._add_time(columns, 0)
            if events:
                by_step = {sample.step: sample for sample in samples}
                # what was still open when a window began is told with the window's first sample
                first = by_step[columns.step[0]]
                for event in events:
                    if event.step in columns.step:
                        self._add_time(columns, columns.step.index(event.step))
                    findings += self._report(by_step.get(event.step, first), event)
            self._add_time(columns, -1)
        return findings

    def _add_time(self, columns: Any, at: int) -> None:
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
        channel = self._feed.channels[suspicion.channel]
        standing = self._suspicions.pop(suspicion.channel, None)
        sample, trend = self._sample, channel.growth.trend
        if standing is None or sample is None or trend is None:
            return ()
        self._conclusions[suspicion.channel] = conclusion
        if conclusion.outcome is Outcome.OPEN:
            channel.growth.leave_open()
            return ()
        if conclusion.outcome is Outcome.DISMISSED:
            trend.explain(conclusion.ends_at)
            return (finding_text.dismissed(sample, standing, conclusion.reason, conclusion.evidence),)
        trend.lasting = conclusion.lasting
        channel.growth.confirm()
        return (finding_text.leak(sample, self._growing_now(channel, trend, sample)),)

    def close(self) -> Sequence[Finding]:
        """The run has ended: report what was still open."""
        sample = self._sample
        if sample is None:
            return ()
        return [finding for event in self._feed.close() for finding in self._report(sample, event)]

    def verdict(self) -> Finding:
        """The state of the device in one finding; too early to tell where too few steps were judged."""
        sample, feed = self._sample, self._feed
        if sample is None:
            return finding_text.no_steps()
        growing = [(channel, channel.growth.trend) for channel in feed.channels.values()]
        for channel, trend in growing:
            if trend is not None and trend.state is TrendState.LEAK:
                return finding_text.leak(sample, self._growing_now(channel, trend, sample))
        severe = self._history.severe(fragmented=feed.fragments.stands)
        if severe is not None:
            return severe
        if feed.judged < ENOUGH_STEPS:
            return finding_text.too_early(sample, feed.judged, ENOUGH_STEPS)
        for channel, trend in growing:
            if trend is not None and self._counts(channel, trend):
                return finding_text.growing(sample, self._growing_now(channel, trend, sample))
        lowest, highest = feed.range or (0, 0)
        return self._history.shift() or finding_text.stable(
            sample, lowest, highest, feed.judged, self._history.periodicity()
        )

    def _counts(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Whether growth that is no leak is worth a verdict."""
        return channel.growth.is_material(trend) and not self._is_malloc(channel, trend)

    def _report(self, sample: MemorySample, event: Event) -> Sequence[Finding]:
        if isinstance(event, GrowthEvent):
            return self._report_growth(sample, event)
        if isinstance(event, ExcursionEvent):
            found = self._report_excursion(sample, event)
        elif isinstance(event, CapacityEvent):
            found = finding_text.near_capacity(sample, event.percent, event.level)
        else:
            assert isinstance(event, FragmentationEvent)
            found = finding_text.fragmentation(sample, event.never_used, event.fragmented, event.reserved)
        if found is None:
            return ()
        self._history.add(found)
        return (found,)

    def _report_excursion(self, sample: MemorySample, event: ExcursionEvent) -> Finding | None:
        """The jump as a finding, unless another channel has told it."""
        channel, excursion = event.channel, event.excursion
        if excursion.kind is ExcursionKind.SHIFT:
            if self._history.has_shift(excursion.first_step) or excursion.height < self._least_shift * excursion.usual:
                return None
            return finding_text.level_shift(sample, channel, excursion)
        if excursion.kind is ExcursionKind.PERIODIC:
            return (
                finding_text.periodic(sample, channel, excursion)
                if self._history.note_period(channel, excursion)
                else None
            )
        steps = range(excursion.first_step, excursion.last_step + 1)
        if self._history.has_spike(steps) or self._history.expects(channel, excursion.first_step):
            return None
        return finding_text.spike(sample, channel, excursion, event.updated)

    def _report_growth(self, sample: MemorySample, event: GrowthEvent) -> Sequence[Finding]:
        channel, trend = self._feed.channels[event.channel], event.trend
        if event.change is Change.SUSPECTED:
            return self._suspect(sample, channel, event)
        if event.change is Change.CERTAIN:
            self._suspicions.pop(event.channel, None)
            if self._is_malloc(channel, trend):
                return ()
            return (finding_text.leak(sample, self._growing(channel, trend, sample, event.rate, event.forecast)),)
        fell = event.change is Change.FELL
        standing = self._suspicions.pop(event.channel, None)
        growing = self._growing(channel, trend, sample, event.rate)
        self._conclusions.pop(event.channel, None)
        if trend.state is TrendState.LEAK and not self._is_malloc(channel, trend):
            return (finding_text.retracted(sample, growing, fell=fell),)
        if standing is not None:
            reason = "it fell back by itself" if fell else "it ended by itself"
            return (finding_text.dismissed(sample, standing, reason, {}),)
        return ()

    def _suspect(self, sample: MemorySample, channel: GrowthChannel, event: GrowthEvent) -> Sequence[Finding]:
        if not self._awaits_evidence:
            return ()
        if self._is_malloc(channel, event.trend):
            channel.growth.leave_open()
            return ()
        self._suspicions[channel.channel] = suspicion = channel.suspicion(event.trend, sample, event.rate, event.gap)
        return (finding_text.suspect(sample, suspicion),)

    def _is_malloc(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Whether the resident memory grows only because malloc hands out more, which another channel shows."""
        allocated = self._feed.channels[Channel.ALLOCATED]
        if channel.channel is not Channel.HOST or self._sample is None or self._sample.device != CPU:
            return False
        before, after = allocated.level_at(trend.first_step), allocated.level_at(trend.last_step)
        return before is not None and after is not None and after - before >= _SHARE_EXPLAINED * trend.growth

    def _growing_now(self, channel: GrowthChannel, trend: Trend, sample: MemorySample) -> GrowthFacts:
        """All that is known about growth that stands now."""
        return self._growing(channel, trend, sample, channel.rate(trend), channel.forecast(trend, sample.step))

    def _growing(
        self, channel: GrowthChannel, trend: Trend, sample: MemorySample, rate: float, ahead: Forecast | None = None
    ) -> GrowthFacts:
        """All that is known about growth, for the sentence."""
        return GrowthFacts(
            suspicion=channel.suspicion(trend, sample, rate),
            block=channel.steps_of(trend),
            blocks=trend.blocks,
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
