"""Memory by operator: calls, sizes and counts, of the operator itself and with what it calls.

*Self* is what happened while the operator itself was the innermost one; the other figures count what it called as
well, once for each call around it. These are the columns of the profiler's old memory view.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I32, I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import OperatorCalls


class OperatorTable(NamedTuple):
    """One entry per operator; what it calls is in the columns that do not begin with ``self``."""

    name: tuple[str, ...]
    calls: I64 | None
    """``None`` where the recording has no calls, as the next three."""
    increase: I64 | None
    """Bytes allocated less bytes freed."""
    allocations: I64 | None
    allocated: I64 | None
    """Bytes."""
    self_increase: I64
    self_allocations: I64
    self_allocated: I64


def operator_table(
    found: OperatorCalls, device: int, begin_ns: int | None = None, end_ns: int | None = None
) -> OperatorTable:
    """Figures of each operator that changed the memory of a device, between two Unix times if they are given."""
    changes, calls = found.changes, found.calls
    counts = changes.device == device
    running = np.ones(len(calls), np.bool_)
    if begin_ns is not None and end_ns is not None:
        counts &= (changes.ns >= begin_ns) & (changes.ns <= end_ns)
        running = (calls.end_ns >= begin_ns) & (calls.begin_ns <= end_ns)
    own = changes.take(np.flatnonzero(counts))
    size = len(found.names)
    alone = _by_name(own.bytes, np.append(calls.name, -1)[own.call], size)
    whole = _with_callees(found, own.thread, own.ns, own.bytes, size)
    number = np.bincount(calls.name[running], minlength=size)
    kept = np.flatnonzero((whole != 0).any(axis=0) | (alone != 0).any(axis=0))
    return OperatorTable(tuple(found.names[at] for at in kept.tolist()), number[kept], *whole[:, kept], *alone[:, kept])


def _by_name(size: I64, name: I64, names: int) -> I64:
    """Increase, allocations and allocated bytes by name; -1 is nobody's."""
    own = name >= 0
    rises = own & (size > 0)
    table = np.zeros((3, names), np.int64)
    np.add.at(table[0], name[own], size[own])
    np.add.at(table[1], name[rises], 1)
    np.add.at(table[2], name[rises], size[rises])
    return table


def _with_callees(found: OperatorCalls, thread: I32, ns: I64, size: I64, names: int) -> I64:
    """The same of all changes between the beginning and the end of each call, in its thread."""
    table = np.zeros((3, names), np.int64)
    calls = found.calls
    for one in np.unique(thread).tolist():
        own = np.flatnonzero(thread == one)
        own = own[np.argsort(ns[own], kind="stable")]
        of_thread = np.flatnonzero(calls.thread == one)
        first = np.searchsorted(ns[own], calls.begin_ns[of_thread], "left")
        last = np.searchsorted(ns[own], calls.end_ns[of_thread], "right")
        name = calls.name[of_thread]
        for place, values in enumerate((size[own], (size[own] > 0).astype(np.int64), np.maximum(size[own], 0))):
            until = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
            np.add.at(table[place], name, until[last] - until[first])
    return table


def table_of_rows(timeline: AllocationTimeline, which: Bools, freed: Bools) -> OperatorTable:
    """What rows alone tell: each allocation (``which``) and free (``freed``) is its innermost operator's own."""
    rows, size = timeline.rows, len(timeline.operators)
    alone = _by_name(rows.bytes[which], rows.operator[which].astype(np.int64), size)
    own = freed & (rows.operator >= 0)
    np.subtract.at(alone[0], rows.operator[own], rows.bytes[own])
    kept = np.flatnonzero((alone != 0).any(axis=0))
    names = tuple(timeline.operators[at] for at in kept.tolist())
    return OperatorTable(names, None, None, None, None, *alone[:, kept])
