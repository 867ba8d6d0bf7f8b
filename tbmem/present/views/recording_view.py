"""An analysed recording, with what several views need of it, computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.plots.stacked_series import Stacking, stacking_of
from tbmem.analysis.plots.time_axis import TimeAxis, time_axis_of
from tbmem.analysis.recordings.module_tree import module_codes
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis
from tbmem.analysis.source_lines import SourceLines
from tbmem.errors import UsageError
from tbmem.model.columns import I64
from tbmem.model.timeline import Curve
from tbmem.model.timeline_tables import OperatorCalls
from tbmem.present.views.recording_schema import Axis, Head

_Value = TypeVar("_Value")
DIGITS = 6
"""Decimals of x: a nanosecond."""


@dataclass(slots=True)
class Subject:
    """One recording of a run."""

    run: str
    file: str
    name: str
    analysis: Analysis
    calls: OperatorCalls | None = None
    _kept: dict[tuple[str, int], Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    def device(self, name: str | None) -> DeviceAnalysis:
        """A device by its name; the main one without.

        Raises:
            UsageError: The recording has none of this name.
        """
        if not self.analysis.devices:
            raise UsageError(f"{self.file}: the recording names no device")
        if name is None:
            return self.analysis.main
        for device in self.analysis.devices:
            if device.name == name:
                return device
        names = ", ".join(device.name for device in self.analysis.devices)
        raise UsageError(f"device={name}: {self.file} has {names}")

    def clock(self, device: int) -> TimeAxis:
        """The way from events to x."""
        return self._once("clock", device, lambda: time_axis_of(self.analysis.timeline, device))

    def curve(self, device: int) -> Curve:
        """Bytes over time."""
        return self._once("curve", device, lambda: self.analysis.timeline.curve(device))

    def stacking(self, device: int) -> Stacking:
        """How its categories are stacked."""
        return self._once("stacking", device, lambda: stacking_of(self.analysis, device, curve=self.curve(device)))

    def line_of_stack(self) -> tuple[str, ...]:
        """The source line of each stack, by its number."""
        stacks = self.analysis.timeline.stacks
        return self._once("lines", 0, lambda: tuple(map(SourceLines(stacks).line, range(len(stacks)))))

    def modules(self) -> tuple[I64, tuple[str, ...]]:
        """Module of each row, and their paths."""
        return self._once("modules", 0, lambda: module_codes(self.analysis.timeline))

    def _once(self, what: str, device: int, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            key = (what, device)
            if key not in self._kept:
                self._kept[key] = make()
            found: _Value = self._kept[key]
            return found

    def head(self, device: DeviceAnalysis) -> Head:
        """What every answer begins with."""
        main = self.analysis.main.name
        others = [one.name for one in self.analysis.devices if one.name != main]
        return {
            "run": self.run,
            "file": self.file,
            "name": self.name,
            "kind": self.analysis.source,
            "device": device.name,
            "devices": [main, *others],
            "measure": device.measure,
            "notes": list(self.analysis.notes),
        }


class Stretch(NamedTuple):
    """The part of a recording that an answer is of."""

    clock: TimeAxis
    axis: str
    before: int
    """Last event before it; -1 for the beginning."""
    last: int
    """Last event in it."""
    begin: float
    """In x, as the next."""
    end: float

    @property
    def whole(self) -> bool:
        """Whether it is all of the recording."""
        return (self.begin, self.end) == self.clock.extent(self.axis)

    def x(self, event: NDArray[Any]) -> list[float]:
        """Where events lie, within the stretch."""
        found = np.clip(self.clock.x(event, self.axis), self.begin, self.end)
        return numbers(found)

    def columns(self, event: I64, count: int) -> I64:
        """Which of so many columns of one width events lie in."""
        share = (self.clock.x(event, self.axis) - self.begin) / ((self.end - self.begin) or 1.0)
        found: I64 = np.clip(share * count, 0, count - 1).astype(np.int64)
        return found

    def x_of_time(self, ns: NDArray[Any]) -> NDArray[np.float64]:
        """Where Unix times lie, not cut to the stretch."""
        if self.axis == "time":
            return (ns - self.clock.origin_ns) / 1e6
        return np.searchsorted(self.clock.event_ns[1:], ns, side="left").astype(np.float64)

    def about(self) -> Axis:
        """What the answer says of its x."""
        low, high = self.clock.extent(self.axis)
        return {
            "axis": self.axis,
            "axes": list(self.clock.axes),
            "extent": [round(low, DIGITS), round(high, DIGITS)],
            "range": [round(self.begin, DIGITS), round(self.end, DIGITS)],
        }


def stretch_of(
    subject: Subject, device: int, axis: str | None = None, begin: float | None = None, end: float | None = None
) -> Stretch:
    """The part that is asked for.

    Args:
        subject: The recording.
        device: Number of the device.
        axis: ``time`` or ``event``; by default the one that shows more.
        begin: In x; by default from the beginning.
        end: In x; by default to the end.

    Raises:
        UsageError: The recording has no such axis, or the range is none.
    """
    clock = subject.clock(device)
    axis = clock.axes[0] if axis is None else axis
    if axis not in clock.axes:
        raise UsageError(f"axis={axis}: {subject.file} has {' and '.join(clock.axes)}")
    low, high = clock.extent(axis)
    begin = low if begin is None else min(max(begin, low), high)
    end = high if end is None else min(max(end, low), high)
    if begin > end:
        raise UsageError(f"from={begin:g} lies after to={end:g}")
    before, last = clock.events_in(begin, end, axis) if (begin, end) != (low, high) else (-1, clock.events - 1)
    return Stretch(clock, axis, before, max(last, before), begin, end)


def numbers(values: NDArray[Any]) -> list[float]:
    """Plain numbers, rounded to a nanosecond."""
    found: list[float] = np.round(values, DIGITS).tolist()
    return found
