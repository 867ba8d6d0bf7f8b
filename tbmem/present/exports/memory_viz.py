"""Exports any recording as a CUDA memory snapshot for pytorch.org/memory_viz.

The page draws the events of ``device_traces`` and the blocks of ``segments``. Without segments (a trace, the CPU), each
allocation that is alive at the end becomes a segment.
"""

from __future__ import annotations

import pickle  # nosec B403  # only writes
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from tbmem.analysis.recordings.result import Analysis
from tbmem.model.files import SNAPSHOT_PROTOCOL
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockState, MarkKind, ReservationKind, SegmentKind

_STATES = {
    BlockState.INACTIVE: "inactive",
    BlockState.ALLOCATED: "active_allocated",
    BlockState.PENDING_FREE: "active_pending_free",
}
_RESERVATIONS = {
    ReservationKind.ALLOC: "segment_alloc",
    ReservationKind.FREE: "segment_free",
    ReservationKind.MAP: "segment_map",
    ReservationKind.UNMAP: "segment_unmap",
}
_SIZES = {
    "total_size": "bytes",
    "allocated_size": "allocated_bytes",
    "active_size": "active_bytes",
    "requested_size": "requested_bytes",
}
"""Sizes of a segment, and their columns."""
_UNKNOWN = "unknown"
_EARLIER = [{"filename": "", "line": 0, "name": "allocated before the recording; nothing more is known"}]
Entry = dict[str, Any]


def memory_viz_pickle(analysis: Analysis) -> bytes:
    """The pickle of what torch's own ``_snapshot()`` returns; events of a trace have categories."""
    timeline = analysis.timeline
    # torch's own indices, with the CPU after the others
    last = max([device.index for device in timeline.devices], default=-1)
    indices = [device.index if device.index >= 0 else last + 1 for device in timeline.devices]
    writer = _Writer(analysis)
    traces: list[list[Entry]] = [[] for _ in range(max(indices, default=-1) + 1)]
    segments: list[Entry] = []
    for number, index in enumerate(indices):
        traces[index] = writer.events(number)
        segments += writer.segments(number, index)
    snapshot = {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": dict(timeline.settings),
        "external_annotations": _annotations(timeline, indices),
    }
    return pickle.dumps(snapshot, protocol=SNAPSHOT_PROTOCOL)


