"""Memory by operator: calls, sizes and counts, with and without callees.

*Self* counts changes while the operator was the innermost one; the other figures include its callees, once for each
enclosing call. These are the columns of torch-tb-profiler's memory view.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import CallRows, ChangeRows, OperatorCalls


class OperatorTable(NamedTuple):
    """One entry per operator; columns that do not begin with ``self`` include callees."""

    name: tuple[str, ...]
    calls: I64 | None
    """``None`` where the recording has no calls, as the next three."""
    increase: I64 | None
    """Bytes allocated less bytes freed."""
    allocations: I64 | None
    allocated: I64 | None
    self_increase: I64
    self_allocations: I64
    self_allocated: I64


def operator_table(
    recorded: OperatorCalls, device: int, begin_ns: int | None = None, end_ns: int | None = None
) -> OperatorTable:
    """Figures of each operator that changed the memory of a device, between two Unix times if they are given."""
    changes, calls = recorded.changes, recorded.calls
    selected, running = changes.device == device, np.ones(len(calls), np.bool_)
    if begin_ns is not None and end_ns is not None:
        selected &= (changes.ns >= begin_ns) & (changes.ns <= end_ns)
        running = (calls.end_ns >= begin_ns) & (calls.begin_ns <= end_ns)
    changes = changes.take(selected)
    size = len(recorded.names)
    without = _by_name(changes.bytes, np.append(calls.name, -1)[changes.call], size)
    including = _with_callees(calls, changes, size)
    count = np.bincount(calls.name[running], minlength=size)
    filled = np.flatnonzero((including != 0).any(axis=0) | (without != 0).any(axis=0))
    names = tuple(recorded.names[index] for index in filled.tolist())
    return OperatorTable(names, count[filled], *including[:, filled], *without[:, filled])


def _by_name(size: I64, name: I64, names: int) -> I64:
    """Increase, allocations and allocated bytes by name; -1 for no operator."""
    named = name >= 0
    allocated = named & (size > 0)
    table = np.zeros((3, names), np.int64)
    np.add.at(table[0], name[named], size[named])
    np.add.at(table[1], name[allocated], 1)
    np.add.at(table[2], name[allocated], size[allocated])
    return table


def _with_callees(calls: CallRows, changes: ChangeRows, names: int) -> I64:
    """The same of all changes between the beginning and the end of each call, in its thread."""
    table = np.zeros((3, names), np.int64)
    for number in np.unique(changes.thread).tolist():
        of_thread, called = changes.take(changes.thread == number), calls.take(calls.thread == number)
        order = np.argsort(of_thread.ns, kind="stable")
        ns, size = of_thread.ns[order], of_thread.bytes[order]
        first = np.searchsorted(ns, called.begin_ns, "left")
        last = np.searchsorted(ns, called.end_ns, "right")
        for column, values in enumerate((size, size > 0, np.maximum(size, 0))):
            total = np.append(0, np.cumsum(values))
            np.add.at(table[column], called.name, total[last] - total[first])
    return table


def table_of_rows(timeline: AllocationTimeline, allocated: Bools, freed: Bools) -> OperatorTable:
    """Figures from rows alone, where each allocation and free is attributed to its innermost operator."""
    rows, size = timeline.rows, len(timeline.operators)
    without = _by_name(rows.bytes[allocated], rows.operator[allocated].astype(np.int64), size)
    freed = freed & (rows.operator >= 0)
    np.subtract.at(without[0], rows.operator[freed], rows.bytes[freed])
    filled = np.flatnonzero((without != 0).any(axis=0))
    names = tuple(timeline.operators[index] for index in filled.tolist())
    return OperatorTable(names, None, None, None, None, *without[:, filled])
