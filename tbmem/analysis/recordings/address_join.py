"""Joins an address book with a timeline: categories and names that are known.

An allocation is what the notes at its address say that were taken while it was alive. What was there before the
recording and was never freed in it has no event in a trace; if a note knows it, it becomes a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tbmem.model.address_book import AddressBook
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, AllocationRows, DeviceTotals

_RANK = {
    Category.PARAMETER: 0,
    Category.OPTIMIZER_STATE: 1,
    Category.BUFFER: 2,
    Category.GRADIENT: 3,
    Category.INPUT: 4,
    Category.ACTIVATION: 5,
}
"""Which note wins where one allocation has several: a weight is saved for backward too."""
_LONG_LIVED = (Category.PARAMETER, Category.OPTIMIZER_STATE, Category.BUFFER, Category.GRADIENT)
_TYPES = {"cpu": 0, "cuda": 1}
"""torch's numbers of kinds of devices."""
_ZERO_GRAD = "Optimizer.zero_grad#"
"""How torch names the range in which gradients are let go of."""
_ROUNDING = 512
"""Bytes to whose multiples CUDA's caching allocator rounds."""
_MAX = np.iinfo(np.int64).max


class _Notes(NamedTuple):
    """Notes on devices of the timeline, in order of time."""

    ns: I64
    device: I64
    address: Any
    bytes: I64
    category: I64
    name: I64
    rank: I64


def join_book(timeline: AllocationTimeline, book: AddressBook) -> AllocationTimeline:
    """Fill in ``category``, ``basis`` and ``name`` of every allocation that a note of the same window speaks of.

    Returns:
        The timeline with the book's table of names. Rows are appended for what a trace has no event of.
    """
    recorded = len(timeline.devices)
    timeline = _with_noted_devices(timeline, book)
    notes = _notes(timeline, book)
    found, used_before = _row_of_each_note(timeline.rows, notes)
    # a snapshot has blocks for all that lies on its devices
    may_lack = (timeline.source == "trace") | (notes.device >= recorded)
    timeline, found = _with_older_storages(timeline, notes, found, may_lack & ~used_before)
    which, at = _best(found, notes)
    rows = timeline.rows
    category, basis, name = rows.category.copy(), rows.basis.copy(), np.full(len(rows), -1, np.int64)
    category[which], basis[which], name[which] = notes.category[at], Basis.KNOWN, notes.name[at]
    named = np.array([word != "" for word in book.names] or [False])
    name[(name >= 0) & ~named[name]] = -1
    return timeline.with_columns(names=book.names, category=category, basis=basis, name=name)


def _with_noted_devices(timeline: AllocationTimeline, book: AddressBook) -> AllocationTimeline:
    """With the devices of which only the book speaks: state that was offloaded to the CPU of a snapshot of a GPU."""
    there = {device.name for device in timeline.devices}
    lasting = {book.devices[number] for number in np.unique(book.device[np.isin(book.category, _LONG_LIVED)]).tolist()}
    new = tuple(_noted_device(name) for name in sorted(lasting - there))
    return replace(timeline, devices=(*timeline.devices, *new)) if new else timeline


def _noted_device(name: str) -> DeviceTotals:
    kind, _, index = name.partition(":")
    return DeviceTotals(
        name=name,
        type=_TYPES.get(kind, -1),
        index=int(index) if index.isdigit() else -1,
        base_is_known=False,
    )


def known_devices(timeline: AllocationTimeline, book: AddressBook) -> Bools:
    """Which of the timeline's devices the book speaks of."""
    return np.array([device.name in book.devices for device in timeline.devices], np.bool_)


def _notes(timeline: AllocationTimeline, book: AddressBook) -> _Notes:
    numbers = {device.name: number for number, device in enumerate(timeline.devices)}
    device = np.array([numbers.get(name, -1) for name in book.devices] or [-1], np.int64)[book.device]
    rank = np.full(256, len(_RANK), np.int64)
    for known, value in _RANK.items():
        rank[known] = value
    order = np.argsort(book.time_ns, kind="stable")
    order = order[device[order] >= 0]
    category = book.category[order].astype(np.int64)
    return _Notes(
        book.time_ns[order],
        device[order],
        book.address[order],
        book.bytes[order],
        category,
        book.name[order].astype(np.int64),
        rank[category],
    )


