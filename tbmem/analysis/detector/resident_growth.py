"""Growth of the process's resident memory against that of what is alive in it, on the CPU.

malloc returns only what is free at the end of its heap: the resident memory can grow by more than what is kept, and by
what is free.
"""

from __future__ import annotations

from tbmem.analysis.detector.feed import RESIDENT_GROWTH, SampleFeed
from tbmem.analysis.detector.forecast import Forecast
from tbmem.analysis.detector.growth_channel import GrowthChannel
from tbmem.analysis.detector.trend import Trend, TrendState
from tbmem.model.evidence import Channel, Conclusion, Outcome
from tbmem.model.sample import MemorySample

SHARE_EXPLAINED = 0.5
"""Share of one channel's growth that another must show for it to be the same growth."""
_PINNED = 2.0  # times the growth of what is alive by which the resident memory grows where the heap cannot shrink
_FASTER = 1.05  # times the growth of what is alive from which on memory runs out at the rate of the resident memory
_FAR_FASTER = 10.0  # the same where it is not known yet that it goes on, from which on nothing is forecast
_NEW = 0.8  # share of what is allocated by which malloc's heap has grown where it is not what lay free in it
_MUCH = 0.25  # share of the resident memory from which on its own growth is a leak's rate


class ResidentGrowth:
    """Compares the resident memory with what is alive; tells nothing of a device other than the CPU.

    Args:
        feed: The samples of the device.
        least_share: Share of its level by which the resident memory must grow for the growth to be its own.
    """

    def __init__(self, feed: SampleFeed, least_share: float) -> None:
        self._feed, self._least_share = feed, least_share
        self._host, self._alive = feed.channels[Channel.HOST], feed.channels[Channel.ALLOCATED]
        self._held = 0.0  # bytes per step that the known holder of what is alive gains

    def note(self, conclusion: Conclusion | None) -> None:
        """Note what is known of growth of what is alive: its holder may keep small objects, which are not malloc's."""
        self._held = 0.0
        if conclusion is not None and conclusion.outcome is Outcome.CONFIRMED and conclusion.evidence.get("holder"):
            self._held = conclusion.explained or 0.0

    def pinning(self, channel: GrowthChannel) -> Trend | None:
        """The leak of what is alive by which the resident memory, if that is ``channel``, has grown by more.

        Also where that has become slower since: it is the same leak, which then has the rate of what is alive.
        """
        trend = self._alive.growth.trend
        if channel is not self._host or trend is None or trend.state is not TrendState.LEAK:
            return None
        return trend if self.held(self._alive, trend) is not None or self._pinned(trend) is not None else None

    def beyond(self, channel: GrowthChannel, trend: Trend) -> float | None:
        """Growth of the resident memory, in bytes, where what is kept pins the heap; ``None`` where it does not.

        Small objects that are kept between large ones that are freed make the heap grow by the large ones. It must be
        much of the resident memory: equal runs of a small leak differ by how far their heaps have grown besides.
        """
        growth, level = self._pinned(trend) if channel is self._alive else None, self._host.level_at(trend.last.step)
        is_much = growth is not None and level is not None and growth >= _MUCH * level
        return growth if is_much and self._goes_on(trend) else None

    def _goes_on(self, trend: Trend) -> bool:
        """Whether the resident memory grows far faster than what is alive in both halves of a trend.

        What malloc takes once for a larger step does not go on.
        """
        steady = self._host.steady_rate(trend)
        return steady is None or steady >= _PINNED * self._alive.rate(trend)

    def _pinned(self, trend: Trend) -> float | None:
        """Growth of the resident memory where it is far above that of what is alive, and of malloc's heap."""
        first, last = trend.first.step, trend.last.step
        level, growth = self._host.level_at(last), self._host.growth_between(first, last)
        if level is None or growth is None or not self._feed.is_cpu:
            return None
        is_large = growth >= max(_PINNED * trend.growth, RESIDENT_GROWTH, self._least_share * level)
        return growth if is_large and self._is_of_heap(first, last) else None

    def held(self, channel: GrowthChannel, trend: Trend) -> float | None:
        """Bytes per step that the known holder of what is alive gains, where malloc's heap shows far less of them.

        Python's small objects lie outside of it; the resident memory must grow with them.
        """
        if channel is not self._alive or not self._feed.is_cpu:
            return None
        is_far_more = self._held >= _PINNED * self._alive.rate(trend)
        return self._held if is_far_more and self.rate(trend) >= SHARE_EXPLAINED * self._held else None

    def rate(self, trend: Trend) -> float:
        """Rate at which the resident memory grows in a trend, in bytes per judged step."""
        return self._host.mean_rate(trend)

    def forecast(self, trend: Trend, step: int) -> Forecast | None:
        """When memory has run out at this rate, counted from a step; ``None`` where the resident memory stands."""
        ahead, rate = self._host.forecast(trend, step), self.rate(trend)
        return None if ahead is None or rate <= 0 else ahead.at_rate(rate)

    def faster(self, channel: GrowthChannel, trend: Trend, kept: float) -> float | None:
        """Rate at which the resident memory grows, in bytes per judged step, where that of what is ``kept`` is lower.

        Fragments and the allocator's rounding come to what is kept: they fill the machine as well. ``None`` where the
        rates are about the same, and where it is not known that it goes on: heaps grow as they warm up.
        """
        if channel is not self._alive or not self._feed.is_cpu:
            return None
        rate, steady = self.rate(trend), self._host.steady_rate(trend)
        is_faster = steady is not None and min(rate, steady) > _FASTER * kept
        return rate if is_faster and not trend.is_short else None

    def is_far_faster(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Whether the resident memory has grown by so much more that what is kept does not tell when memory ends."""
        grown = self._host.growth_between(trend.first.step, trend.last.step)
        if channel is not self._alive or not self._feed.is_cpu or grown is None or not trend.is_short:
            return False
        return grown >= max(_FAR_FASTER * trend.growth, RESIDENT_GROWTH)

    def level_at(self, trend: Trend) -> int:
        """The resident memory at the end of a trend, in bytes."""
        return round(self._host.level_at(trend.last.step) or 0)

    def is_free_heap(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Whether resident memory has grown by what malloc keeps free: larger steps have left it, or a recording.

        Judged up to the last reading of malloc's counters, which are rationed where they are expensive.
        """
        if channel is not self._host or not self._feed.is_cpu:
            return False
        first, last = trend.first.step, min(trend.last.step, self._feed.heap_size.last_step)
        growth, alive_growth = self._host.growth_between(first, last), self._alive.growth_between(first, last)
        if growth is None or alive_growth is None or growth < SHARE_EXPLAINED * trend.growth:
            return False
        free = self._feed.heap_size.growth(first, last) + self._feed.free_heap.given_back
        if self._alive.growth.trend is not None:  # else what is alive in some steps is free in others
            free -= alive_growth
        return free >= SHARE_EXPLAINED * growth

    def is_untouched(self, height: int, since: int, sample: MemorySample) -> bool:
        """Whether so many bytes more that are allocated since a step were new addresses, most of them not resident.

        A matrix library allocates a buffer for all shapes that may come, and uses a part of it.
        """
        heap = self._feed.heap_size.level_at(since)
        now = sample.host_rss if sample.host_private is None else sample.host_private
        if not self._feed.is_cpu or heap is None or sample.reserved is None or now is None:
            return False
        resident = self._host.rise_since(since, now)
        is_new = sample.reserved - heap >= _NEW * height
        return is_new and resident is not None and resident < SHARE_EXPLAINED * height

    def _is_of_heap(self, first: int, last: int) -> bool:
        """Whether resident memory has grown by what malloc holds, up to the last reading of its rationed counters."""
        last = min(last, self._feed.heap_size.last_step)
        growth = self._host.growth_between(first, last)
        return growth is not None and self._feed.heap_size.growth(first, last) >= SHARE_EXPLAINED * growth
