"""An AllocationTimeline goes in, a ``*.tbmem.npz`` file comes out, and back: arrays and a JSON header, no pickles."""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from tbmem.errors import FileFormatError
from tbmem.model.columns import Columns
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
    place = Path(path)
    data = place.read_bytes()
    try:
        return _parse(data)
    except FileFormatError as error:
        raise FileFormatError(f"{place}: {error}") from error
    except Exception as error:
        # numpy and zipfile raise a dozen kinds of errors on damaged files
        why = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{place}: not an allocation timeline of tbmem, or a damaged one ({why})") from error


def _parse(data: bytes) -> AllocationTimeline:
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        header = json.loads(stored["header"].tobytes())
        kind, schema = header["kind"], int(header["schema"])
        if kind != KIND or schema > SCHEMA_VERSION:
            raise FileFormatError(f"holds {kind} of schema {schema}, this tbmem reads {KIND} up to {SCHEMA_VERSION}")
        parts: dict[str, Any] = {
            table: columns(**{name: stored[f"{table}.{name}"].astype(dtype) for name, dtype in _types(columns)})
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
        devices=tuple(_device(values) for values in header["devices"]),
        pools=tuple((int(first), int(second)) for first, second in header["pools"]),
        settings=header["settings"],
        about=header["about"],
        stacks=stacks,
        **parts,
    )
    _check(timeline)
    return timeline


def _types(columns: type[Columns]) -> list[tuple[str, type[np.generic]]]:
    return [(name, dtype) for name, (dtype, _) in columns.declared().items()]


def _device(values: dict[str, Any]) -> DeviceTotals:
    """What a later tbmem of the same schema adds is passed over."""
    known = {one.name for one in fields(DeviceTotals)}
    return DeviceTotals(**{name: value for name, value in values.items() if name in known})


def _check(timeline: AllocationTimeline) -> None:
    """Refuse tables that do not belong together."""
    device, stack = len(timeline.devices), len(timeline.stacks)
    timeline.stacks.check()
    timeline.rows.check(
        {
            "device": device,
            "stack": stack,
            "pool": len(timeline.pools),
            "name": len(timeline.names),
            "module": len(timeline.modules),
            "operator": len(timeline.operators),
            "context": len(timeline.contexts),
        }
    )
    timeline.segments.check({"device": device, "stack": stack, "pool": len(timeline.pools)})
    timeline.blocks.check({"segment": len(timeline.segments), "row": len(timeline.rows), "stack": stack})
    timeline.reservations.check({"device": device, "stack": stack})
    timeline.marks.check({"device": device, "stack": stack})
    timeline.ranges.check({"device": device, "name": len(timeline.range_names)})
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