def _row_of_each_note(rows: AllocationRows, notes: _Notes) -> tuple[I64, Bools]:
    """The row at a note's address that was alive when the note was taken.

    Returns:
        The row of each note, -1 for none; and whether its address had been given out before in this recording.
    """
    device = np.concatenate([rows.device.astype(np.int64), notes.device])
    address = np.concatenate([rows.address, notes.address])
    ns = np.concatenate([rows.alloc_ns, notes.ns])
    event = np.concatenate([rows.alloc_event, np.full(len(notes.ns), _MAX)])
    order = np.lexsort((event, ns, address, device))
    is_row = order < len(rows)
    last = np.maximum.accumulate(np.where(is_row, np.arange(len(order)), -1))
    candidate = np.full(len(order), -1)
    candidate[order] = np.where(last >= 0, order[last], -1)
    row = candidate[len(rows) :]
    at = np.maximum(row, 0)
    if not len(rows):
        return np.full(len(notes.ns), -1), np.zeros(len(notes.ns), np.bool_)
    same: Bools = (row >= 0) & (rows.device[at] == notes.device) & (rows.address[at] == notes.address)
    fits = same & ((rows.free_ns[at] < 0) | (rows.free_ns[at] > notes.ns))
    fits &= notes.bytes <= np.maximum(rows.bytes[at], rows.rounded_bytes[at])
    return np.where(fits, row, -1), same


def _best(found: I64, notes: _Notes) -> tuple[I64, I64]:
    """Rows that have notes, and the note that tells most of each."""
    noted = np.flatnonzero(found >= 0)
    order = noted[np.lexsort((notes.ns[noted], notes.rank[noted], found[noted]))]
    rows, first = np.unique(found[order], return_index=True)
    return rows, order[first]


