"""Judges one device's samples: findings (suspicion, leak, spike, level shift, near capacity ...) and a verdict.

The same object judges live and over a recorded series; its memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tbmem.analysis.detector import excursion_text, finding_text, growth_text
from tbmem.analysis.detector.explanations import Explanations
from tbmem.analysis.detector.feed import LARGEST_HEAP_BLOCK, Event, SampleFeed
from tbmem.analysis.detector.forecast import Forecast
from tbmem.analysis.detector.growth_channel import GrowthChannel, GrowthEvent
from tbmem.analysis.detector.growth_test import WORSE, Change
from tbmem.analysis.detector.leak_growth import leak_growth
from tbmem.analysis.detector.recorded_peaks import Confirms, unconfirmed
from tbmem.analysis.detector.resident_growth import ResidentGrowth
from tbmem.analysis.detector.spike_test import WINDOW, Excursion, ExcursionEvent, ExcursionKind
from tbmem.analysis.detector.trend import Trend, TrendState
from tbmem.analysis.detector.verdict_history import VerdictHistory, comes_with
from tbmem.analysis.growth_rate import ENOUGH_STEPS, StepTime
from tbmem.config.schema import PatternsConfig
from tbmem.model.evidence import Channel, Conclusion, Outcome, RunningAt, Suspicion, WorkerCode
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.sample import MemorySample

_LOOK = 64  # steps in which evidence is collected, with room to spare
_URGENT = 128  # steps left from which on a leak does not wait for evidence


@dataclass(frozen=True)
class LooksAtPeaks:
    """What looks at the program, while its memory is high, tell of one device; without them nothing."""

    running_at: Callable[[Iterable[int]], RunningAt] = lambda steps: RunningAt()
    """Returns what was running at the highest peak of some steps."""
    allocated: Callable[[], Mapping[int, int]] = dict
    """Returns by step what those that were high have allocated at least beyond what is usual, in bytes."""


class Detector:
    """Judges one device of one rank.

    Args:
        patterns: When memory is called leaking, spiking or near the end.
        awaits_evidence: Whether suspicions are reported, to be answered by ``conclude``.
        looks: What looks at the program tell of steps whose memory was high.
        in_workers: Returns the code that DataLoader workers run; asked until there is some, once they grow.
    """

    def __init__(
        self,
        patterns: PatternsConfig | None = None,
        *,
        awaits_evidence: bool = False,
        looks: LooksAtPeaks | None = None,
        in_workers: Callable[[], WorkerCode] = WorkerCode,
    ) -> None:
        self._in_workers, self._worker_code = in_workers, WorkerCode()
        self._has_asked_workers = False
        self._awaits_evidence = awaits_evidence
        self._looks = looks or LooksAtPeaks()
        patterns = patterns or PatternsConfig()
        self._least_shift = patterns.spike_percent / 100
        """Share of the level by which it must change for good: what libraries keep of the largest batch is less."""
        self._feed = SampleFeed(patterns)
        self._resident = ResidentGrowth(self._feed, self._least_shift)
        self._history = VerdictHistory()
        self._suspicions: dict[Channel, Suspicion] = {}
        self._unseen: set[Channel] = set()  # those of samples that are judged together, before evidence is collected
        self._explanations = Explanations(self._feed, self._resident)
        self.let_go: dict[str, int] = {}
        """Holders of leaks that were withdrawn, since what they held was free again, and for how many steps they had
        held it: a list that is emptied when an epoch ends."""
        self._resident_told = 0  # bytes of resident growth with which a leak that pins the heap was last reported
        self._step_time = StepTime()
        self._sample: MemorySample | None = None
        self._noted = 0  # step after which large steps that looks have seen, and workers, were noted last

    def update(self, sample: MemorySample) -> Sequence[Finding]:
        """Judge the next sample of the device; usually there is no finding."""
        return self.update_all((sample,))

    def update_all(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Judge samples in the order of their steps: as ``update`` one by one, at a fraction of the cost."""
        if not samples:
            return []
        self._sample = samples[-1]
        self._unseen.clear()
        findings: list[Finding] = []
        for columns in self._feed.columns(samples):
            events = self._feed.take(columns)
            self._add_time(columns, 0)
            if events:
                by_step = {sample.step: sample for sample in samples}
                # what was still open when a window began is reported with the window's first sample
                first = by_step[columns.step[0]]
                for event in events:
                    if event.step in columns.step:
                        self._add_time(columns, columns.step.index(event.step))
                    findings += self._report(by_step.get(event.step, first), event)
            self._add_time(columns, -1)
        if self._sample.step - self._noted >= WINDOW:
            self._noted = self._sample.step
            if self._feed.is_cpu:
                self._feed.hidden.note(self._looks.allocated())
            if self._feed.channels[Channel.WORKERS].rises_early:
                self._note_worker_code(once=True)  # a short run's verdict comes when they are gone
        return findings

    def _add_time(self, columns: Any, at: int) -> None:
        self._step_time.add_up_to(at, columns.step, columns.time, profiled=columns.profiled[at])

    @property
    def suspicions(self) -> Sequence[Suspicion]:
        """Suspicions that stand and are not concluded, one per channel at most."""
        return tuple(self._suspicions.values())

    def lasting_rate(self, suspicion: Suspicion) -> float:
        """Growth of one of ``suspicions`` as it stands by now, in bytes per judged step; 0 where it has ended."""
        channel = self._feed.channels[suspicion.channel]
        trend = channel.growth.trend
        if trend is None:
            return 0.0
        resident = self._resident.beyond(channel, trend)
        return channel.lasting_rate(trend, suspicion.gap) if resident is None else self._resident.rate(trend)

    def growth_by_now(self, suspicion: Suspicion) -> float:
        """What memory has grown by since the first step of one of ``suspicions``, in bytes; less when it was raised."""
        trend = self._feed.channels[suspicion.channel].growth.trend
        return suspicion.growth if trend is None else max(suspicion.growth, trend.growth)

    def allocated_growth(self, suspicion: Suspicion) -> float | None:
        """Growth of the device's own memory while that of a suspicion lasted, in bytes; ``None`` if not remembered."""
        return self._feed.channels[Channel.ALLOCATED].growth_between(suspicion.first_step, suspicion.last_step)

    def conclude(self, suspicion: Suspicion, conclusion: Conclusion) -> Sequence[Finding]:
        """Apply what the evidence says about one of ``suspicions``; returns a leak, a dismissal, or nothing."""
        channel = self._feed.channels[suspicion.channel]
        standing = self._suspicions.pop(suspicion.channel, None)
        sample, trend = self._sample, channel.growth.trend
        if standing is None or sample is None or trend is None:
            return ()
        if conclusion.outcome is Outcome.OPEN and self._explanations.by_earlier_look(channel, trend):
            return ()
        if conclusion.is_out_of_sight and self._resident.is_free_heap(channel, trend):
            return self._dismiss_free_heap(sample, channel, trend, suspicion.bytes_per_step)
        if conclusion.is_out_of_sight and self._explanations.is_within_spread(channel, trend):
            conclusion = replace(conclusion, outcome=Outcome.OPEN)
        before = self._explanations.of(channel)
        self._explanations.note(channel, conclusion)
        if suspicion.channel is Channel.ALLOCATED:
            self._resident.note(conclusion)
        if conclusion.outcome is Outcome.OPEN:
            if before is not None and before.outcome is Outcome.DISMISSED:
                # what explained it until now may not have grown in the few steps that were looked at
                trend.explain(None)
            else:
                channel.growth.leave_open()
            return ()
        if conclusion.outcome is Outcome.DISMISSED:
            trend.explain(conclusion.ends_at, conclusion.room)
            return (growth_text.dismissed(sample, standing, conclusion.reason, conclusion.evidence),)
        trend.lasting = conclusion.lasting
        trend.held = (conclusion.explained or 0.0) if suspicion.gap == 1 else 0.0
        channel.growth.confirm()
        self._resident_told = 0  # the holder is news
        return self._news_of(self._current_leak(sample, channel, trend))

    def close(self, confirms: Confirms = unconfirmed) -> Sequence[Finding]:
        """End the run: report what was still open; ``confirms``: what recordings tell."""
        sample, events = self._sample, self._feed.close(confirms)
        if sample is None:
            return []
        findings = [finding for event in events for finding in self._report(sample, event)]
        self._feed.hidden.note(self._looks.allocated())
        for event in self._feed.hidden_spikes(self._history.spikes, self._history.is_periodic):
            findings += self._report(sample, event)
        return findings

    def verdict(self) -> Finding:
        """The state of the device in one finding; too early to tell where too few steps were judged, or all rose."""
        sample, feed = self._sample, self._feed
        if sample is None:
            return finding_text.no_steps()
        channels = feed.channels.values()
        growing = [(channel, channel.growth.trend) for channel in channels if channel.growth.trend is not None]
        if self._feed.is_cpu:  # of several that grow, child processes among them, the one that has grown most
            growing.sort(key=lambda pair: -(self._resident.beyond(*pair) or pair[1].growth))
            # what is known to be held tells more than what malloc keeps free around it
            growing.sort(key=lambda pair: self._resident.is_free_heap(*pair))
        for channel, trend in growing:
            if trend.state is TrendState.LEAK and not self._explanations.is_shown(channel, trend):
                return self._current_leak(sample, channel, trend.up_to(channel.growth.marks.at(0)[-1]))
        if (severe := self._history.severe(fragmented=feed.fragments.stands)) is not None:
            return severe
        if feed.judged < ENOUGH_STEPS:
            return finding_text.too_early(sample, feed.judged, ENOUGH_STEPS)
        shift = self._history.shift()
        shift = shift if shift is not None and feed.has_shifted(Channel(shift.evidence["channel"])) else None
        for channel, trend in growing:
            is_explained, is_free = trend.state is TrendState.EXPLAINED, self._resident.is_free_heap(channel, trend)
            is_kept = channel.channel is Channel.HOST and is_explained
            least = max(self._least_shift * trend.last.level, LARGEST_HEAP_BLOCK)
            is_small = trend.growth < least and (is_kept or is_free)
            is_over = (is_free or not is_explained) and channel.has_levelled_off(trend)
            if is_small or is_over or comes_with(shift, trend.first.step, trend.last.step, trend.growth):
                continue
            if channel.growth.is_material(trend) and not self._explanations.is_shown(channel, trend):
                suspicion = channel.suspicion(trend, sample, channel.rate(trend))
                explained, stands = self._explanations.as_it_stands(channel, trend), channel.stands_still(trend)
                return growth_text.growing(sample, suspicion, explained, self._worker_code, stands=stands)
        if shift is not None:
            return shift
        early = feed.channels[Channel.WORKERS].early_growth(sample)
        if early is not None:
            return growth_text.growing(sample, early, None, self._worker_code)
        levels, resident, noted = feed.levels, feed.resident_levels, self._history.noted()
        if feed.channels[Channel.ALLOCATED].rises_early:
            return finding_text.too_short(sample, levels.lowest, levels.highest, feed.judged)
        if levels.tells_of(feed.judged) or not feed.is_cpu or not resident.readings:
            return finding_text.stable(sample, levels.lowest, levels.highest, feed.judged, noted)
        lowest, highest, read = resident.lowest, resident.highest, levels.readings
        return finding_text.stable(sample, lowest, highest, feed.judged, noted, malloc_read=read)

    def _report(self, sample: MemorySample, event: Event) -> Sequence[Finding]:
        if isinstance(event, GrowthEvent):
            findings: Sequence[Finding] = self._report_growth(sample, event)
        elif isinstance(event, ExcursionEvent):
            found = self._report_excursion(sample, event)
            findings = () if found is None else (found,)
        else:
            findings = (self._with_its_leak(event.finding(sample)),)
        for finding in findings:
            self._history.add(finding)
        return findings

    def _with_its_leak(self, finding: Finding) -> Finding:
        """The finding; that a device is nearly full while something leaks names the leak, and what to do about it."""
        leak = self._history.latest.get(FindingKind.LEAK)
        trends = (channel.growth.trend for channel in self._feed.channels.values())
        stands = any(trend is not None and trend.state is TrendState.LEAK for trend in trends)
        if finding.kind is not FindingKind.NEAR_CAPACITY or leak is None or not stands:
            return finding
        holder = f", held by {leak.evidence['holder']}" if leak.evidence.get("holder") else ""
        message = f"{finding.message} · a leak was reported in step {leak.last_step}{holder}"
        return replace(finding, message=message, advice=leak.advice or finding.advice)

    def _report_excursion(self, sample: MemorySample, event: ExcursionEvent) -> Finding | None:
        """The excursion as a finding, unless another channel has reported it."""
        channel, excursion = event.channel, event.excursion
        if excursion.kind is ExcursionKind.SHIFT:
            return self._level_shift(sample, channel, excursion)
        if excursion.kind is ExcursionKind.PERIODIC:
            at_members, at_last = self._looks.running_at(excursion.members), self._running_in(excursion)
            found = self._history.with_largest(excursion_text.periodic(sample, event, at_members, at_last))
            return found if self._history.note_period(channel, excursion) else None
        if self._history.explains(channel, excursion):
            return None
        return excursion_text.spike(sample, event, self._running_in(excursion))

    def _level_shift(self, sample: MemorySample, channel: Channel, excursion: Excursion) -> Finding | None:
        """The change of level as a finding, unless it is known, small, left by a spike, or of addresses alone."""
        first, height = excursion.first_step, excursion.height
        shift = self._history.latest.get(FindingKind.LEVEL_SHIFT)
        is_known = shift is not None and shift.first_step == first
        is_kept = self._history.is_kept_of_a_spike(first, height)
        is_held = channel is Channel.ALLOCATED
        is_untouched = is_held and self._resident.is_untouched(height, first - 1, sample)
        if is_known or is_kept or is_untouched or height < self._least_shift * excursion.usual:
            return None
        # what is held since then was not made where that step's memory was highest
        running = RunningAt() if is_held else self._running_in(excursion)
        return excursion_text.level_shift(sample, channel, excursion, running)

    def _running_in(self, excursion: Excursion) -> RunningAt:
        return self._looks.running_at(range(excursion.first_step, excursion.last_step + 1))

    def _report_growth(self, sample: MemorySample, event: GrowthEvent) -> Sequence[Finding]:
        channel, trend = self._feed.channels[event.channel], event.trend
        if event.channel is Channel.WORKERS:
            self._note_worker_code()
        if event.change is Change.SUSPECTED:
            if not self._awaits_evidence:
                return ()
            if self._explanations.is_shown(channel, trend):
                channel.growth.leave_open()
                return ()
            if self._resident.is_free_heap(channel, trend):
                return self._dismiss_free_heap(sample, channel, trend, event.rate)
            suspicion = channel.suspicion(trend, sample, event.rate, event.gap)
            return self._suspect(sample, suspicion)
        standing = self._suspicions.pop(event.channel, None)
        if event.change is Change.CERTAIN:
            pinning = self._resident.pinning(channel)
            if pinning is not None:
                leak = self._current_leak(sample, self._feed.channels[Channel.ALLOCATED], pinning)
                return self._news_of(leak) if growth_text.PART_OF_RATE & leak.evidence.keys() else ()
            if self._resident.is_free_heap(channel, trend):
                return self._dismiss_free_heap(sample, channel, trend, event.rate)
            if channel.growth.trend is not None and self._explanations.by_earlier_look(channel, channel.growth.trend):
                return ()
            if self._explanations.is_shown(channel, trend):
                channel.growth.doubt()  # the other channel's growth may end, and this one be another's
                return ()
            if self._waits_for_evidence(event, standing):
                return self._await_evidence(sample, channel, event, standing)
            if self._explanations.is_within_spread(channel, trend):
                channel.growth.doubt()
                return ()
            return self._news_of(self._leak(sample, channel, trend, event.rate, event.forecast))
        fell = event.change is Change.FELL
        conclusion = self._explanations.forget(channel)
        if event.channel is Channel.ALLOCATED:
            self._resident_told = 0
            self._resident.note(None)
        if trend.state is TrendState.LEAK and not self._explanations.is_shown(channel, trend):
            ended = channel.suspicion(trend, sample, event.rate)
            if fell and conclusion is not None:
                held = sample.step - ended.first_step
                self.let_go |= {holder["name"]: held for holder in conclusion.evidence.get("holders", ())}
            return (growth_text.retracted(sample, ended, conclusion, fell=fell),)
        if standing is not None:
            reason = "it fell back" if fell else "it ended"
            return (growth_text.dismissed(sample, standing, reason, {}),)
        return ()

    def _note_worker_code(self, *, once: bool = False) -> None:
        """Ask what workers run, which looks at all objects of the process; ``once``: not where it was asked before."""
        if not self._worker_code.methods and not (once and self._has_asked_workers):
            self._has_asked_workers = True
            self._worker_code = self._in_workers()

    def _news_of(self, leak: Finding) -> Sequence[Finding]:
        """A leak, unless it pins the heap and the other channel has told the growth that it makes."""
        if growth_text.PART_OF_RATE & leak.evidence.keys():
            if leak.evidence["growth_bytes"] < WORSE * self._resident_told:
                return ()
            self._resident_told = leak.evidence["growth_bytes"]
        return (leak,)

    def _waits_for_evidence(self, event: GrowthEvent, standing: Suspicion | None) -> bool:
        """Whether steps are looked at before growth that is certain is a leak: it was not suspected, or just now."""
        was_looked_at = self._explanations.was_looked_at(self._feed.channels[event.channel])
        if not self._awaits_evidence or event.channel is Channel.WORKERS or was_looked_at:
            return False
        is_urgent = event.forecast is not None and event.forecast.steps < _URGENT
        is_new = standing is None or event.channel in self._unseen or event.step - standing.last_step < _LOOK
        return is_new and not is_urgent

    def _await_evidence(
        self, sample: MemorySample, channel: GrowthChannel, event: GrowthEvent, standing: Suspicion | None
    ) -> Sequence[Finding]:
        channel.growth.await_evidence()
        if standing is None:
            return self._suspect(sample, channel.suspicion(event.trend, sample, event.rate, event.gap))
        self._suspicions[event.channel] = standing
        return ()

    def _suspect(self, sample: MemorySample, suspicion: Suspicion) -> Sequence[Finding]:
        self._suspicions[suspicion.channel] = suspicion
        self._unseen.add(suspicion.channel)
        return (growth_text.suspect(sample, suspicion),)

    def _dismiss_free_heap(
        self, sample: MemorySample, channel: GrowthChannel, trend: Trend, rate: float
    ) -> Sequence[Finding]:
        conclusion = self._explanations.by_free_heap(channel, sample.step)
        return (growth_text.dismissed(sample, channel.suspicion(trend, sample, rate), conclusion.reason, {}),)

    def _current_leak(self, sample: MemorySample, channel: GrowthChannel, trend: Trend) -> Finding:
        return self._leak(sample, channel, trend, channel.rate(trend), channel.forecast(trend, sample.step))

    def _leak(
        self, sample: MemorySample, channel: GrowthChannel, trend: Trend, rate: float, ahead: Forecast | None
    ) -> Finding:
        told = leak_growth(sample, channel, trend, self._resident, rate, ahead)
        block = channel.block_steps << trend.scale
        known_by = f"the lowest levels of {trend.blocks} consecutive blocks of {block} steps climb"
        conclusion = self._explanations.of(channel)
        if conclusion is not None and conclusion.outcome is Outcome.DISMISSED and not conclusion.evidence.get("holder"):
            conclusion = None  # what explained it until now does so no more, and names nothing
        told = told._replace(ahead=told.ahead and told.ahead.at_speed(self._step_time.seconds))
        return growth_text.leak(sample, told, conclusion, known_by, in_workers=self._worker_code)


def judge(samples: Iterable[MemorySample], patterns: PatternsConfig | None = None) -> list[Finding]:
    """Judge the samples of one device of one rank as if they were live: all findings in order, the verdict last."""
    detector = Detector(patterns)
    findings = detector.update_all(list(samples))
    return [*findings, *detector.close(), detector.verdict()]
