"""Exports a snapshot for pytorch.org/memory_viz, whatever the recording was read from.

The page draws what the events of ``device_traces`` and the blocks of ``segments`` say. Where there are no segments (a
trace, the CPU), each allocation that is alive at the end gets one of its own.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
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
_UNKNOWN = "unknown"
_EARLIER = [{"filename": "", "line": 0, "name": "allocated before the recording; nothing more is known"}]
Entry = dict[str, Any]


def memory_viz_pickle(analysis: Analysis) -> bytes:
    """The snapshot as a pickle."""
    return pickle.dumps(memory_viz_snapshot(analysis), protocol=SNAPSHOT_PROTOCOL)


def memory_viz_snapshot(analysis: Analysis) -> dict[str, Any]:
    """The snapshot as torch's own ``_snapshot()`` returns it; events of a trace have categories."""
    timeline = analysis.timeline
    places = _places(timeline)
    writer = _Writer(analysis)
    traces: list[list[Entry]] = [[] for _ in range(max(places, default=-1) + 1)]
    segments: list[Entry] = []
    for number, place in enumerate(places):
        traces[place] = writer.events(number)
        segments += writer.segments(number, place)
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": dict(timeline.settings),
        "external_annotations": _annotations(timeline, places),
    }


def _places(timeline: AllocationTimeline) -> list[int]:
    """Number of each device on the page: torch's index, the CPU after the others."""
    last = max([device.index for device in timeline.devices], default=-1)
    return [device.index if device.index >= 0 else last + 1 for device in timeline.devices]


