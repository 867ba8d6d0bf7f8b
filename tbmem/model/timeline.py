"""AllocationTimeline: every allocation of a recording as numpy columns, and its file format ``*.tbmem.npz``.

Events are numbered per device and serve as the clock; "at event e" means just after it, and -1 is the beginning of the
recording. A row is alive from its ``alloc_event`` until just before its ``free_event``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from tbmem.model.columns import I64, Columns, check_header, read_archive, stored_column
from tbmem.model.json_values import Count, encodable, plain, read_json
from tbmem.model.stacks import Frame, StackTable
from tbmem.model.timeline_check import check_tables
from tbmem.model.timeline_tables import (
    AllocationRows,
    BlockRows,
    DeviceTotals,
    MarkRows,
    RangeRows,
    ReservationRows,
    SegmentRows,
)


class Curve(NamedTuple):
    """Bytes after each change; the first point is the beginning of the recording."""

    event: I64  # -1 for the beginning
    ns: I64  # Unix time; -1 where unknown
    bytes: I64


class Peak(NamedTuple):
    """The highest point of a curve, the first one of equal points."""

    bytes: int
    event: int  # -1 if the curve never rises above its beginning
    ns: int  # Unix time; -1 where unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTimeline:
    """Every allocation of a recording, as columns."""

    source: str
    """``'snapshot'``, ``'trace'``, ``'estimate'``, or ``'count'`` (a real step whose operators were counted)."""
    rows: AllocationRows
    devices: tuple[DeviceTotals, ...]
    segments: SegmentRows = field(default_factory=SegmentRows.of)
    blocks: BlockRows = field(default_factory=BlockRows.of)
    reservations: ReservationRows = field(default_factory=ReservationRows.of)
    marks: MarkRows = field(default_factory=MarkRows.of)
    ranges: RangeRows = field(default_factory=RangeRows.of)
    stacks: StackTable = field(default_factory=StackTable)
    pools: tuple[tuple[int, int], ...] = ()
    """Memory pools, as torch numbers them; ``(0, 0)`` is the default one."""
    names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    range_names: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def device_number(self, name: str) -> int:
        """Number of a device in ``devices``; KeyError if the recording has no such device."""
        for number, device in enumerate(self.devices):
            if device.name == name:
                return number
        raise KeyError(name)

    def with_columns(self, *, names: tuple[str, ...] | None = None, **columns: ArrayLike) -> AllocationTimeline:
        """A copy in which columns of ``rows``, and the table of ``names``, are replaced."""
        return replace(self, rows=self.rows.replace(**columns), names=self.names if names is None else names)

    def with_older_rows(self, rows: AllocationRows) -> AllocationTimeline:
        """A copy with allocations that were alive throughout the recording and are known from an address book only.

        They replace a device's unlisted bytes. What exceeds these is added to its base: torch's totals of the CPU leave
        out what was allocated before the profiler ran.
        """
        devices = []
        for number, device in enumerate(self.devices):
            added = int(rows.bytes[rows.device == number].sum())
            listed = min(added, max(device.unlisted_bytes, 0))
            unlisted, base = device.unlisted_bytes - listed, device.base_bytes + added - listed
            devices.append(replace(device, unlisted_bytes=unlisted, base_bytes=base))
        return replace(self, rows=AllocationRows.join([self.rows, rows]), devices=tuple(devices))

    def rows_of(self, device: int) -> AllocationRows:
        """The rows of a device."""
        return self.rows if len(self.devices) == 1 else self.rows.take(self.rows.device == device)

    def check(self) -> None:
        """Raise FileFormatError if the tables do not fit together, or hold a value that no recording has."""
        names = ("devices", "stacks", "pools", *_WORDS, *_TABLES)
        tables: dict[str, Columns] = {name: getattr(self, name) for name in _TABLES}
        check_tables(self.devices, self.stacks, tables, {name: len(getattr(self, name)) for name in names})

    def encodable(self) -> AllocationTimeline:
        """The same with texts that every file and terminal takes."""
        frames = self.stacks.frames
        kept = tuple(Frame(encodable(frame.file), frame.line, encodable(frame.function)) for frame in frames)
        texts: dict[str, Any] = {name: tuple(map(encodable, getattr(self, name))) for name in _WORDS}
        others = {"settings": plain(self.settings), "about": plain(self.about)}
        return replace(self, stacks=replace(self.stacks, frames=kept), **others, **texts)

    def alive_at(self, device: int, event: int) -> I64:
        """Numbers of the rows that are alive just after an event."""
        rows = self.rows
        begun = (rows.device == device) & (rows.alloc_event <= event)
        return np.flatnonzero(begun & ((rows.free_event > event) | (rows.free_event < 0)))

    def alive_at_end(self, device: int) -> I64:
        """Numbers of the rows that are alive when the recording ends."""
        return self.alive_at(device, self.devices[device].events)

    def curve(self, device: int) -> Curve:
        """Allocated bytes of a device over time, one point per allocation and free."""
        rows = self.rows_of(device)
        events = self.devices[device].events
        change, ns = np.zeros(events, np.int64), np.full(events, -1, np.int64)
        touched = np.zeros(events, np.bool_)
        for event, event_ns, sign in ((rows.alloc_event, rows.alloc_ns, 1), (rows.free_event, rows.free_ns, -1)):
            recorded = event >= 0
            np.add.at(change, event[recorded], sign * rows.bytes[recorded])
            ns[event[recorded]] = event_ns[recorded]
            touched[event[recorded]] = True
        at = np.flatnonzero(touched)
        return _curve(self.devices[device].base_bytes, at, ns[at], change[at])

    def peak(self, device: int) -> Peak:
        """The most bytes allocated at once; ``alive_at(device, peak.event)`` are the rows behind it."""
        return _highest(self.curve(device))

    def reserved_curve(self, device: int) -> Curve:
        """Bytes that the allocator reserved from the device over time; empty if the file does not say."""
        base = self.devices[device].base_reserved_bytes
        if base is None:
            nothing = np.zeros(0, np.int64)
            return Curve(nothing, nothing, nothing)
        changes = self.reservations.take(self.reservations.device == device)
        return _curve(base, changes.event, changes.ns, changes.bytes)

    def peak_reserved(self, device: int) -> Peak | None:
        """The most bytes reserved at once; ``None`` if the file does not say."""
        curve = self.reserved_curve(device)
        return _highest(curve) if len(curve.event) else None

    def frames(self, row: int) -> tuple[Frame, ...]:
        """Call stack of an allocation, the innermost call first; empty if none was recorded."""
        return self.stacks.of(int(self.rows.stack[row]))


def _curve(base: int, event: I64, ns: I64, change: I64) -> Curve:
    return Curve(np.insert(event, 0, -1), np.insert(ns, 0, -1), base + np.insert(np.cumsum(change), 0, 0))


def _highest(curve: Curve) -> Peak:
    at = int(np.argmax(curve.bytes))
    return Peak(int(curve.bytes[at]), int(curve.event[at]), int(curve.ns[at]))


SCHEMA_VERSION = 1
KIND = "allocation_timeline"
_TABLES: dict[str, type[Columns]] = {
    "rows": AllocationRows,
    "segments": SegmentRows,
    "blocks": BlockRows,
    "reservations": ReservationRows,
    "marks": MarkRows,
    "ranges": RangeRows,
}
_WORDS = ("names", "modules", "operators", "contexts", "range_names", "notes")


def save_timeline(timeline: AllocationTimeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline as ``*.tbmem.npz``: arrays and a JSON header, no pickles."""
    header: dict[str, Any] = {"schema": SCHEMA_VERSION, "kind": KIND, "frames": timeline.stacks.frames}
    header["devices"] = [asdict(device) for device in timeline.devices]
    header |= {name: getattr(timeline, name) for name in ("source", "pools", "settings", "about", *_WORDS)}
    arrays: dict[str, Any] = {"stacks.frame": timeline.stacks.frame, "stacks.offset": timeline.stacks.offset}
    for table in _TABLES:
        arrays |= {f"{table}.{name}": values for name, values in getattr(timeline, table).columns().items()}
    # numpy stores text at four bytes a character
    text = np.frombuffer(json.dumps(header, default=dict).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez_compressed(file, header=text, **arrays)


def load_timeline(path: str | os.PathLike[str]) -> AllocationTimeline:
    """Read what ``save_timeline`` wrote.

    Raises:
        FileFormatError: The file is damaged, is something else, or has a newer schema.
    """
    return read_archive(path, _parse, "an allocation timeline")


class _Header(msgspec.Struct, kw_only=True):
    """The JSON beside the arrays."""

    frames: tuple[tuple[str, Count, str], ...]
    devices: tuple[DeviceTotals, ...]
    source: str
    pools: tuple[tuple[int, int], ...]
    settings: dict[str, Any]
    about: dict[str, Any]
    names: tuple[str, ...]
    modules: tuple[str, ...]
    operators: tuple[str, ...]
    contexts: tuple[str, ...]
    range_names: tuple[str, ...]
    notes: tuple[str, ...]


def _parse(stored: Any) -> AllocationTimeline:
    data = read_json(stored["header"].tobytes())
    check_header(data, KIND, SCHEMA_VERSION)
    header = msgspec.convert(data, _Header)
    parts: dict[str, Any] = {name: getattr(header, name) for name in _WORDS}
    for table, columns in _TABLES.items():
        types = {name: dtype for name, (dtype, _) in columns.declared().items()}
        parts[table] = columns(
            **{name: stored_column(stored, f"{table}.{name}", dtype) for name, dtype in types.items()}
        )
    stacks = StackTable(
        frames=tuple(Frame(*frame) for frame in header.frames),
        frame=stored_column(stored, "stacks.frame", np.int32),
        offset=stored_column(stored, "stacks.offset", np.int64),
    )
    timeline = AllocationTimeline(
        source=header.source,
        devices=header.devices,
        pools=header.pools,
        settings=header.settings,
        about=header.about,
        stacks=stacks,
        **parts,
    )
    timeline.check()
    return timeline
