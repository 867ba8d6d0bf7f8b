"""Rows of the live log: consecutive samples of one device, how they are merged, and their lines."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from tbmem.model.json_values import Count, Size, UnixTime
from tbmem.model.sample import MemorySample

_ROW_SECONDS = 1.0
_STALE_SECONDS = 5.0
"""Age of a reading of malloc above which it is no longer said to be the level: in a heap of a million holes one takes a
quarter of a second, and comes once in minutes."""
FRESH_SECONDS = 0.1
"""Age of a reading of malloc up to which a row does not say of what step it is: a long run of short steps reads every
20 to 100 ms."""
ROW_FIELDS = (
    *MemorySample._fields,
    *("first_step", "count", "allocated_min", "allocated_max", "peak_step", "level_step"),
)
"""Keys of a line of samples beside its type."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Consecutive samples of one device, as one line of the log."""

    first_step: int
    count: int  # samples that the row stands for; 0 for a step that has not ended, of which only peaks are known
    allocated_min: int | None
    allocated_max: int | None
    sample: MemorySample  # the last of them, with the largest peaks of all
    peak_step: int | None = None
    """Step of the highest peak, or of the highest level where there are no peaks; ``None`` where there is one step."""
    level_step: int | None = None
    """Step after which the level was read, where that is a while ago; ``None`` where it was read at the row's end."""

    @classmethod
    def unfinished(cls, sample: MemorySample) -> SampleRow:
        """The row of a step that has not ended: memory ran out in it, or it is what came after the last one."""
        return cls(sample.step, 0, None, None, sample._replace(allocated=None, reserved=None))

    @property
    def highest(self) -> int | None:
        """The highest peak of its steps; the highest level where no peak is known."""
        levels = self.sample.peak is None and self.allocated_max is not None
        return self.allocated_max if levels else self.sample.highest

    @property
    def as_read(self) -> MemorySample:
        """The sample with what was read in its steps alone, without a level that is that of an earlier row."""
        repeats = self.level_step is not None and self.level_step < self.first_step
        return self.sample._replace(allocated=None, reserved=None) if repeats else self.sample

    @property
    def values(self) -> tuple[Any, ...]:
        """Values in the order of ``ROW_FIELDS``."""
        levels = (self.allocated_min, self.allocated_max, self.peak_step, self.level_step)
        return (*self.sample, self.first_step, self.count, *levels)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SampleRow:
        """The row of a line; unknown keys are ignored, and a missing or odd value raises ValueError."""
        return _row_of(msgspec.convert(data, _Line))


class RowBuilder:
    """Collects one device's samples into rows.

    A row in which malloc was not read repeats the level of the row before for some seconds, and has none after that.

    Args:
        every: A row ends with each step whose number is a multiple of this.
        began: Unix time of the run's start in seconds, if known.
    """

    def __init__(self, every: int = 1, began: float = math.inf) -> None:
        self._every = every
        self._last_end = began
        self._open: list[MemorySample] = []
        self._counted: MemorySample | None = None

    def add(self, samples: Sequence[MemorySample]) -> list[SampleRow]:
        """The rows that are complete with these samples.

        A row also ends a second after the one before, so that slow steps are logged at once, and where a profiler
        starts or stops, so that its memory is in the figures of its own steps only.
        """
        rows = []
        for sample in samples:
            if self._open and self._open[-1].profiled != sample.profiled:
                rows += self.close()
            self._open.append(sample)
            if sample.step % self._every == 0 or sample.time - self._last_end >= _ROW_SECONDS:
                rows += self.close()
        return rows

    def close(self) -> list[SampleRow]:
        """The incomplete row, if there is one."""
        samples, self._open = self._open, []
        if not samples:
            return []
        last = samples[-1]
        self._last_end = last.time
        levels = [sample.allocated for sample in samples if sample.allocated is not None]
        if levels:
            self._counted = next(sample for sample in reversed(samples) if sample.allocated is not None)
        lowest, highest = min(levels, default=None), max(levels, default=None)
        counted = self._counted
        if counted is None or last.time - counted.time > _STALE_SECONDS:
            counted = last
        level_step = counted.step if last.time - counted.time > FRESH_SECONDS else None
        merged = last if len(samples) == 1 and levels else _merge(samples, counted)
        return [SampleRow(samples[0].step, len(samples), lowest, highest, merged, _peak_step(samples), level_step)]


def _peak_step(samples: Sequence[MemorySample]) -> int | None:
    """Step of the highest peak; ``None`` for a single sample."""
    if len(samples) == 1:
        return None
    known = [sample for sample in samples if sample.peak is not None]
    known = known or [sample for sample in samples if sample.allocated is not None]
    return max(known, key=lambda sample: sample.highest or 0).step if known else None


def _merge(samples: Sequence[MemorySample], counted: MemorySample) -> MemorySample:
    """The last sample with the largest peaks of all and the last known level."""
    peaks: dict[str, Any] = {}
    for name in ("peak_allocated", "peak_reserved", "host_peak_rss"):
        known = [peak for sample in samples if (peak := getattr(sample, name)) is not None]
        peaks[name] = max(known, default=None)
    updated = any(sample.updated for sample in samples) or samples[-1].updated
    return samples[-1]._replace(allocated=counted.allocated, reserved=counted.reserved, updated=updated, **peaks)


_TYPES: dict[str, Any] = {
    **dict.fromkeys(ROW_FIELDS, Size | None),
    **{"step": Count, "time": UnixTime, "device": str, "rank": Count, "profiled": bool, "updated": bool | None},
    **{"first_step": Count, "count": Count, "peak_step": Count | None, "level_step": Count | None},
}
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(:[0-9]+)?")
_Line = msgspec.defstruct(
    "_Line",
    [
        *((name, _TYPES[name]) for name in ROW_FIELDS[:3]),
        *((name, _TYPES[name], False if name == "profiled" else None) for name in ROW_FIELDS[3:]),
    ],
    tag_field="type",
    tag="samples",
    omit_defaults=True,
)
"""Encodes a row five times faster than a dictionary; counters that the device does not have are left out."""
_decoded = msgspec.json.Decoder(_Line).decode
_values = attrgetter(*ROW_FIELDS)


@lru_cache
def is_device(name: str) -> bool:
    """Whether a name is one that torch gives to devices: ``'cpu'``, ``'cuda:0'``."""
    return _DEVICE.fullmatch(name) is not None


def _row_of(line: Any) -> SampleRow:
    """The row of a ``_Line``; ValueError if it does not say which steps and which device it stands for."""
    *sample, first_step, count, lowest, highest, peak_step, level_step = _values(line)
    if first_step is None or count is None or not is_device(line.device):
        raise ValueError("a row without its steps or its device")
    last = MemorySample(*sample)
    last = last._replace(rank=0) if last.rank is None else last
    return SampleRow(first_step, count, lowest, highest, last, peak_step, level_step)


def line_of(row: SampleRow) -> str:
    """The line of a row, without the line break."""
    return msgspec.json.encode(_Line(*row.values)).decode()


def row_of(line: bytes) -> SampleRow:
    """The row of a line.

    Raises:
        msgspec.MsgspecError: It is no row's.
        ValueError: It does not say which steps and which device it stands for.
    """
    return _row_of(_decoded(line))
