"""Allocations and totals of one device, from its memory events in a trace.

An accelerator's totals count all allocated memory. On the CPU torch counts only while a profiler runs: its total lacks
older memory, and still has what was freed meanwhile. There the level is what tbmem found alive when recording began;
in a trace without such a list it is torch's total.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST, AllocationRows, DeviceTotals, ReservationRows
from tbmem.model.trace_additions import OlderStorages
from tbmem.sources.events.pairing import Pairs, pair, pair_by_size, separate_unequal
from tbmem.sources.trace.columns import Spans

CPU_TYPE = 0


class DeviceRows(NamedTuple):
    """Allocations of one device."""

    rows: AllocationRows
    entry: I64  # memory event of each row; -1 if allocated before the recording
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
    memory: Spans, entries: I64, device: int, clock_zero: int, older: OlderStorages | None = None
) -> DeviceRows:
    """Rows and totals of a device from its memory events.

    ``clock_zero`` is the Unix time of the trace's clock at 0 in nanoseconds, ``older`` has the CPU's earlier storages.
    """
    entry = entries[np.argsort(memory["begin"][entries], kind="stable")]
    counted = (memory[name][entry] for name in ("bytes", "address", "allocated", "reserved"))
    log = _Log(entry, memory["begin"][entry] + clock_zero, *counted)
    pairs, unmatched = _pairs(log)
    rows, row_entry = _rows(log, device, pairs)
    totals = _reported(log, int(memory["type"][entry[0]]), int(memory["index"][entry[0]]))
    if older is not None and totals.type == CPU_TYPE:
        added = _older(log, device, rows, older)
        rows = AllocationRows.join([_with_known_sizes(_ended_by_reuse(log, rows), older), added])
        base, alive = (int(rows.bytes[chosen].sum()) for chosen in (rows.alloc_event == BEFORE, rows.free_event < 0))
        totals = replace(totals, base_bytes=base, base_is_known=True, allocated_bytes=alive, reported_peak_bytes=None)
    else:
        added = _unexplained(log, device) if totals.base_is_known else AllocationRows.of()
        totals = replace(totals, unexplained_changes=len(added))
        rows = AllocationRows.join([rows, added])
    totals = replace(
        totals,
        unlisted_bytes=totals.base_bytes - int(rows.bytes[rows.alloc_event == BEFORE].sum()),
        unmatched_frees=unmatched,
        repeated_allocs=int(pairs.repeated.sum()),
        out_of_order=int((np.diff(memory["begin"][entries]) < 0).sum()),
    )
    row_entry = np.concatenate([row_entry, np.full(len(added), -1)])
    return DeviceRows(rows, row_entry, _reservations(log, device), totals)


def _pairs(log: _Log) -> tuple[Pairs, int]:
    """The pairs, and the number of frees that follow no allocation at their address (without addresses: at any)."""
    opens, sizes = log.bytes > 0, np.abs(log.bytes)
    if not log.address.any():
        return pair_by_size(sizes, opens), int((~opens & ~np.append(False, opens[:-1])).sum())
    pairs = pair(log.address, opens)
    unmatched = int((~opens & (pairs.opened_by < 0)).sum())
    return separate_unequal(pairs, sizes)[0], unmatched


def _unexplained(log: _Log, device: int) -> AllocationRows:
    """Rows for changes of the file's total that no event explains: those of a thread that was not recorded."""
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
    """Rows of the events, and the memory event of each."""
    opens = log.bytes > 0
    allocs, early = np.flatnonzero(opens), np.flatnonzero(~opens & (pairs.opened_by < 0))
    frees, none = pairs.closed_by[allocs], np.full(len(early), -1)
    both = np.concatenate([allocs, early])
    rows = AllocationRows.of(
        len(both),
        bytes=np.abs(log.bytes[both]),
        device=device,
        address=log.address[both],
        alloc_event=np.concatenate([allocs, none]),
        free_event=np.concatenate([np.where(pairs.repeated[allocs], LOST, frees), early]),
        alloc_ns=np.concatenate([log.ns[allocs], none]),
        free_ns=np.append(log.ns, -1)[np.concatenate([frees, early])],
    )
    return rows, np.concatenate([log.entry[allocs], none])


def _older(log: _Log, device: int, rows: AllocationRows, older: OlderStorages) -> AllocationRows:
    """Rows of older storages without an event."""
    known = rows.address[rows.alloc_event == BEFORE].astype(np.int64)
    silent = np.flatnonzero(~np.isin(older.address, known))
    address, freed_ns = older.address[silent], older.freed_ns[silent]
    freed = np.where(freed_ns >= 0, np.searchsorted(log.ns, freed_ns), len(log.ns))
    end = np.minimum(freed, _next_alloc(log, address, np.full(len(silent), -1)))
    return AllocationRows.of(
        len(silent),
        bytes=older.bytes[silent],
        device=device,
        address=address,
        free_event=np.where(end < len(log.ns), end, ALIVE),
        free_ns=np.append(log.ns, -1)[end],
    )


def _with_known_sizes(rows: AllocationRows, older: OlderStorages) -> AllocationRows:
    """Correct the sizes of older storages: torch reports their frees with the size of an earlier storage."""
    known = dict(zip(older.address.tolist(), older.bytes.tolist(), strict=True))
    before, sizes = rows.alloc_event == BEFORE, rows.bytes.copy()
    earlier = zip(rows.address[before].tolist(), sizes[before].tolist(), strict=True)
    sizes[before] = [known.get(address, size) for address, size in earlier]
    return rows.replace(bytes=sizes)


def _ended_by_reuse(log: _Log, rows: AllocationRows) -> AllocationRows:
    """End allocations that an unrecorded thread freed at the next allocation of their address."""
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
    if not len(allocs):
        return np.full(len(address), count)
    known, inverse = np.unique(log.address[allocs], return_inverse=True)
    keys = np.sort(inverse.reshape(-1) * (count + 1) + allocs)
    index = np.minimum(np.searchsorted(known, address), len(known) - 1)
    following = np.append(keys, -1)[np.searchsorted(keys, index * (count + 1) + after, "right")]
    matches = (known[index] == address) & (following // (count + 1) == index)
    return np.where(matches, following % (count + 1), count)


def _reservations(log: _Log, device: int) -> ReservationRows:
    """Changes of the reserved bytes in the file."""
    changed = np.flatnonzero(np.diff(log.reserved, prepend=log.reserved[:1]) != 0)
    return ReservationRows.of(
        len(changed),
        device=device,
        event=changed,
        ns=log.ns[changed],
        bytes=log.reserved[changed] - log.reserved[changed - 1],
    )


def _reported(log: _Log, kind: int, index: int) -> DeviceTotals:
    """Totals in the file; those of an event are valid after it."""
    # a total that stays 0 while memory is allocated is not one
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