def _with_older_storages(
    timeline: AllocationTimeline, notes: _Notes, found: I64, may_lack: Bools
) -> tuple[AllocationTimeline, I64]:
    """Append a row for each storage that a note knows and no event speaks of."""
    missing = np.flatnonzero((found < 0) & may_lack & np.isin(notes.category, _LONG_LIVED))
    if not len(missing):
        return timeline, found
    keys = np.stack([notes.device[missing].astype(np.uint64), notes.address[missing].astype(np.uint64)], axis=1)
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    size = np.zeros(len(first), np.int64)
    np.maximum.at(size, group, notes.bytes[missing])
    one = missing[first]
    rounds = np.array([device.measure == "rounded" for device in timeline.devices])[notes.device[one]]
    size = np.where(rounds, -(-size // _ROUNDING) * _ROUNDING, size)
    free_event, free_ns = _ends(timeline, notes, missing, group, one)
    added = AllocationRows.of(
        len(first),
        bytes=size,
        rounded_bytes=np.where(rounds, size, -1),
        device=notes.device[one],
        address=notes.address[one],
        alloc_event=BEFORE,
        free_event=free_event,
        free_ns=free_ns,
        phase=Phase.SETUP,
    )
    found[missing] = len(timeline.rows) + group
    grown = timeline.with_older_rows(added)
    before = [device.base_bytes for device in timeline.devices]
    freed = [
        int(added.bytes[(added.device == number) & (added.free_event >= 0)].sum()) for number in range(len(before))
    ]
    devices = tuple(map(_reported, grown.devices, before, freed))
    return replace(grown, devices=devices), found


def _ends(timeline: AllocationTimeline, notes: _Notes, missing: I64, group: I64, one: I64) -> tuple[I64, I64]:
    """When each older storage was freed, as far as can be told.

    That is when its address was given to another allocation; for a gradient also when an optimizer let go of it, or
    when it was seen elsewhere.

    Returns:
        Event and Unix time of the free.
    """
    last_seen = np.zeros(len(one), np.int64)
    np.maximum.at(last_seen, group, notes.ns[missing])
    end = np.minimum(_reused(timeline.rows, notes, one, last_seen), _moved(notes, one, last_seen))
    end = np.minimum(end, _zeroed(timeline, notes, one, last_seen))
    free_event, free_ns = np.full(len(one), ALIVE), np.full(len(one), -1)
    for number in range(len(timeline.devices)):
        rows = timeline.rows.take((timeline.rows.device == number) & (timeline.rows.alloc_event >= 0))
        order = np.argsort(rows.alloc_event)
        times, events = rows.alloc_ns[order], rows.alloc_event[order]
        own = np.flatnonzero((notes.device[one] == number) & (end < _MAX))
        place = np.searchsorted(times, end[own])
        inside = place < len(times)
        free_event[own[inside]] = events[place[inside]]
        free_ns[own[inside]] = times[place[inside]]
    return free_event, free_ns


def _reused(rows: AllocationRows, notes: _Notes, one: I64, after: I64) -> I64:
    """When the address of each storage was first given to another allocation after a moment."""
    recorded = rows.take(rows.alloc_event >= 0)
    device = np.concatenate([recorded.device.astype(np.int64), notes.device[one]])
    address = np.concatenate([recorded.address, notes.address[one]])
    order = np.lexsort((np.concatenate([recorded.alloc_ns, after]), address, device))
    follower = np.append(order[1:], -1)
    next_of = np.full(len(order), -1)
    next_of[order] = follower
    follower = next_of[len(recorded) :]
    if not len(recorded):
        return np.full(len(one), _MAX)
    at = np.clip(follower, 0, len(recorded) - 1)
    fits = (follower >= 0) & (follower < len(recorded))
    fits &= (recorded.address[at] == notes.address[one]) & (recorded.device[at] == notes.device[one])
    return np.where(fits, recorded.alloc_ns[at], _MAX)


def _zeroed(timeline: AllocationTimeline, notes: _Notes, one: I64, after: I64) -> I64:
    """When an optimizer first let go of gradients after a moment; one that it had kept would have been noted again."""
    ranges = timeline.ranges
    is_zero = np.array([name.startswith(_ZERO_GRAD) for name in timeline.range_names] or [False])
    which = is_zero[ranges.name] & (ranges.end_ns >= 0) if len(ranges) else np.zeros(0, np.bool_)
    ends = np.append(np.sort(ranges.end_ns[which]), _MAX)
    found = ends[np.searchsorted(ends[:-1], after, side="right")]
    return np.where(notes.category[one] == Category.GRADIENT, found, _MAX)


def _moved(notes: _Notes, one: I64, after: I64) -> I64:
    """When the gradient of a name was first noted elsewhere after a moment; other storages may share a name."""
    gradients = np.flatnonzero(notes.category == Category.GRADIENT)
    order = gradients[np.lexsort((notes.ns[gradients], notes.name[gradients]))]
    found = np.full(len(one), _MAX)
    own = np.flatnonzero(notes.category[one] == Category.GRADIENT)
    key = np.stack([notes.name[order], notes.ns[order]], axis=1)
    for place in own.tolist():
        begin = np.searchsorted(key[:, 0], notes.name[one[place]], side="left")
        end = np.searchsorted(key[:, 0], notes.name[one[place]], side="right")
        later = begin + int(np.searchsorted(key[begin:end, 1], after[place], side="right"))
        if later < end:
            found[place] = key[later, 1]
    return found


def _reported(device: DeviceTotals, base_before: int, freed: int) -> DeviceTotals:
    """What the file reports, with the bytes that its totals do not count.

    torch counts memory of the CPU only while a profiler runs, so its totals begin at 0.
    """
    beyond = device.base_bytes - base_before
    allocated, peak = device.allocated_bytes, device.reported_peak_bytes
    return replace(
        device,
        allocated_bytes=None if allocated is None else allocated + max(beyond - freed, 0),
        reported_peak_bytes=None if peak is None else peak + beyond,
    )