class _Writer:
    """Makes entries of rows; equal stacks share one list of frames."""

    def __init__(self, analysis: Analysis) -> None:
        self._timeline = analysis.timeline
        self._labels = analysis.labels
        self._frames: dict[int, list[Entry]] = {-1: []}
        self._with_categories = self._timeline.source != "snapshot"

    def frames(self, stack: int) -> list[Entry]:
        if stack not in self._frames:
            self._frames[stack] = [
                {"filename": frame.file, "line": frame.line, "name": frame.function}
                for frame in self._timeline.stacks.of(stack)
            ]
        return self._frames[stack]

    def _entry(self, action: str, address: int, table: Any, position: int, ns: int) -> Entry:
        """An entry for a row of a table with the columns ``bytes``, ``stream`` and ``stack``."""
        return {
            "action": action,
            "addr": address,
            "size": abs(int(table.bytes[position])),
            "stream": int(table.stream[position]),
            "frames": self.frames(int(table.stack[position])),
            **_time(ns),
        }

    def events(self, device: int) -> list[Entry]:
        """Entries of a device in the order of its events."""
        by_event: list[tuple[int, int, Entry]] = []
        for row in np.flatnonzero(self._timeline.rows.device == device).tolist():
            by_event += self._of_row(row)
        by_event += self._reservations(device)
        by_event += self._ooms(device)
        by_event.sort(key=lambda entry: entry[:2])
        head = self._head(device) if self._with_categories else []
        return [*head, *(entry for _, _, entry in by_event)]

    def _head(self, device: int) -> list[Entry]:
        """An entry of unknown category, which the page requires, and the bytes without a row."""
        entry = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": [], "category": _UNKNOWN}
        size = self._timeline.devices[device].unlisted_bytes
        earlier = {**entry, "action": "alloc", "addr": 1, "size": size, "frames": _EARLIER}
        return [entry, earlier] if size > 0 else [entry]

    def _of_row(self, row: int) -> list[tuple[int, int, Entry]]:
        rows, address = self._timeline.rows, self._address(row)
        columns = (rows.alloc_event, rows.free_event, rows.free_requested_event)
        alloc, free, free_requested = (int(column[row]) for column in columns)
        entries: list[tuple[int, int, Entry]] = []
        if alloc >= 0 or self._with_categories:
            begin = self._entry("alloc", address, rows, row, rows.alloc_ns[row])
            if self._with_categories:
                begin["category"] = self._labels.names[self._labels.code[row]].lower()
            entries.append((alloc, 0, begin))
        ns = rows.free_ns[row]
        if free >= 0 or free_requested >= 0:
            requested = free_requested if free_requested >= 0 else free
            entries.append((requested, -2, self._entry("free_requested", address, rows, row, ns)))
        if free >= 0:
            entries.append((free, -1, self._entry("free_completed", address, rows, row, ns)))
        return entries

    def _address(self, row: int) -> int:
        """An address, made up for an allocation without one: the page identifies allocations by address."""
        return int(self._timeline.rows.address[row]) or (row + 1) << 44

    def _reservations(self, device: int) -> Iterator[tuple[int, int, Entry]]:
        table = self._timeline.reservations
        for position in np.flatnonzero(table.device == device).tolist():
            action = _RESERVATIONS.get(ReservationKind(int(table.kind[position])))
            if action is not None:
                entry = self._entry(action, int(table.address[position]), table, position, table.ns[position])
                yield int(table.event[position]), 0, entry

    def _ooms(self, device: int) -> Iterator[tuple[int, int, Entry]]:
        marks = self._timeline.marks
        for position in np.flatnonzero((marks.device == device) & (marks.kind == MarkKind.OOM)).tolist():
            entry = {
                "action": "oom",
                "addr": 0,
                "device_free": max(int(marks.device_free_bytes[position]), 0),
                "size": int(marks.bytes[position]),
                "stream": 0,
                "frames": self.frames(int(marks.stack[position])),
            }
            yield int(marks.event[position]), 0, {**entry, **_time(marks.ns[position])}

    def segments(self, device: int, index: int) -> list[Entry]:
        """Segments of a device with their blocks."""
        table, blocks = self._timeline.segments, self._timeline.blocks
        on_device = np.flatnonzero(table.device == device)
        if not len(on_device):
            return [self._segment_of_row(row, index) for row in self._timeline.alive_at_end(device).tolist()]
        blocks_by_segment: dict[int, list[Entry]] = defaultdict(list)
        for position in np.flatnonzero(np.isin(blocks.segment, on_device)).tolist():
            blocks_by_segment[int(blocks.segment[position])].append(self._block(position))
        return [
            {
                "device": index,
                "address": int(table.address[position]),
                **{name: int(getattr(table, column)[position]) for name, column in _SIZES.items()},
                "stream": int(table.stream[position]),
                "segment_type": "small" if table.kind[position] == SegmentKind.SMALL else "large",
                "segment_pool_id": self._timeline.pools[table.pool[position]] if table.pool[position] >= 0 else (0, 0),
                "is_expandable": bool(table.expandable[position]),
                "frames": self.frames(int(table.stack[position])),
                "blocks": blocks_by_segment[position],
            }
            for position in on_device.tolist()
        ]

    def _block(self, position: int) -> Entry:
        blocks = self._timeline.blocks
        return {
            "address": int(blocks.address[position]),
            "size": int(blocks.bytes[position]),
            "requested_size": int(blocks.requested_bytes[position]),
            "state": _STATES[BlockState(int(blocks.state[position]))],
            "frames": self.frames(int(blocks.stack[position])),
        }

    def _segment_of_row(self, row: int, index: int) -> Entry:
        """An allocation as a segment of one block."""
        rows, address = self._timeline.rows, self._address(row)
        size, frames = int(rows.bytes[row]), self.frames(int(rows.stack[row]))
        block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
        return {
            "device": index,
            "address": address,
            **dict.fromkeys(_SIZES, size),
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [{**block, "frames": frames}],
        }


def _time(ns: int) -> Entry:
    return {"time_us": int(ns) // 1000} if ns >= 0 else {}


def _annotations(timeline: AllocationTimeline, indices: list[int]) -> list[Entry]:
    """Ranges as pairs of START and END entries, in order of time."""
    entries = []
    ranges = timeline.ranges
    for position, device in enumerate(ranges.device.tolist()):
        index = indices[device] if device >= 0 else indices[0] if indices else 0
        base = {"name": timeline.range_names[ranges.name[position]], "device": index}
        for stage, ns in (("START", ranges.begin_ns[position]), ("END", ranges.end_ns[position])):
            if stage == "START" or ns >= 0:
                entries.append({**base, "stage": stage, "time_us": int(ns) // 1000})
    return sorted(entries, key=lambda entry: int(entry["time_us"]))
