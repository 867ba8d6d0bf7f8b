"""What explains the growth of each channel: a look, a container that fills, free heap, the same growth elsewhere."""

from __future__ import annotations

from collections import Counter

from tbmem.analysis.detector.feed import SampleFeed
from tbmem.analysis.detector.growth_channel import GrowthChannel
from tbmem.analysis.detector.resident_growth import SHARE_EXPLAINED, ResidentGrowth
from tbmem.analysis.detector.trend import Trend, TrendState
from tbmem.model.evidence import Channel, Conclusion, Outcome

_SHARE_OF_TWIN = 0.3  # SHARE_EXPLAINED where that grows as well: Python's own objects lie outside of malloc's heap
_SPREADS, _WIDE_SPREADS = 3.0, 2.0
"""Times the usual difference of levels in a block, and that of the second widest, by which they must grow to be a leak
without a holder."""
_LASTS = 0.5  # part of such growth by which the lowest levels must rise as well
_FREE_HEAP = "it is free in malloc's heap, which keeps what the largest steps have needed"


class Explanations:
    """Conclusions on the growth of one device's channels.

    Args:
        feed: The samples of the device.
        resident: The growth of its resident memory.
    """

    def __init__(self, feed: SampleFeed, resident: ResidentGrowth) -> None:
        self._feed, self._resident = feed, resident
        self._conclusions: dict[Channel, Conclusion] = {}
        self._without_survivors: Counter[Channel] = Counter()
        # what was found last to fill, and to keep nothing from step to step: memory of the host (true), or not
        self._filling: dict[bool, Conclusion] = {}
        self._working: dict[bool, Conclusion] = {}

    def of(self, channel: GrowthChannel) -> Conclusion | None:
        """The last conclusion on the growth of a channel."""
        return self._conclusions.get(channel.channel)

    def note(self, channel: GrowthChannel, conclusion: Conclusion) -> None:
        """Note what a look has told."""
        self._conclusions[channel.channel] = conclusion
        self._without_survivors[channel.channel] += conclusion.lacks_survivors
        if conclusion.outcome is Outcome.DISMISSED and conclusion.room:
            self._filling[self._is_of_host(channel)] = conclusion
        if conclusion.is_working_set:
            self._working[self._is_of_host(channel)] = conclusion

    def forget(self, channel: GrowthChannel) -> Conclusion | None:
        """Forget the conclusion on growth that has ended, and return it."""
        return self._conclusions.pop(channel.channel, None)

    def was_looked_at(self, channel: GrowthChannel) -> bool:
        """Whether looks have told all that they can; malloc's counters are none.

        Nor is a first look without survivors: growth that comes every few dozen steps is looked at from far apart, and
        what has become certain in each step.
        """
        known = self.of(channel)
        is_first = known is not None and known.lacks_survivors and self._without_survivors[channel.channel] == 1
        return known is not None and not known.is_free_heap and not is_first

    def as_it_stands(self, channel: GrowthChannel, trend: Trend) -> Conclusion | None:
        """What explains growth, unless it was that it is free heap, and it is so no more."""
        known = self.of(channel)
        is_stale = known is not None and known.is_free_heap and not self._resident.is_free_heap(channel, trend)
        return None if is_stale else known

    def by_earlier_look(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Attribute growth without evidence to what a look has found before.

        That is a bounded container, while it fills, else what keeps nothing from one step to the next: it may not have
        grown in the few steps of a later look.
        """
        latest, is_of_host = self.of(channel), self._is_of_host(channel)
        known, working = self._filling.get(is_of_host), self._working.get(is_of_host)
        # the resident memory grows by more than the objects that are added: by what lies between them
        share = _SHARE_OF_TWIN if channel.channel is Channel.HOST else 1.0
        if known is None or share * trend.growth > known.room:
            known = working
        if known is None or (latest is not None and latest.outcome is Outcome.CONFIRMED):
            return False
        self._conclusions[channel.channel] = known
        trend.explain(known.ends_at, known.room)
        return True

    def by_free_heap(self, channel: GrowthChannel, step: int) -> Conclusion:
        """Attribute the growth to what malloc keeps free, as its counters tell in a step."""
        conclusion = Conclusion(outcome=Outcome.DISMISSED, step=step, reason=_FREE_HEAP, is_free_heap=True)
        self._conclusions[channel.channel] = conclusion
        if channel.growth.trend is not None:
            channel.growth.trend.explain(None)
        return conclusion

    def is_shown(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Whether another channel shows the same growth.

        Resident memory grows with what malloc hands out; malloc hands out the Python objects of tensors whose memory
        on an accelerator grows more.
        """
        if channel.channel not in (Channel.HOST, Channel.HEAP):
            return False
        if self._resident.pinning(channel) is not None:
            return True
        is_heap = channel.channel is Channel.HEAP
        other = self._feed.channels[Channel.ALLOCATED if is_heap or self._feed.is_cpu else Channel.HEAP]
        standing = other.growth.trend
        if is_heap and (standing is None or standing.state not in (TrendState.SUSPECTED, TrendState.LEAK)):
            return False
        if standing is None and not other.is_read_like(channel, trend.first.step):
            return False
        growth = other.growth_between(trend.first.step, trend.last.step)
        share = 1.0 if is_heap else SHARE_EXPLAINED if standing is None else _SHARE_OF_TWIN
        return growth is not None and growth >= share * trend.growth

    def is_within_spread(self, channel: GrowthChannel, trend: Trend) -> bool:
        """Whether growth for which no holder is known is about what the steps differ by anyway.

        A step that ends with an episode's data alive holds more the longer the episode, and agents that learn play on.
        """
        conclusion = self.of(channel)
        is_confirmed = conclusion is not None and conclusion.outcome is Outcome.CONFIRMED
        # elsewhere blocks reach up to peaks
        apart = max(_SPREADS * channel.spread, _WIDE_SPREADS * channel.wide_spread)
        is_small = trend.growth < apart or channel.lasting_share(trend) < _LASTS
        return self._feed.is_cpu and not is_confirmed and is_small

    def _is_of_host(self, channel: GrowthChannel) -> bool:
        return self._feed.is_cpu or channel.channel in (Channel.HOST, Channel.HEAP)
