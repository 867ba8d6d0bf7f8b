"""Joins an address book with a timeline, which gives allocations categories and names that are known.

A note applies to the allocation that was alive at its address when it was taken. Memory that was allocated before the
recording and not freed during it has no event in a trace; a note on it adds a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.recordings.breakdown import groups, sums
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, AllocationRows, DeviceTotals

_PREFERRED = (
    *(Category.PARAMETER, Category.OPTIMIZER_STATE, Category.BUFFER),
    *(Category.GRADIENT, Category.INPUT, Category.ACTIVATION),
)
"""Order of preference where an allocation has several notes: a weight is also saved for backward."""
_LONG_LIVED = (Category.PARAMETER, Category.OPTIMIZER_STATE, Category.BUFFER, Category.GRADIENT)
_TYPES = {"cpu": 0, "cuda": 1}
"""torch's numbers of device types."""
_ZERO_GRAD = "Optimizer.zero_grad#"
"""Prefix of torch's range in which gradients are released."""
_ROUNDING = 512
"""Bytes; CUDA's caching allocator rounds to multiples of it."""
_MAX = np.iinfo(np.int64).max


class _Notes(NamedTuple):
    """Notes on devices of the timeline, in order of time."""

    ns: I64
    device: I64
    address: Any
    bytes: I64
    category: I64
    name: I64
    """-1 for an empty one."""


def join_book(timeline: AllocationTimeline, book: AddressBook) -> AllocationTimeline:
    """Fill in ``category``, ``basis`` and ``name`` of every allocation that has a note from the same window.

    Each noted storage that a trace has no event of gets a row.
    """
    recorded_devices = len(timeline.devices)
    timeline = _with_noted_devices(timeline, book)
    notes = _notes(timeline, book)
    row_of_note, address_reused = _match_rows(timeline.rows, notes)
    # a snapshot lists every block on its devices
    may_be_unlisted = (timeline.source == "trace") | (notes.device >= recorded_devices)
    timeline, row_of_note = _with_older_storages(timeline, notes, row_of_note, may_be_unlisted & ~address_reused)
    noted, note = _best_notes(row_of_note, notes)
    rows = timeline.rows
    category, basis, name = rows.category.copy(), rows.basis.copy(), np.full(len(rows), -1, np.int64)
    category[noted], basis[noted], name[noted] = notes.category[note], Basis.KNOWN, notes.name[note]
    return timeline.with_columns(names=book.names, category=category, basis=basis, name=name)


def _with_noted_devices(timeline: AllocationTimeline, book: AddressBook) -> AllocationTimeline:
    """Adds devices that occur only in the book, such as the CPU for offloaded state beside a GPU snapshot."""
    existing = {device.name for device in timeline.devices}
    noted = {book.devices[number] for number in np.unique(book.device[np.isin(book.category, _LONG_LIVED)]).tolist()}
    new = []
    for name in sorted(noted - existing):
        kind, _, text = name.partition(":")
        index = int(text) if text.isdigit() else -1
        new.append(DeviceTotals(name=name, type=_TYPES.get(kind, -1), index=index, base_is_known=False))
    return replace(timeline, devices=(*timeline.devices, *new)) if new else timeline


def _notes(timeline: AllocationTimeline, book: AddressBook) -> _Notes:
    numbers = {device.name: number for number, device in enumerate(timeline.devices)}
    device = np.array([numbers.get(name, -1) for name in book.devices] or [-1], np.int64)[book.device]
    name = np.array([number if text else -1 for number, text in enumerate(book.names)] or [-1], np.int64)[book.name]
    order = np.argsort(book.time_ns, kind="stable")
    order = order[device[order] >= 0]
    columns: tuple[Any, ...] = (book.time_ns, device, book.address, book.bytes, book.category.astype(np.int64), name)
    return _Notes(*(column[order] for column in columns))


def _moments_among(rows: AllocationRows, device: I64, address: Any, ns: I64) -> tuple[I64, I64]:
    """Rows in order of device, address and time, and how many of them lie up to each of some moments."""
    order = np.lexsort(
        (
            np.append(rows.alloc_event, np.full(len(ns), _MAX)),
            np.append(rows.alloc_ns, ns),
            np.append(rows.address, address),
            np.append(rows.device, device),
        )
    )
    is_row = order < len(rows)
    until = np.empty(len(ns), np.int64)
    until[order[~is_row] - len(rows)] = np.cumsum(is_row)[~is_row]
    return order[is_row], until


def _match_rows(rows: AllocationRows, notes: _Notes) -> tuple[I64, Bools]:
    """The row at each note's address that was alive when the note was taken, -1 for none.

    The second array tells whether the address was allocated earlier in this recording.
    """
    if not len(rows):
        return np.full(len(notes.ns), -1), np.zeros(len(notes.ns), np.bool_)
    order, until = _moments_among(rows, notes.device, notes.address, notes.ns)
    row = order[until - 1]
    same_address = (until > 0) & (rows.device[row] == notes.device) & (rows.address[row] == notes.address)
    alive = (rows.free_ns[row] < 0) | (rows.free_ns[row] > notes.ns)
    fits = notes.bytes <= np.maximum(rows.bytes[row], rows.rounded_bytes[row])
    return np.where(same_address & alive & fits, row, -1), same_address


def _best_notes(row_of_note: I64, notes: _Notes) -> tuple[I64, I64]:
    """Rows that have notes, and the preferred note of each."""
    matched = np.flatnonzero(row_of_note >= 0)
    rank = np.full(len(Category), len(_PREFERRED))
    rank[list(_PREFERRED)] = np.arange(len(_PREFERRED))
    order = matched[np.lexsort((notes.ns[matched], rank[notes.category[matched]], row_of_note[matched]))]
    rows, first = np.unique(row_of_note[order], return_index=True)
    return rows, order[first]


