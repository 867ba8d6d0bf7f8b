"""Recordings built by hand, and address books for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbmem.model.address_book import AddressBook, StorageNote
from tbmem.model.category import Category, Phase
from tbmem.model.stacks import StackBuilder
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, DeviceTotals

EVENT_NS = 1000
"""Events of a hand-built recording are a microsecond apart; event 0 happens at 1 000 000 ns."""
BEGIN_NS = 1_000_000


def ns(event: float) -> int:
    """Unix time of an event of a hand-built recording."""
    return int(BEGIN_NS + EVENT_NS * event)


def recording(
    *rows: dict[str, Any], source: str = "trace", device: dict[str, Any] | None = None, **parts: Any
) -> AllocationTimeline:
    """A recording of one device.

    Args:
        *rows: Columns of each allocation; ``begin`` and ``end`` are its events, ``phase`` and ``category`` enums,
            ``stack`` a tuple of ``(file, line, function)``, the innermost first, other words as they are.
        source: What it was read from.
        device: Fields of the device's totals.
        **parts: Other fields of the timeline.
    """
    stacks = StackBuilder()
    words: dict[str, dict[str, int]] = {"module": {}, "operator": {}, "name": {}}
    columns: dict[str, list[int]] = {name: [] for name in AllocationRows.declared()}
    for row in rows:
        begin, end = row.get("begin", -1), row.get("end", -1)
        given = {
            "alloc_event": begin,
            "free_event": end,
            "alloc_ns": ns(begin) if begin >= 0 else -1,
            "free_ns": ns(end) if end >= 0 else -1,
            **{key: value for key, value in row.items() if key in columns and key not in (*words, "stack")},
        }
        for table, numbers in words.items():
            if table in row:
                given[table] = numbers.setdefault(row[table], len(numbers))
        if "stack" in row:
            given["stack"] = stacks.stack(stacks.frame(*frame) for frame in row["stack"])
        for name, (_, fill) in AllocationRows.declared().items():
            columns[name].append(given.get(name, fill))
    table = AllocationRows.of(len(rows), **{name: np.array(values) for name, values in columns.items()})
    events = [row.get(key, -1) for row in rows for key in ("begin", "end")]
    base = int(table.bytes[table.alloc_event < 0].sum())
    totals = {"name": "cpu", "type": 0, "index": -1, "events": max([*events, -1]) + 1, "base_bytes": base}
    return AllocationTimeline(
        source=source,
        rows=table,
        devices=(DeviceTotals(**{**totals, **(device or {})}),),
        stacks=stacks.table(),
        modules=tuple(words["module"]),
        operators=tuple(words["operator"]),
        names=tuple(words["name"]),
        **parts,
    )


def book(*notes: tuple[float, int, int, Category, str], device: str = "cpu") -> AddressBook:
    """An address book; a note is the event it was taken after, an address, bytes, category and name."""
    return AddressBook.from_notes(
        StorageNote(ns(event), device, address, size, category, name) for event, address, size, category, name in notes
    )


def training_step(step: int, first_event: int, kept: bool = False) -> list[dict[str, Any]]:
    """Allocations of one step: an input, an activation, a gradient and a temporary; events 0 to 9 of the step.

    Args:
        step: Its number.
        first_event: Where it begins.
        kept: Whether the activation is never freed.
    """
    at = first_event
    end = -1 if kept else at + 6
    line = (("/home/me/train.py", 10, "loss_of"),)
    return [
        {"bytes": 64, "address": 100, "begin": at, "end": at + 7, "step": step, "phase": Phase.OTHER},
        {"bytes": 1000, "address": 200 + at, "begin": at + 1, "end": end, "step": step, "phase": Phase.FORWARD}
        | {"module": "Net_0.Linear_0", "operator": "aten::addmm", "stack": line},
        {"bytes": 16, "address": 300, "begin": at + 2, "end": at + 3, "step": step, "phase": Phase.FORWARD},
        {"bytes": 400, "address": 400, "begin": at + 4, "end": at + 9, "step": step, "phase": Phase.BACKWARD},
        {"bytes": 32, "address": 500, "begin": at + 5, "end": at + 8, "step": step, "phase": Phase.BACKWARD},
    ]
