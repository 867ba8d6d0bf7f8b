"""An analysed recording and the selected range of it, shared by the views of recordings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.allocator.history import AllocatorHistory
from tbmem.analysis.plots.stacked_series import Stacking, stacking_of
from tbmem.analysis.plots.time_axis import TimeAxis, time_axis_of
from tbmem.analysis.recordings.module_tree import module_codes
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis
from tbmem.analysis.source_lines import SourceLines
from tbmem.errors import UsageError
from tbmem.model.columns import I64
from tbmem.model.timeline import Curve
from tbmem.model.timeline_tables import OperatorCalls
from tbmem.present.lines import note_line

_Value = TypeVar("_Value")
DIGITS = 6
"""Decimals of x: a nanosecond."""


@dataclass(slots=True)
class RecordingView:
    """One recording of a run; what several views need is computed once."""

    run: str
    file: str
    name: str
    analysis: Analysis
    calls: OperatorCalls | None = None
    _cache: dict[tuple[str, int], Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    def device(self, name: str | None) -> DeviceAnalysis:
        """The device of this name, or the main device for ``None``.

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
        """Conversion between events and x."""
        return self._cached("clock", device, lambda: time_axis_of(self.analysis.timeline, device))

    def curve(self, device: int) -> Curve:
        """Allocated bytes over the events of a device."""
        return self._cached("curve", device, lambda: self.analysis.timeline.curve(device))

    def stacking(self, device: int) -> Stacking:
        """Order of the categories in the stacked chart."""
        return self._cached("stacking", device, lambda: stacking_of(self.analysis, device, curve=self.curve(device)))

    def history(self, device: int) -> AllocatorHistory:
        """The device's allocator at any event."""
        return self._cached("history", device, lambda: AllocatorHistory(self.analysis.timeline, device))

    def line_of_stack(self) -> tuple[str, ...]:
        """Source line of each stack."""
        stacks = self.analysis.timeline.stacks
        return self._cached("lines", 0, lambda: tuple(map(SourceLines(stacks).line, range(len(stacks)))))

    def modules(self) -> tuple[I64, tuple[str, ...]]:
        """Index of each row's module, and the modules' paths."""
        return self._cached("modules", 0, lambda: module_codes(self.analysis.timeline))

    def _cached(self, name: str, device: int, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            key = (name, device)
            if key not in self._cache:
                self._cache[key] = make()
            value: _Value = self._cache[key]
            return value

    def head(self, device: DeviceAnalysis) -> dict[str, Any]:
        """The common head of every answer."""
        main = self.analysis.main.name
        others = [other.name for other in self.analysis.devices if other.name != main]
        return {
            "run": self.run,
            "file": self.file,
            "name": self.name,
            "kind": self.analysis.source,
            "device": device.name,
            "devices": [main, *others],
            "measure": device.measure,  # kind of bytes: requested or rounded
            "notes": list(map(note_line, self.analysis.notes)),
        }


class EventRange(NamedTuple):
    """The range of a recording that an answer covers."""

    clock: TimeAxis
    axis: str
    before: int
    """Last event before the range; -1 for the beginning of the recording."""
    last: int
    """Last event in the range."""
    begin: float
    """In x: milliseconds or events, as ``end``."""
    end: float

    @property
    def is_full(self) -> bool:
        """Whether the range is the whole recording."""
        return (self.begin, self.end) == self.clock.extent(self.axis)

    def x(self, event: NDArray[Any]) -> list[float]:
        """X of events, clipped to the range."""
        return rounded(np.clip(self.clock.x(event, self.axis), self.begin, self.end))

    def columns(self, event: I64, count: int) -> I64:
        """Index of each event's column, of ``count`` columns of equal width."""
        share = (self.clock.x(event, self.axis) - self.begin) / ((self.end - self.begin) or 1.0)
        column: I64 = np.clip(share * count, 0, count - 1).astype(np.int64)
        return column

    def x_of_time(self, ns: NDArray[Any]) -> NDArray[np.float64]:
        """X of Unix times in nanoseconds, not clipped."""
        if self.axis == "time":
            return (ns - self.clock.origin_ns) / 1e6
        return np.searchsorted(self.clock.event_ns[1:], ns, side="left").astype(np.float64)

    def axis_info(self) -> dict[str, Any]:
        """The axis, the axes to choose from, the extent of the whole recording and the selected range, in x."""
        extent = [round(x, DIGITS) for x in self.clock.extent(self.axis)]
        shown = [round(self.begin, DIGITS), round(self.end, DIGITS)]
        return {"axis": self.axis, "axes": list(self.clock.axes), "extent": extent, "range": shown}


def select_range(
    recording: RecordingView, device: int, axis: str | None = None, begin: float | None = None, end: float | None = None
) -> EventRange:
    """The range from ``begin`` to ``end``, in x, clipped to the recording; by default all, on the axis that shows more.

    Raises:
        UsageError: The recording has no such axis, or the range is empty.
    """
    clock = recording.clock(device)
    axis = clock.axes[0] if axis is None else axis
    if axis not in clock.axes:
        raise UsageError(f"axis={axis}: {recording.file} has {' and '.join(clock.axes)}")
    low, high = clock.extent(axis)
    begin = low if begin is None else min(max(begin, low), high)
    end = high if end is None else min(max(end, low), high)
    if begin > end:
        raise UsageError(f"from={begin:g} lies after to={end:g}")
    before, last = clock.events_in(begin, end, axis) if (begin, end) != (low, high) else (-1, clock.events - 1)
    return EventRange(clock, axis, before, max(last, before), begin, end)


def rounded(values: NDArray[Any]) -> list[float]:
    """Values as a list, rounded to a nanosecond."""
    return list(map(float, np.round(values, DIGITS).tolist()))


def columns_of(records: Sequence[Any], *names: str) -> dict[str, list[Any]]:
    """A table as columns: of each field the values of all records, as plain lists."""
    return {name: [getattr(record, name) for record in records] for name in names}
