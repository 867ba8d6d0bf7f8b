"""The one model of allocations: what was alive when, the peak, and what stood behind it.

Snapshots, traces and estimates fill it, every analysis and every screen reads it and knows no source. It is a handful
of tables of numpy columns (``tbmem.model.timeline_tables`` documents each column) and of interned words:

| table | one row is | columns |
|---|---|---|
| ``rows`` | an allocation | bytes, rounded_bytes, device, stream, pool, address, alloc_event, free_event, alloc_ns, \
free_ns, free_requested_event, step, phase, category, basis, name, module, operator, stack, context |
| ``segments`` | a segment at the end | device, address, bytes, allocated_bytes, active_bytes, requested_bytes, \
stream, kind, pool, expandable, stack |
| ``blocks`` | a block of a segment | segment, address, bytes, requested_bytes, state, row, stack |
| ``reservations`` | a change of reserved memory | device, event, ns, bytes, kind, address, stream, stack |
| ``marks`` | an OOM, a snapshot | device, event, ns, kind, bytes, device_free_bytes, stack |
| ``ranges`` | a step, optimizer, annotation | name, kind, begin_ns, end_ns, device, step |
| ``devices`` | a ``DeviceTotals`` | what the file says of the device, base, unmatched frees |
| ``stacks`` | a call stack | ``stacks.of(number)`` gives its frames |

Events are numbered per device and are the clock (see ``timeline_tables``); "at event e" means just after it, and -1 is
the beginning of the recording. A row is alive from its ``alloc_event`` until just before its ``free_event``.
``tbmem.model.timeline`` keeps a timeline in a file.
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

from tbmem.errors import FileFormatError
from tbmem.model.columns import I64, Columns, check_header, read_archive
from tbmem.model.stacks import Frame, StackTable
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
    """Bytes after each change, the first point being the beginning of the recording."""

    event: I64
    """-1 for the beginning."""
    ns: I64
    """Unix time; -1 where it is not known."""
    bytes: I64


class Peak(NamedTuple):
    """The highest point of a curve, the first if there are several."""

    bytes: int
    event: int
    """-1 if it never rose above what was there at the beginning."""
    ns: int
    """-1 if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTimeline:
    """Every allocation of a recording, as columns; see the module's text."""

    source: str
    """Where it comes from: ``'snapshot'``, ``'trace'``, ``'estimate'``, or ``'count'`` (a real step, watched)."""
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
    """The allocator's settings, as the file gives them."""
    notes: tuple[str, ...] = ()
    """What is not known, one sentence each."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Which file, run, rank and process this is: plain JSON values."""

    def __len__(self) -> int:
        return len(self.rows)

    def device_number(self, name: str) -> int:
        """Number of a device in ``devices``.

        Raises:
            KeyError: The recording has no such device.
        """
        for number, device in enumerate(self.devices):
            if device.name == name:
                return number
        raise KeyError(name)

    def with_columns(self, *, names: tuple[str, ...] | None = None, **columns: ArrayLike) -> AllocationTimeline:
        """The same allocations with some columns put in place of others, such as categories that are now known.

        Args:
            names: New table for the column ``name``.
            **columns: Columns of ``rows``.
        """
        return replace(self, rows=self.rows.replace(**columns), names=self.names if names is None else names)

    def with_older_rows(self, rows: AllocationRows) -> AllocationTimeline:
        """With allocations that are older than the recording and outlive it, of which only an address book knows.

        They take the place of a device's unlisted bytes. What exceeds these (torch's totals of the CPU leave out what
        was allocated before the profiler ran) is added to its base.

        Args:
            rows: They have neither ``alloc_event`` nor ``free_event``; they go behind the present ones.
        """
        devices = []
        for number, device in enumerate(self.devices):
            added = int(rows.bytes[rows.device == number].sum())
            listed = min(added, max(device.unlisted_bytes, 0))
            devices.append(
                replace(
                    device,
                    unlisted_bytes=device.unlisted_bytes - listed,
                    base_bytes=device.base_bytes + added - listed,
                )
            )
        return replace(self, rows=AllocationRows.join([self.rows, rows]), devices=tuple(devices))

    def alive_at(self, device: int, event: int) -> I64:
        """Numbers of the rows that are alive just after an event (-1: the beginning of the recording)."""
        rows = self.rows
        begun = (rows.device == device) & (rows.alloc_event <= event)
        return np.flatnonzero(begun & ((rows.free_event > event) | (rows.free_event < 0)))

    def alive_at_end(self, device: int) -> I64:
        """Numbers of the rows that are still alive when the recording ends."""
        return self.alive_at(device, self.devices[device].events)

    def curve(self, device: int) -> Curve:
        """Counted bytes of a device over time, one point per allocation and free."""
        rows = self.rows if len(self.devices) == 1 else self.rows.take(self.rows.device == device)
        events = self.devices[device].events
        change, ns = np.zeros(events, np.int64), np.full(events, -1, np.int64)
        touched = np.zeros(events, np.bool_)
        for event, moment, sign, which in (
            (rows.alloc_event, rows.alloc_ns, 1, rows.alloc_event >= 0),
            (rows.free_event, rows.free_ns, -1, rows.free_event >= 0),
        ):
            np.add.at(change, event[which], sign * rows.bytes[which])
            ns[event[which]] = moment[which]
            touched[event[which]] = True
        at = np.flatnonzero(touched)
        return _from(self.devices[device].base_bytes, at, ns[at], change[at])

    def peak(self, device: int) -> Peak:
        """The most bytes that were counted at once: what was there before, plus the largest sum of changes.

        What was alive then is ``alive_at(device, peak.event)``.
        """
        return _highest(self.curve(device))

    def reserved_curve(self, device: int) -> Curve:
        """Bytes that the allocator held from the device, over time; empty if the file does not say."""
        base = self.devices[device].base_reserved_bytes
        changes = self.reservations.take(self.reservations.device == device)
        if base is None:
            nothing = np.zeros(0, np.int64)
            return Curve(nothing, nothing, nothing)
        return _from(base, changes.event, changes.ns, changes.bytes)

    def peak_reserved(self, device: int) -> Peak | None:
        """The most bytes held from the device at once; ``None`` if the file does not say."""
        curve = self.reserved_curve(device)
        return _highest(curve) if len(curve.event) else None

    def frames(self, row: int) -> tuple[Frame, ...]:
        """Call stack of an allocation, the innermost call first; empty if it was not recorded."""
        return self.stacks.of(int(self.rows.stack[row]))


