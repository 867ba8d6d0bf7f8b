"""Allocations and totals of one device, from its events and its blocks at the end of a snapshot.

A snapshot has no beginning: recording may have begun late, and its ring buffer forgets. But it has an end, the blocks.
What was there at the beginning is what is there at the end, less what the events added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.model.columns import I64
from tbmem.model.timeline_tables import (
    BEFORE,
    LOST,
    AllocationRows,
    BlockRows,
    BlockState,
    DeviceTotals,
    SegmentRows,
)
from tbmem.sources.events.pairing import Pairs, pair, part_unequal
from tbmem.sources.snapshot.events import Action, Events


class DeviceRows(NamedTuple):
    """What is known of one device."""

    rows: AllocationRows
    row_of_block: I64
    """Number of the row by block of the device; -1 for none."""
    totals: DeviceTotals


def rows_of_device(
    events: Events, segments: SegmentRows, blocks: BlockRows, device: int, index: int, reserved_change: int
) -> DeviceRows:
    """Rows and totals of a device.

    Args:
        events: Its log.
        segments: Those of all devices.
        blocks: Those of this device.
        device: Its row in ``devices``.
        index: torch's index of it.
        reserved_change: Bytes by which reserved memory grew over the events.
    """
    events = _with_pools(events, segments, device)
    allocs = np.flatnonzero(events.action == Action.ALLOC)
    frees = np.flatnonzero(events.action == Action.FREE_COMPLETED)
    recorded, pairs, order, parted = _recorded(events, device)
    active = np.flatnonzero(blocks.state != BlockState.INACTIVE)
    row_of_block = np.full(len(blocks), -1, np.int64)
    lost = _match_blocks(recorded, blocks, active, row_of_block)
    early = _freed(events, frees[pairs.opened_by[np.searchsorted(order, frees)] < 0], device)
    older = active[row_of_block[active] < 0]
    row_of_block[older] = len(recorded) + len(early) + np.arange(len(older))
    rows = AllocationRows.join([recorded, early, _older(blocks, segments, older, device)])
    held = segments.device == device
    requested = int(blocks.requested_bytes[active].sum())
    base = requested - int(events.bytes[allocs].sum()) + int(events.bytes[frees].sum())
    reserved = int(segments.bytes[held].sum())
    totals = DeviceTotals(
        name=f"cuda:{index}",
        type=1,
        index=index,
        events=len(events),
        allocs=len(allocs),
        frees=len(frees),
        reserved_bytes=reserved,
        allocated_bytes=int(segments.allocated_bytes[held].sum()),
        active_bytes=int(segments.active_bytes[held].sum()),
        requested_bytes=requested,
        base_bytes=base,
        unlisted_bytes=base - int(rows.bytes[rows.alloc_event == BEFORE].sum()),
        base_reserved_bytes=reserved - reserved_change,
        unmatched_frees=len(early) - parted,
        repeated_allocs=int(pairs.repeated.sum()),
        lost_frees=lost,
        ooms=int((events.action == Action.OOM).sum()),
    )
    return DeviceRows(rows, row_of_block, totals)


def _with_pools(events: Events, segments: SegmentRows, device: int) -> Events:
    """Pools of events that do not say theirs, as in older torch, from the segments that they lie in at the end.

    A pool keeps its segments for as long as its graphs live. Where a segment went back nothing is known.
    """
    own = np.flatnonzero(segments.device == device)
    if not (segments.pool[own] > 0).any() or (events.pool >= 0).any():
        return events
    own = own[np.argsort(segments.address[own], kind="stable")]
    begins = segments.address[own]
    place = np.maximum(np.searchsorted(begins, events.address, side="right") - 1, 0)
    inside = (events.address >= begins[place]) & (
        events.address - begins[place] < segments.bytes[own][place].astype(np.uint64)
    )
    # the address may have been another segment's before
    made = np.full(len(own), -1)
    asked = np.flatnonzero(events.action == Action.SEGMENT_ALLOC)
    np.maximum.at(made, place[asked], np.where(inside[asked], asked, -1))
    known = inside & (np.arange(len(events)) >= made[place])
    pool = np.where(known, segments.pool[own][place], -1).astype(np.int32)
    return Events(**{**events._asdict(), "pool": pool})


def _recorded(events: Events, device: int) -> tuple[AllocationRows, Pairs, I64, int]:
    """Rows of the allocations that the log has, with their frees where it has them too.

    Returns:
        The rows; what belongs together; the events that the pairs number; and how many pairs did not fit.
    """
    order = np.flatnonzero((events.action == Action.ALLOC) | (events.action == Action.FREE_COMPLETED))
    opens = events.action[order] == Action.ALLOC
    pairs, parted = part_unequal(pair(events.address[order], opens), events.bytes[order])
    at, closing = order[opens], pairs.closed_by[opens]
    freed = closing >= 0
    free_event = np.where(pairs.repeated[opens], LOST, -1)
    free_event[freed] = order[closing[freed]]
    free_ns = np.full(len(at), -1)
    free_ns[freed] = events.ns[free_event[freed]]
    requested = np.full(len(at), -1)
    if _each_free_follows_its_request(events):
        requested[freed] = free_event[freed] - 1
    else:
        requested = _requests(events, Action.ALLOC)[at]
    rows = AllocationRows.of(
        len(at),
        bytes=events.bytes[at],
        device=device,
        stream=events.stream[at],
        pool=events.pool[at],
        address=events.address[at],
        alloc_event=at,
        free_event=free_event,
        alloc_ns=events.ns[at],
        free_ns=free_ns,
        free_requested_event=requested,
        stack=events.stack[at],
        context=events.context[at],
    )
    return rows, pairs, order, parted


def _requests(events: Events, side: Action) -> I64:
    """The request to free that belongs to each allocation or to each completed free, by event; -1 for none."""
    found = np.full(len(events), -1)
    if side == Action.FREE_COMPLETED and _each_free_follows_its_request(events):
        completed = np.flatnonzero(events.action == Action.FREE_COMPLETED)
        found[completed] = completed - 1
        return found
    order = np.flatnonzero((events.action == side) | (events.action == Action.FREE_REQUESTED))
    requested = events.action[order] == Action.FREE_REQUESTED
    if side == Action.ALLOC:
        partner = pair(events.address[order], ~requested).closed_by
    else:
        partner = pair(events.address[order], requested).opened_by
    found[order] = np.where(partner >= 0, order[partner], -1)
    return found


def _each_free_follows_its_request(events: Events) -> bool:
    """Whether no other stream was in the way of any: nearly always so, and a sort less."""
    completed = np.flatnonzero(events.action == Action.FREE_COMPLETED)
    if not len(completed) or int((events.action == Action.FREE_REQUESTED).sum()) != len(completed) or not completed[0]:
        return False
    before = completed - 1
    follows = events.action[before] == Action.FREE_REQUESTED
    return bool((follows & (events.address[before] == events.address[completed])).all())


def _match_blocks(recorded: AllocationRows, blocks: BlockRows, active: I64, row_of_block: I64) -> int:
    """Find the block of each recorded allocation that is alive at the end, and note its size after rounding.

    Returns:
        How many have none: they were freed while nothing was recorded.
    """
    alive = np.flatnonzero(recorded.free_event == -1)
    by_address = active[np.argsort(blocks.address[active], kind="stable")]
    place = np.searchsorted(blocks.address[by_address], recorded.address[alive])
    block = by_address[np.minimum(place, len(by_address) - 1)] if len(by_address) else np.zeros_like(alive)
    if len(by_address):
        fits = blocks.address[block] == recorded.address[alive]
        fits &= blocks.requested_bytes[block] == recorded.bytes[alive]
    else:
        fits = np.zeros(len(alive), np.bool_)
    recorded.free_event[alive[~fits]] = LOST
    recorded.rounded_bytes[alive[fits]] = blocks.bytes[block[fits]]
    row_of_block[block[fits]] = alive[fits]
    return int((~fits).sum())


def _freed(events: Events, frees: I64, device: int) -> AllocationRows:
    """Rows of what was allocated before the recording and freed in it."""
    return AllocationRows.of(
        len(frees),
        bytes=events.bytes[frees],
        device=device,
        stream=events.stream[frees],
        pool=events.pool[frees],
        address=events.address[frees],
        free_event=frees,
        free_ns=events.ns[frees],
        free_requested_event=_requests(events, Action.FREE_COMPLETED)[frees],
    )


def _older(blocks: BlockRows, segments: SegmentRows, which: I64, device: int) -> AllocationRows:
    """Rows of what was allocated before the recording and is still there."""
    segment = blocks.segment[which]
    return AllocationRows.of(
        len(which),
        bytes=blocks.requested_bytes[which],
        rounded_bytes=blocks.bytes[which],
        device=device,
        stream=segments.stream[segment],
        pool=segments.pool[segment],
        address=blocks.address[which],
        stack=blocks.stack[which],
    )
