"""Converts events of a device to positions on a time axis and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import F64, I64
from tbmem.model.timeline import AllocationTimeline

TIME, EVENT = "time", "event"
_IDLE = 0.4
"""Share of the duration; with a pause this long, the axis of events is preferred."""
_MS = 1e6
_ROUNDING_NS = 2


class TimeAxis(NamedTuple):
    """Times of the events of one device."""

    events: int
    origin_ns: int
    """Begin of the recording, over all devices; -1 if it has no times."""
    event_ns: I64
    """Unix time of the beginning and of each event, never falling; empty without times."""
    axes: tuple[str, ...]
    """Available axes, the default one first."""

    def x(self, event: NDArray[Any], axis: str) -> F64:
        """Positions of events: milliseconds since the recording began, or their numbers (-1: the beginning)."""
        if axis == EVENT:
            return np.asarray(np.clip(event, -1, self.events - 1), np.float64)
        return np.asarray((self.event_ns[np.clip(event + 1, 0, self.events)] - self.origin_ns) / _MS)

    def extent(self, axis: str) -> tuple[float, float]:
        """The whole range."""
        begin, end = self.x(np.array([-1, self.events - 1]), axis).tolist()
        return begin, end

    def events_in(self, begin: float, end: float, axis: str) -> tuple[int, int]:
        """Last event before a range of x (-1: the beginning), and last event in it."""
        if axis == EVENT:
            return int(np.ceil(max(begin, -1))) - (begin > -1), int(np.floor(min(end, self.events - 1)))
        low, high = begin * _MS + self.origin_ns, end * _MS + self.origin_ns
        # x is rounded on its way to the browser and back
        first = int(np.searchsorted(self.event_ns, low - _ROUNDING_NS, "left"))
        last = int(np.searchsorted(self.event_ns, high + _ROUNDING_NS, "right"))
        return max(first - 2, -1), max(last - 2, -1)


def time_axis_of(timeline: AllocationTimeline, device: int) -> TimeAxis:
    """Times of a device's events."""
    events = timeline.devices[device].events
    rows, marks, reservations = timeline.rows, timeline.marks, timeline.reservations
    ns = np.full(events + 1, -1, np.int64)
    tables = (
        (rows.device, rows.alloc_event, rows.alloc_ns),
        (rows.device, rows.free_event, rows.free_ns),
        (reservations.device, reservations.event, reservations.ns),
        (marks.device, marks.event, marks.ns),
    )
    for owner, event, time_ns in tables:
        timed = (owner == device) & (event >= 0) & (event < events) & (time_ns >= 0)
        ns[event[timed] + 1] = time_ns[timed]
    known = ns[1:] >= 0
    if not known.any():
        return TimeAxis(events, -1, np.zeros(0, np.int64), (EVENT,))
    ns[0] = ns[1:][known][0]
    event_ns = np.maximum.accumulate(ns)
    times = [column[column >= 0] for column in (rows.alloc_ns, rows.free_ns, timeline.ranges.begin_ns)]
    origin = min(int(column.min()) for column in times if len(column))
    duration = int(event_ns[-1] - event_ns[0])
    idle = duration == 0 or int(np.diff(event_ns).max(initial=0)) >= _IDLE * duration
    return TimeAxis(events, origin, event_ns, (EVENT, TIME) if idle else (TIME, EVENT))
