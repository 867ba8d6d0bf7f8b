"""Allocations and totals of one device, from its events and its blocks at the end of a snapshot.

The recording may have begun late, or its ring buffer may have overflowed: memory at its beginning is that of the blocks
at the end, less what the events added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline_tables import (
    ALIVE,
    BEFORE,
    LOST,
    AllocationRows,
    BlockRows,
    BlockState,
    DeviceTotals,
    SegmentRows,
)
from tbmem.sources.events.pairing import Pairs, pair, separate_unequal
from tbmem.sources.snapshot.events import Action, Events


class DeviceRows(NamedTuple):
    """Allocations of one device."""

    rows: AllocationRows
    row_of_block: I64  # row of each block of the device; -1 for none
    totals: DeviceTotals


def rows_of_device(
    events: Events, segments: SegmentRows, blocks: BlockRows, device: int, index: int, reserved_change: int
) -> DeviceRows:
    """Rows and totals of a device: number ``device`` in the timeline, ``index`` for torch.

    Segments are those of all devices. ``reserved_change`` is the growth of reserved memory over the events, in bytes.
    """
    events = _with_pools(events, segments, device)
    allocs = np.flatnonzero(events.action == Action.ALLOC)
    frees = np.flatnonzero(events.action == Action.FREE_COMPLETED)
    recorded, pairs, order, separated = _recorded(events, device)
    active = np.flatnonzero(blocks.state != BlockState.INACTIVE)
    row_of_block = np.full(len(blocks), -1, np.int64)
    lost = _match_blocks(recorded, blocks, active, row_of_block)
    early = _freed(events, frees[pairs.opened_by[np.searchsorted(order, frees)] < 0], device)
    older = active[row_of_block[active] < 0]
    row_of_block[older] = len(recorded) + len(early) + np.arange(len(older))
    rows = AllocationRows.join([recorded, early, _older(blocks.take(older), segments, device)])
    on_device = segments.device == device
    requested = int(blocks.requested_bytes[active].sum())
    base = requested - int(events.bytes[allocs].sum()) + int(events.bytes[frees].sum())
    reserved = int(segments.bytes[on_device].sum())
    totals = DeviceTotals(
        name=f"cuda:{index}",
        type=1,
        index=index,
        events=len(events),
        allocs=len(allocs),
        frees=len(frees),
        reserved_bytes=reserved,
        allocated_bytes=int(segments.allocated_bytes[on_device].sum()),
        active_bytes=int(segments.active_bytes[on_device].sum()),
        requested_bytes=requested,
        base_bytes=base,
        unlisted_bytes=base - int(rows.bytes[rows.alloc_event == BEFORE].sum()),
        base_reserved_bytes=reserved - reserved_change,
        unmatched_frees=len(early) - separated,
        repeated_allocs=int(pairs.repeated.sum()),
        lost_frees=lost,
        ooms=int((events.action == Action.OOM).sum()),
    )
    return DeviceRows(rows, row_of_block, totals)


def _with_pools(events: Events, segments: SegmentRows, device: int) -> Events:
    """Add pools to events without one, as in older torch, from the segments that contain them at the end.

    A pool keeps its segments for as long as its graphs live. Pools of released segments are unknown.
    """
    segments = segments.take(segments.device == device)
    if not (segments.pool > 0).any() or (events.pool >= 0).any():
        return events
    segments = segments.take(np.argsort(segments.address, kind="stable"))
    segment = np.maximum(np.searchsorted(segments.address, events.address, side="right") - 1, 0)
    begin, size = segments.address[segment], segments.bytes[segment].astype(np.uint64)
    inside = (events.address >= begin) & (events.address - begin < size)
    # the address may have belonged to another segment before
    created = np.full(len(segments), -1)
    allocs = np.flatnonzero(events.action == Action.SEGMENT_ALLOC)
    np.maximum.at(created, segment[allocs], np.where(inside[allocs], allocs, -1))
    known = inside & (np.arange(len(events)) >= created[segment])
    return Events(**{**events._asdict(), "pool": np.where(known, segments.pool[segment], -1).astype(np.int32)})


def _recorded(events: Events, device: int) -> tuple[AllocationRows, Pairs, I64, int]:
    """Rows of the recorded allocations, the pairs, the events that these number, and how many were separated."""
    order = np.flatnonzero((events.action == Action.ALLOC) | (events.action == Action.FREE_COMPLETED))
    opens = events.action[order] == Action.ALLOC
    pairs, separated = separate_unequal(pair(events.address[order], opens), events.bytes[order])
    at, closing = order[opens], pairs.closed_by[opens]
    freed = closing >= 0
    ended = np.append(order, -1)[closing]
    if _each_free_follows_its_request(events):
        requested = np.where(freed, ended - 1, -1)
    else:
        requested = _requests(events, Action.ALLOC)[at]
    rows = AllocationRows.of(
        len(at),
        device=device,
        alloc_event=at,
        free_event=np.where(pairs.repeated[opens], LOST, ended),
        alloc_ns=events.ns[at],
        free_ns=np.append(events.ns, -1)[ended],
        free_requested_event=requested,
        **events.at(at, "bytes", "stream", "pool", "address", "stack", "forward_stack", "context"),
    )
    return rows, pairs, order, separated


def _requests(events: Events, side: Action) -> I64:
    """The request to free of each allocation, or of each completed free, by event; -1 for none."""
    if side == Action.FREE_COMPLETED and _each_free_follows_its_request(events):
        return np.where(events.action == Action.FREE_COMPLETED, np.arange(len(events)) - 1, -1)
    order = np.flatnonzero((events.action == side) | (events.action == Action.FREE_REQUESTED))
    requested = events.action[order] == Action.FREE_REQUESTED
    if side == Action.ALLOC:
        partner = pair(events.address[order], ~requested).closed_by
    else:
        partner = pair(events.address[order], requested).opened_by
    requests = np.full(len(events), -1)
    requests[order] = np.append(order, -1)[partner]
    return requests


def _each_free_follows_its_request(events: Events) -> bool:
    """Whether no free waited for another stream: the usual case, which saves a sort."""
    requests = np.flatnonzero(events.action == Action.FREE_REQUESTED)
    completed = np.flatnonzero(events.action == Action.FREE_COMPLETED)
    if not len(completed) or not np.array_equal(requests, completed - 1):
        return False
    return np.array_equal(events.address[requests], events.address[completed])


def _match_blocks(recorded: AllocationRows, blocks: BlockRows, active: I64, row_of_block: I64) -> int:
    """Find the blocks of allocations alive at the end; counts those without one, freed while recording was paused."""
    alive = np.flatnonzero(recorded.free_event == ALIVE)
    if not len(active):
        recorded.free_event[alive] = LOST
        return len(alive)
    by_address = active[np.argsort(blocks.address[active], kind="stable")]
    index = np.searchsorted(blocks.address[by_address], recorded.address[alive])
    block = by_address[np.minimum(index, len(by_address) - 1)]
    matches = blocks.address[block] == recorded.address[alive]
    matches &= blocks.requested_bytes[block] == recorded.bytes[alive]
    recorded.free_event[alive[~matches]] = LOST
    recorded.rounded_bytes[alive[matches]] = blocks.bytes[block[matches]]
    row_of_block[block[matches]] = alive[matches]
    return int((~matches).sum())


def _freed(events: Events, frees: I64, device: int) -> AllocationRows:
    """Rows of allocations made before the recording and freed in it."""
    return AllocationRows.of(
        len(frees),
        device=device,
        free_event=frees,
        free_ns=events.ns[frees],
        free_requested_event=_requests(events, Action.FREE_COMPLETED)[frees],
        **events.at(frees, "bytes", "stream", "pool", "address"),
    )


def _older(blocks: BlockRows, segments: SegmentRows, device: int) -> AllocationRows:
    """Rows of allocations made before the recording and alive at its end."""
    return AllocationRows.of(
        len(blocks),
        bytes=blocks.requested_bytes,
        rounded_bytes=blocks.bytes,
        device=device,
        stream=segments.stream[blocks.segment],
        pool=segments.pool[blocks.segment],
        address=blocks.address,
        stack=blocks.stack,
    )
