"""Rows and totals of one device, from its memory events in a trace.

An accelerator's allocator counts what it has given out: the first total in a trace is its level. On the CPU torch
counts only while a profiler runs, so its total lacks what is older and still has what was freed meanwhile. There the
level is what tbmem found alive when recording began; in a trace without such a list the total is all that is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST, AllocationRows, DeviceTotals, ReservationRows
from tbmem.model.trace_additions import OlderStorages
from tbmem.sources.events.pairing import Pairs, pair, pair_by_size, part_unequal
from tbmem.sources.trace.columns import Spans

CPU_TYPE = 0


class DeviceRows(NamedTuple):
    """What is known of one device."""

    rows: AllocationRows
    entry: I64
    """Number of the memory event that made each row; -1 if it was made before."""
    reservations: ReservationRows
    totals: DeviceTotals


class _Log(NamedTuple):
    """Events of one device in order of time."""

    entry: I64
    ns: I64
    bytes: I64
    address: I64
    allocated: I64
    reserved: I64


def rows_of_device(
    memory: Spans, which: I64, device: int, clock_zero: int, older: OlderStorages | None = None
) -> DeviceRows:
    """Rows and totals of a device.

    Args:
        memory: Memory events of all devices.
        which: Those of this one, in the order of the file.
        device: Its row in ``devices``.
        clock_zero: Unix time at which the trace's clock reads 0, in nanoseconds.
        older: Of the CPU: what was alive when recording began, if that is known.
    """
    order = np.argsort(memory["begin"][which], kind="stable")
    entry = which[order]
    log = _Log(
        entry,
        memory["begin"][entry] + clock_zero,
        *(memory[name][entry] for name in ("bytes", "address", "allocated", "reserved")),
    )
    pairs, unmatched = _pairs(log)
    rows, made_by = _rows(log, device, pairs)
    reported = _reported(log, int(memory["type"][entry[0]]), int(memory["index"][entry[0]]))
    if older is not None and reported.type == CPU_TYPE:
        unexplained = 0
        further = _older(log, device, rows, older)
        rows = AllocationRows.join([_as_found(_ended_by_reuse(log, rows), older), further])
        reported = _anchored(reported, rows)
    else:
        further = _unexplained(log, device) if reported.base_is_known else AllocationRows.of()
        unexplained = len(further)
        rows = AllocationRows.join([rows, further])
    totals = replace(
        reported,
        unlisted_bytes=reported.base_bytes - int(rows.bytes[rows.alloc_event == BEFORE].sum()),
        unmatched_frees=unmatched,
        repeated_allocs=int(pairs.repeated.sum()),
        unexplained_changes=unexplained,
        out_of_order=int((np.diff(memory["begin"][which]) < 0).sum()),
    )
    made_by = np.concatenate([made_by, np.full(len(further), -1)])
    return DeviceRows(rows, made_by, _reservations(log, device), totals)


def _pairs(log: _Log) -> tuple[Pairs, int]:
    """What belongs together, and how many frees are of an address at which nothing was open.

    Without addresses all events count as of one address for that number: it is what a replay by address finds.
    """
    opens, sizes = log.bytes > 0, np.abs(log.bytes)
    if not log.address.any():
        return pair_by_size(sizes, opens), int((~opens & ~np.append(False, opens[:-1])).sum())
    pairs = pair(log.address, opens)
    unmatched = int((~opens & (pairs.opened_by < 0)).sum())
    return part_unequal(pairs, sizes)[0], unmatched


def _unexplained(log: _Log, device: int) -> AllocationRows:
    """Rows for changes of the file's own total that no event explains: those of a thread that was not recorded.

    The total is the truth. More than the events say is an allocation of which nothing else is known; less is a free of
    something older.
    """
    change = np.diff(log.allocated, prepend=log.allocated[:1] - log.bytes[:1]) - log.bytes
    more, less = np.flatnonzero(change > 0), np.flatnonzero(change < 0)
    return AllocationRows.of(
        len(more) + len(less),
        bytes=np.abs(change[np.concatenate([more, less])]),
        device=device,
        alloc_event=np.concatenate([more, np.full(len(less), BEFORE)]),
        free_event=np.concatenate([np.full(len(more), LOST), less]),
        alloc_ns=np.concatenate([log.ns[more], np.full(len(less), -1)]),
        free_ns=np.concatenate([np.full(len(more), -1), log.ns[less]]),
    )


def _rows(log: _Log, device: int, pairs: Pairs) -> tuple[AllocationRows, I64]:
    """Rows of the events, and the event that made each."""
    opens = log.bytes > 0
    allocs, early = np.flatnonzero(opens), np.flatnonzero(~opens & (pairs.opened_by < 0))
    frees = pairs.closed_by[allocs]
    freed = frees >= 0
    last = np.append(log.ns, -1)
    size = np.concatenate([log.bytes[allocs], -log.bytes[early]])
    rows = AllocationRows.of(
        len(size),
        bytes=size,
        device=device,
        address=np.concatenate([log.address[allocs], log.address[early]]),
        alloc_event=np.concatenate([allocs, np.full(len(early), -1)]),
        free_event=np.concatenate([np.where(pairs.repeated[allocs], LOST, frees), early]),
        alloc_ns=np.concatenate([log.ns[allocs], np.full(len(early), -1)]),
        free_ns=np.concatenate([np.where(freed, last[frees], -1), log.ns[early]]),
    )
    made_by = np.concatenate([log.entry[allocs], np.full(len(early), -1)])
    return rows, made_by


def _older(log: _Log, device: int, rows: AllocationRows, older: OlderStorages) -> AllocationRows:
    """Rows of what is older than the recording and of which torch knows nothing."""
    known = rows.address[rows.alloc_event == BEFORE].astype(np.int64)
    rest = np.flatnonzero(~np.isin(older.address, known))
    address, freed_ns = older.address[rest], older.freed_ns[rest]
    freed = np.where(freed_ns >= 0, np.searchsorted(log.ns, freed_ns), len(log.ns))
    end = np.minimum(freed, _next_alloc(log, address, np.full(len(rest), -1)))
    ended = end < len(log.ns)
    return AllocationRows.of(
        len(rest),
        bytes=older.bytes[rest],
        device=device,
        address=address,
        alloc_event=BEFORE,
        free_event=np.where(ended, end, ALIVE),
        alloc_ns=-1,
        free_ns=np.where(ended, np.append(log.ns, -1)[np.minimum(end, len(log.ns))], -1),
    )


def _as_found(rows: AllocationRows, older: OlderStorages) -> AllocationRows:
    """With the sizes that were found: torch tells the free of an older storage with the size of an earlier one."""
    size = dict(zip(older.address.tolist(), older.bytes.tolist(), strict=True))
    before = np.flatnonzero(rows.alloc_event == BEFORE)
    found = rows.bytes.copy()
    found[before] = [size.get(int(rows.address[row]), int(rows.bytes[row])) for row in before.tolist()]
    return rows.replace(bytes=found)


def _ended_by_reuse(log: _Log, rows: AllocationRows) -> AllocationRows:
    """With an end of what was freed by a thread that was not recorded: its address was given out again."""
    lost = np.flatnonzero(rows.free_event == LOST)
    end = _next_alloc(log, rows.address[lost].astype(np.int64), rows.alloc_event[lost])
    lost, end = lost[end < len(log.ns)], end[end < len(log.ns)]
    free_event, free_ns = rows.free_event.copy(), rows.free_ns.copy()
    free_event[lost], free_ns[lost] = end, log.ns[end]
    return rows.replace(free_event=free_event, free_ns=free_ns)


def _next_alloc(log: _Log, address: I64, after: I64) -> I64:
    """The first event after another that allocates at an address; the number of events where there is none."""
    count = len(log.ns)
    allocs = np.flatnonzero(log.bytes > 0)
    known, which = np.unique(log.address[allocs], return_inverse=True)
    keys = np.sort(which.reshape(-1) * (count + 1) + allocs)
    place = np.minimum(np.searchsorted(known, address), max(len(known) - 1, 0))
    if not len(keys):
        return np.full(len(address), count)
    found = np.append(keys, -1)[np.searchsorted(keys, place * (count + 1) + after, "right")]
    fits = (known[place] == address) & (found // (count + 1) == place)
    return np.where(fits, found % (count + 1), count)


def _anchored(reported: DeviceTotals, rows: AllocationRows) -> DeviceTotals:
    """The level is what is known to be alive, not what torch has counted."""
    return replace(
        reported,
        base_bytes=int(rows.bytes[rows.alloc_event == BEFORE].sum()),
        base_is_known=True,
        allocated_bytes=int(rows.bytes[rows.free_event < 0].sum()),
        reported_peak_bytes=None,
    )


def _reservations(log: _Log, device: int) -> ReservationRows:
    """Changes of what the file reports as reserved."""
    changed = np.flatnonzero(np.diff(log.reserved, prepend=log.reserved[:1]) != 0)
    return ReservationRows.of(
        len(changed),
        device=device,
        event=changed,
        ns=log.ns[changed],
        bytes=log.reserved[changed] - log.reserved[changed - 1],
    )


def _reported(log: _Log, kind: int, index: int) -> DeviceTotals:
    """What the file reports; the totals of an event are those after it."""
    # a total that stays 0 while memory is given out is none
    reports = bool((log.allocated >= 0).all()) and bool(log.allocated.any() or not (log.bytes > 0).any())
    reserves = bool((log.reserved >= 0).all()) and kind != CPU_TYPE
    return DeviceTotals(
        name="cpu" if kind == CPU_TYPE else f"cuda:{index}",
        type=kind,
        index=index,
        measure="requested" if kind == CPU_TYPE else "rounded",
        events=len(log.ns),
        allocs=int((log.bytes > 0).sum()),
        frees=int((log.bytes <= 0).sum()),
        base_bytes=int(log.allocated[0] - log.bytes[0]) if reports else 0,
        base_is_known=reports,
        allocated_bytes=int(log.allocated[-1]) if reports else None,
        reported_peak_bytes=int(log.allocated.max()) if reports else None,
        reserved_bytes=int(log.reserved[-1]) if reserves else None,
        base_reserved_bytes=int(log.reserved[0]) if reserves else None,
    )