def _from(base: int, event: I64, ns: I64, change: I64) -> Curve:
    """Points of a curve: the beginning, then each change."""
    start = np.array([-1])
    return Curve(
        np.concatenate([start, event]),
        np.concatenate([start, ns]),
        base + np.concatenate([np.zeros(1, np.int64), np.cumsum(change)]),
    )


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
_POINTS_INTO = {
    "device": "devices",
    "stack": "stacks",
    "pool": "pools",
    "name": "names",
    "module": "modules",
    "operator": "operators",
    "context": "contexts",
    "segment": "segments",
    "row": "rows",
}
"""Table of each column that is a number into one."""
_WORDS = ("names", "modules", "operators", "contexts", "range_names", "notes")


def save_timeline(timeline: AllocationTimeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline.

    Raises:
        OSError: The file cannot be written.
    """
    header = {
        "schema": SCHEMA_VERSION,
        "kind": KIND,
        "source": timeline.source,
        "devices": [asdict(device) for device in timeline.devices],
        "pools": timeline.pools,
        "frames": timeline.stacks.frames,
        "settings": dict(timeline.settings),
        "about": dict(timeline.about),
        **{name: getattr(timeline, name) for name in _WORDS},
    }
    arrays = {
        f"{table}.{name}": values for table in _TABLES for name, values in getattr(timeline, table).columns().items()
    }
    arrays |= {"stacks.frame": timeline.stacks.frame, "stacks.offset": timeline.stacks.offset}
    # as bytes: numpy would keep text at four bytes a letter
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez_compressed(file, header=text, **arrays)


def load_timeline(path: str | os.PathLike[str]) -> AllocationTimeline:
    """Read what ``save_timeline`` wrote.

    Raises:
        FileFormatError: The file is damaged, is something else, or has a newer schema.
        OSError: The file cannot be read.
    """
    return read_archive(path, _parse, "an allocation timeline")


def _parse(stored: Any) -> AllocationTimeline:
    header = json.loads(stored["header"].tobytes())
    check_header(header, KIND, SCHEMA_VERSION)
    parts: dict[str, Any] = {
        table: columns(
            **{name: stored[f"{table}.{name}"].astype(dtype) for name, (dtype, _) in columns.declared().items()}
        )
        for table, columns in _TABLES.items()
    }
    stacks = StackTable(
        frames=tuple(Frame(*frame) for frame in header["frames"]),
        frame=stored["stacks.frame"].astype(np.int32),
        offset=stored["stacks.offset"].astype(np.int64),
    )
    parts |= {name: tuple(header[name]) for name in _WORDS}
    timeline = AllocationTimeline(
        source=header["source"],
        devices=msgspec.convert(header["devices"], tuple[DeviceTotals, ...]),
        pools=tuple((int(first), int(second)) for first, second in header["pools"]),
        settings=header["settings"],
        about=header["about"],
        stacks=stacks,
        **parts,
    )
    _check(timeline)
    return timeline


def _check(timeline: AllocationTimeline) -> None:
    """Refuse tables that do not belong together."""
    timeline.stacks.check()
    sizes = {column: len(getattr(timeline, table)) for column, table in _POINTS_INTO.items()}
    for table in _TABLES:
        columns: Columns = getattr(timeline, table)
        if table == "ranges":
            sizes["name"] = len(timeline.range_names)
        columns.check({name: size for name, size in sizes.items() if name in columns.columns()})
    _check_events(timeline)


def _check_events(timeline: AllocationTimeline) -> None:
    """Refuse events beyond the end of their device's log."""
    rows = timeline.rows
    events = np.array([device.events for device in timeline.devices] or [0])
    if len(rows) and int(rows.device.min()) < 0:
        raise FileFormatError("a row has no device")
    for event in (rows.alloc_event, rows.free_event, rows.free_requested_event):
        if np.any(event >= events[rows.device]):
            raise FileFormatError("a row's event lies after the end")