class _Writer:
    """Turns rows into entries; equal stacks are one object."""

    def __init__(self, analysis: Analysis) -> None:
        self._timeline = analysis.timeline
        self._labels = analysis.labels
        self._frames: dict[int, list[Entry]] = {-1: []}
        self._with_categories = self._timeline.source != "snapshot"

    def frames(self, stack: int) -> list[Entry]:
        found = self._frames.get(stack)
        if found is None:
            found = self._frames[stack] = [
                {"filename": frame.file, "line": frame.line, "name": frame.function}
                for frame in self._timeline.stacks.of(stack)
            ]
        return found

    def events(self, device: int) -> list[Entry]:
        """Entries of a device in order of its log."""
        by_event: list[tuple[int, int, Entry]] = []
        rows = self._timeline.rows
        for row in np.flatnonzero(rows.device == device).tolist():
            by_event += self._of_row(row)
        by_event += self._reservations(device)
        by_event += self._marks(device)
        by_event.sort(key=lambda entry: entry[:2])
        head = self._head(device) if self._with_categories else []
        return [*head, *(entry for _, _, entry in by_event)]

    def _head(self, device: int) -> list[Entry]:
        """What a page with categories needs: one entry that is unknown; and bytes of which there is no row."""
        entry = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": [], "category": _UNKNOWN}
        size = self._timeline.devices[device].unlisted_bytes
        if size <= 0:
            return [entry]
        alloc = {"action": "alloc", "addr": 1, "size": size, "frames": _EARLIER, "category": _UNKNOWN}
        return [entry, {**entry, **alloc}]

    def _of_row(self, row: int) -> list[tuple[int, int, Entry]]:
        rows = self._timeline.rows
        alloc, free, asked = (
            int(column[row]) for column in (rows.alloc_event, rows.free_event, rows.free_requested_event)
        )
        base = {
            "addr": int(rows.address[row]) or _made_up(row),
            "size": int(rows.bytes[row]),
            "stream": int(rows.stream[row]),
            "frames": self.frames(int(rows.stack[row])),
        }
        found: list[tuple[int, int, Entry]] = []
        if alloc >= 0 or self._with_categories:
            begin = {"action": "alloc", **base, **_time(int(rows.alloc_ns[row]))}
            if self._with_categories:
                begin["category"] = self._labels.names[self._labels.code[row]].lower()
            found.append((alloc, 0, begin))
        if free >= 0 or asked >= 0:
            when = _time(int(rows.free_ns[row]))
            found.append((asked if asked >= 0 else free, -2, {"action": "free_requested", **base, **when}))
            if free >= 0:
                found.append((free, -1, {"action": "free_completed", **base, **when}))
        return found

    def _reservations(self, device: int) -> list[tuple[int, int, Entry]]:
        table = self._timeline.reservations
        found = []
        for at in np.flatnonzero(table.device == device).tolist():
            action = _RESERVATIONS.get(ReservationKind(int(table.kind[at])))
            if action is not None:
                entry = {
                    "action": action,
                    "addr": int(table.address[at]),
                    "size": abs(int(table.bytes[at])),
                    "stream": int(table.stream[at]),
                    "frames": self.frames(int(table.stack[at])),
                    **_time(int(table.ns[at])),
                }
                found.append((int(table.event[at]), 0, entry))
        return found

    def _marks(self, device: int) -> list[tuple[int, int, Entry]]:
        marks = self._timeline.marks
        found = []
        for at in np.flatnonzero((marks.device == device) & (marks.kind == MarkKind.OOM)).tolist():
            entry = {
                "action": "oom",
                "addr": 0,
                "device_free": max(int(marks.device_free_bytes[at]), 0),
                "size": int(marks.bytes[at]),
                "stream": 0,
                "frames": self.frames(int(marks.stack[at])),
                **_time(int(marks.ns[at])),
            }
            found.append((int(marks.event[at]), 0, entry))
        return found

    def segments(self, device: int, place: int) -> list[Entry]:
        """Segments of a device with their blocks."""
        table, blocks = self._timeline.segments, self._timeline.blocks
        own = np.flatnonzero(table.device == device)
        if not len(own):
            return [self._segment_of_row(row, place) for row in self._timeline.alive_at_end(device).tolist()]
        inside: dict[int, list[Entry]] = defaultdict(list)
        for at in np.flatnonzero(np.isin(blocks.segment, own)).tolist():
            inside[int(blocks.segment[at])].append(self._block(at))
        return [
            {
                "device": place,
                "address": int(table.address[at]),
                "total_size": int(table.bytes[at]),
                "allocated_size": int(table.allocated_bytes[at]),
                "active_size": int(table.active_bytes[at]),
                "requested_size": int(table.requested_bytes[at]),
                "stream": int(table.stream[at]),
                "segment_type": "small" if table.kind[at] == SegmentKind.SMALL else "large",
                "segment_pool_id": self._timeline.pools[table.pool[at]] if table.pool[at] >= 0 else (0, 0),
                "is_expandable": bool(table.expandable[at]),
                "frames": self.frames(int(table.stack[at])),
                "blocks": inside[at],
            }
            for at in own.tolist()
        ]

    def _block(self, at: int) -> Entry:
        blocks = self._timeline.blocks
        return {
            "address": int(blocks.address[at]),
            "size": int(blocks.bytes[at]),
            "requested_size": int(blocks.requested_bytes[at]),
            "state": _STATES[BlockState(int(blocks.state[at]))],
            "frames": self.frames(int(blocks.stack[at])),
        }

    def _segment_of_row(self, row: int, place: int) -> Entry:
        rows = self._timeline.rows
        size, address = int(rows.bytes[row]), int(rows.address[row]) or _made_up(row)
        block = {
            "address": address,
            "size": size,
            "requested_size": size,
            "state": "active_allocated",
            "frames": self.frames(int(rows.stack[row])),
        }
        return {
            "device": place,
            "address": address,
            **dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), size),
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [block],
        }


def _made_up(row: int) -> int:
    """An address for an allocation of which the file gives none: the page tells allocations apart by it."""
    return (row + 1) << 44


def _time(ns: int) -> Entry:
    return {"time_us": ns // 1000} if ns >= 0 else {}


def _annotations(timeline: AllocationTimeline, places: list[int]) -> list[Entry]:
    """Ranges as pairs of a beginning and an end, in order of time."""
    found = []
    ranges = timeline.ranges
    for at in range(len(ranges)):
        device = int(ranges.device[at])
        base = {
            "name": timeline.range_names[ranges.name[at]],
            "device": places[device] if device >= 0 else places[0] if places else 0,
        }
        found.append({**base, "stage": "START", "time_us": int(ranges.begin_ns[at]) // 1000})
        if ranges.end_ns[at] >= 0:
            found.append({**base, "stage": "END", "time_us": int(ranges.end_ns[at]) // 1000})
    return sorted(found, key=lambda entry: int(entry["time_us"]))
