"""Checks whether the tables of an AllocationTimeline fit together, so that whoever computes with them need not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import IntEnum

import numpy as np

from tbmem.errors import FileFormatError
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I64, Columns
from tbmem.model.json_values import MOST
from tbmem.model.stacks import StackTable
from tbmem.model.timeline_tables import BlockState, DeviceTotals, MarkKind, RangeKind, ReservationKind, SegmentKind

_MOST_EVENTS = 1 << 27
"""Limit of a device's events: 2 GB of columns, a snapshot of several times that size."""
_LAST_NS = 1 << 62  # in the year 2116
_ADDRESSES = -(1 << 63), (1 << 63) - 1 - MOST
"""The last one is so low that the end of what lies there takes 64 bits as well."""
_MOST_IN_ALL = 1 << 62
"""Limit of all bytes ever allocated, whose sum is taken in 64 bits."""
_KINDS: Mapping[str, type[IntEnum]] = {
    **{"rows.phase": Phase, "rows.category": Category, "rows.basis": Basis, "segments.kind": SegmentKind},
    **{"blocks.state": BlockState, "reservations.kind": ReservationKind, "marks.kind": MarkKind},
    **{"ranges.kind": RangeKind},
}


def check_tables(
    devices: Sequence[DeviceTotals], stacks: StackTable, tables: Mapping[str, Columns], lengths: Mapping[str, int]
) -> None:
    """Raise FileFormatError for values that no recording has, and for an index that is outside of its table.

    Args:
        devices: Totals of each device.
        stacks: Call stacks.
        tables: Tables of columns by their names in the timeline.
        lengths: Length of each table that a column may index, by its name.
    """
    stacks.check()
    for device in devices:
        _check_device(device)
    events = np.array([device.events for device in devices] or [0])
    for name, table in tables.items():
        # a column is named after the table that it indexes
        of = {column: f"{column.removeprefix('forward_')}s" for column in table.declared()}
        if name == "ranges":
            of["name"] = "range_names"
        table.check({column: lengths[indexed] for column, indexed in of.items() if indexed in lengths})
        _check_values(name, table)
        if name == "ranges" and (table.columns()["name"] < 0).any():
            raise FileFormatError("a range has no name")
        _check_events(name, table, events)


def _check_device(device: DeviceTotals) -> None:
    for each in fields(device):
        value = getattr(device, each.name)
        if isinstance(value, int) and abs(value) > MOST:
            raise FileFormatError(f"{each.name} of a device is out of range")
    if not 0 <= device.events <= _MOST_EVENTS:
        raise FileFormatError(f"a device has {device.events} events")


def _check_values(name: str, table: Columns) -> None:
    """Check each column against what its name says it holds."""
    for column, values in table.columns().items():
        kinds = _KINDS.get(f"{name}.{column}")
        if kinds is not None:
            least, most = int(min(kinds)), int(max(kinds))
        elif column.endswith("_ns") or column == "ns":
            least, most = -1, _LAST_NS
        elif column.endswith("bytes"):
            least, most = -MOST if name in ("reservations", "marks") else -1, MOST
        elif column == "step":
            least, most = -1, MOST
        elif column == "address":
            least, most = _ADDRESSES
        else:
            continue
        if len(values) and not least <= int(values.min()) <= int(values.max()) <= most:
            raise FileFormatError(f"{column} of one of its {name} is out of range")
        if column.endswith("bytes") and float(np.abs(values).sum(dtype=np.float64)) > _MOST_IN_ALL:
            raise FileFormatError(f"{column} of all its {name} are out of range")


def _check_events(name: str, table: Columns, events: I64) -> None:
    columns = table.columns()
    device = columns.get("device")
    if device is None or name == "ranges" or not len(device):
        return
    if int(device.min()) < 0:
        raise FileFormatError(f"one of its {name} has no device")
    for column, values in columns.items():
        if (column == "event" or column.endswith("_event")) and np.any((values < -2) | (values >= events[device])):
            raise FileFormatError(f"{column} of one of its {name} lies after the end")
