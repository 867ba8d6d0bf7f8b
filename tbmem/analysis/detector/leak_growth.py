"""The growth that a leak is reported with: that of its channel, of its holder, or of the resident memory."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tbmem.analysis.detector.forecast import Forecast
from tbmem.analysis.detector.growth_channel import GrowthChannel
from tbmem.analysis.detector.resident_growth import ResidentGrowth
from tbmem.analysis.detector.trend import Trend
from tbmem.model.evidence import Channel, Suspicion
from tbmem.model.sample import MemorySample

_MOST_HIDDEN = 1.5
"""Times a leak's growth that its holder may gain in the first steps: what a window has left is freed meanwhile."""


class LeakGrowth(NamedTuple):
    """The growth that a leak is reported with: its rate, what it has grown by and its forecast fit each other."""

    seen: Suspicion
    ahead: Forecast | None
    part: Suspicion | None = None
    """What malloc shows of it on the CPU, where that is far less."""
    is_held: bool = False
    """Whether ``seen`` is what the holder gains, of which malloc's heap lacks most."""


def leak_growth(
    sample: MemorySample,
    channel: GrowthChannel,
    trend: Trend,
    resident: ResidentGrowth,
    rate: float,
    ahead: Forecast | None,
) -> LeakGrowth:
    """Choose the growth that the leak of a trend is reported with.

    Args:
        sample: The last sample of the device.
        channel: Whose trend it is.
        trend: The growth.
        resident: The growth of the resident memory against that of what is alive.
        rate: Growth of the trend, in bytes per judged step.
        ahead: When memory has run out at this rate, if that is known.
    """
    seen, ahead = _in_the_first_steps(channel.suspicion(trend, sample, rate), trend, ahead)
    held, grown = resident.held(channel, trend), resident.beyond(channel, trend)
    part = None if held is None and grown is None else seen
    if held is not None:
        seen = _at_rate(seen, held, held * seen.judged_steps, resident.level_at(trend))
        ahead = ahead and ahead.at_rate(held)
    elif grown is not None:
        seen = _at_rate(seen, resident.rate(trend), grown, resident.level_at(trend))
        ahead = resident.forecast(trend, sample.step)
    faster = resident.faster(channel, trend, seen.bytes_per_step)
    if ahead is not None and faster is not None:
        ahead = ahead.at_rate(faster)._replace(resident_rate=faster)
    elif held is None and grown is None and resident.is_far_faster(channel, trend):
        ahead = None
    return LeakGrowth(seen, ahead, part, held is not None)


def _in_the_first_steps(seen: Suspicion, trend: Trend, ahead: Forecast | None) -> tuple[Suspicion, Forecast | None]:
    """The growth at the rate of its holder, where the steps are too few for one of its own."""
    rate, held = seen.bytes_per_step, trend.held
    # malloc takes from the system by megabytes: a few steps of them make no rate
    is_of_pages = seen.channel is Channel.HOST and 0 < held < rate
    if not trend.is_short or not (is_of_pages or rate < held <= _MOST_HIDDEN * rate):
        return seen, ahead
    at_once = round(seen.growth - held * seen.judged_steps) if is_of_pages else 0
    return replace(seen, bytes_per_step=held, at_once=at_once), ahead and ahead.at_rate(held)


def _at_rate(seen: Suspicion, rate: float, growth: float, level: int) -> Suspicion:
    """The growth at another rate, in bytes per judged step, up to another level."""
    at_once = round(growth - rate * seen.judged_steps)
    return replace(seen, base=level - round(growth), level=level, bytes_per_step=rate, at_once=at_once)