def _with_older_storages(
    timeline: AllocationTimeline, notes: _Notes, row_of_note: I64, may_be_unlisted: Bools
) -> tuple[AllocationTimeline, I64]:
    """Append a row for each storage that has a note and no event."""
    missing = np.flatnonzero((row_of_note < 0) & may_be_unlisted & np.isin(notes.category, _LONG_LIVED))
    if not len(missing):
        return timeline, row_of_note
    first, group = groups(notes.device[missing], notes.address[missing])
    size = np.zeros(len(first), np.int64)
    np.maximum.at(size, group, notes.bytes[missing])
    note = missing[first]
    is_rounded = np.array([device.measure == "rounded" for device in timeline.devices])[notes.device[note]]
    size = np.where(is_rounded, -(-size // _ROUNDING) * _ROUNDING, size)
    free_event, free_ns = _ends(timeline, notes, missing, group, note)
    added = AllocationRows.of(
        len(first),
        bytes=size,
        rounded_bytes=np.where(is_rounded, size, -1),
        device=notes.device[note],
        address=notes.address[note],
        alloc_event=BEFORE,
        free_event=free_event,
        free_ns=free_ns,
        phase=Phase.SETUP,
    )
    row_of_note[missing] = len(timeline.rows) + group
    grown = timeline.with_older_rows(added)
    ended = added.free_event >= 0
    freed = sums(added.device[ended], added.bytes[ended], len(grown.devices)).tolist()
    devices = tuple(map(_with_older_bytes, timeline.devices, grown.devices, freed))
    return replace(grown, devices=devices), row_of_note


def _with_older_bytes(before: DeviceTotals, device: DeviceTotals, freed: int) -> DeviceTotals:
    """Reported totals plus older bytes that they leave out: torch counts CPU memory only while a profiler runs."""
    older = device.base_bytes - before.base_bytes
    allocated, peak = device.allocated_bytes, device.reported_peak_bytes
    return replace(
        device,
        allocated_bytes=None if allocated is None else allocated + max(older - freed, 0),
        reported_peak_bytes=None if peak is None else peak + older,
    )


def _ends(timeline: AllocationTimeline, notes: _Notes, missing: I64, group: I64, note: I64) -> tuple[I64, I64]:
    """Event and Unix time at which each older storage was freed, as far as it is known.

    That is when its address was allocated again; for a gradient also when an optimizer released it, or when it was
    noted at another address.
    """
    last_seen = np.zeros(len(note), np.int64)
    np.maximum.at(last_seen, group, notes.ns[missing])
    end = np.minimum(_reused(timeline.rows, notes, note, last_seen), _moved(notes, note, last_seen))
    end = np.minimum(end, _zeroed(timeline, notes, note, last_seen))
    free_event, free_ns = np.full(len(note), ALIVE), np.full(len(note), -1)
    for number in range(len(timeline.devices)):
        rows = timeline.rows.take((timeline.rows.device == number) & (timeline.rows.alloc_event >= 0))
        order = np.argsort(rows.alloc_event)
        times, events = rows.alloc_ns[order], rows.alloc_event[order]
        ended = np.flatnonzero((notes.device[note] == number) & (end < _MAX))
        position = np.searchsorted(times, end[ended])
        inside = position < len(times)
        free_event[ended[inside]] = events[position[inside]]
        free_ns[ended[inside]] = times[position[inside]]
    return free_event, free_ns


def _reused(rows: AllocationRows, notes: _Notes, note: I64, after: I64) -> I64:
    """When the address of each storage was first allocated again after a time."""
    recorded = rows.take(rows.alloc_event >= 0)
    if not len(recorded):
        return np.full(len(note), _MAX)
    order, until = _moments_among(recorded, notes.device[note], notes.address[note], after)
    row = np.append(order, 0)[until]
    is_reuse = (recorded.address[row] == notes.address[note]) & (recorded.device[row] == notes.device[note])
    return np.where(is_reuse & (until < len(order)), recorded.alloc_ns[row], _MAX)


def _zeroed(timeline: AllocationTimeline, notes: _Notes, note: I64, after: I64) -> I64:
    """When an optimizer first released gradients after a time; one that was kept would have been noted again."""
    ranges = timeline.ranges
    is_zero = np.array([name.startswith(_ZERO_GRAD) for name in timeline.range_names] or [False])
    ends = np.append(np.sort(ranges.end_ns[is_zero[ranges.name] & (ranges.end_ns >= 0)]), _MAX)
    next_end = ends[np.searchsorted(ends[:-1], after, side="right")]
    return np.where(notes.category[note] == Category.GRADIENT, next_end, _MAX)


def _moved(notes: _Notes, note: I64, after: I64) -> I64:
    """When the gradient of a name was first noted at another address after a time; other storages may share names."""
    gradients = np.flatnonzero(notes.category == Category.GRADIENT)
    order = gradients[np.lexsort((notes.ns[gradients], notes.name[gradients]))]
    names, times = notes.name[order], notes.ns[order]
    moved = np.full(len(note), _MAX)
    for index in np.flatnonzero(notes.category[note] == Category.GRADIENT).tolist():
        begin = np.searchsorted(names, notes.name[note[index]], side="left")
        end = np.searchsorted(names, notes.name[note[index]], side="right")
        later = begin + int(np.searchsorted(times[begin:end], after[index], side="right"))
        if later < end:
            moved[index] = times[later]
    return moved
