"""Writes and reads an AllocationTimeline as ``*.tbmem.npz``: arrays and a JSON header, no pickles."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from tbmem.errors import FileFormatError
from tbmem.model.columns import Columns
from tbmem.model.npz_archive import check_header, read_archive
from tbmem.model.stacks import Frame, StackTable
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import (
    AllocationRows,
    BlockRows,
    DeviceTotals,
    MarkRows,
    RangeRows,
    ReservationRows,
    SegmentRows,
)

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
