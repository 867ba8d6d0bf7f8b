"""Segments and blocks of a recording's allocator just after any of its events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tbmem.analysis.allocator.reserved import UNTIL_THE_END, Reserved, reserved_memory
from tbmem.analysis.allocator.settings import SMALL, SMALLEST_BLOCK, AllocatorSettings, round_size
from tbmem.analysis.allocator.what_if import recorded_settings
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, BlockRows, BlockState, SegmentKind, SegmentRows
from tbmem.units import MIB

_LARGE_PAGE = 20 * MIB


class AllocatorHistory:
    """The state of one device's allocator at any event, from the changes that the recording has.

    Segments are those at the end of the recording, with the later changes taken back. Blocks in use are the rows that
    are alive; what lies between them is free.
    """

    def __init__(self, timeline: AllocationTimeline, device: int) -> None:
        self._timeline, self._device = timeline, device
        self.reserved = reserved_memory(timeline, device)
        self._rows = np.flatnonzero((timeline.rows.device == device) & (timeline.rows.address > 0))
        rows = timeline.rows.take(self._rows)
        self._begin, self._address = rows.alloc_event, rows.address.astype(np.int64)
        self._free = np.where(rows.free_event < 0, UNTIL_THE_END, rows.free_event)
        requested = rows.free_requested_event
        self._requested_free = np.where(requested < 0, self._free, requested)
        waiting = timeline.blocks.row[(timeline.blocks.state == BlockState.PENDING_FREE) & (timeline.blocks.row >= 0)]
        # freed by the program, but the recording does not say when
        unknown = np.isin(self._rows, waiting) & (requested < 0)
        self._requested_free[unknown] = timeline.devices[device].events - 1
        self._size = _block_sizes(timeline, self._rows, self.reserved)

    def at(self, event: int) -> AllocationTimeline:
        """The recording with the segments and blocks of this device just after an event; -1: at its beginning.

        Its ``rows`` and all else are those of the whole recording.
        """
        segments = self._segments_at(event)
        blocks = self._blocks_at(event, segments)
        active = blocks.state != BlockState.INACTIVE

        def summed(sizes: I64) -> I64:
            return np.bincount(blocks.segment, sizes, len(segments)).astype(np.int64)

        table = segments.replace(
            allocated_bytes=summed(np.where(blocks.state == BlockState.ALLOCATED, blocks.bytes, 0)),
            active_bytes=summed(np.where(active, blocks.bytes, 0)),
            requested_bytes=summed(blocks.requested_bytes),
            kind=_kinds(segments, blocks),
        )
        return replace(self._timeline, segments=table, blocks=blocks)

    def _segments_at(self, event: int) -> SegmentRows:
        """Reserved memory; adjacent pages of an expandable segment are one, as in torch's snapshots."""
        reserved = self.reserved.at(event)
        joins = np.zeros(len(reserved.begin), bool)
        joins[1:] = (reserved.begin[1:] == reserved.end[:-1]) & (reserved.stream[1:] == reserved.stream[:-1])
        joins[1:] &= (reserved.expandable[1:] & reserved.expandable[:-1]) > 0
        known = (reserved.kind[1:] >= 0) & (reserved.kind[:-1] >= 0)
        joins[1:] &= ~known | (reserved.kind[1:] == reserved.kind[:-1])
        first = np.flatnonzero(~joins)
        last = np.append(first[1:], len(joins)) - 1 if len(first) else first
        return SegmentRows.of(
            len(first),
            device=self._device,
            address=reserved.begin[first].astype(np.uint64),
            bytes=reserved.end[last] - reserved.begin[first],
            stream=reserved.stream[first],
            kind=np.maximum.reduceat(reserved.kind, first) if len(first) else reserved.kind[first],
            pool=reserved.pool[first],
            expandable=reserved.expandable[first],
        )

    def _blocks_at(self, event: int, segments: SegmentRows) -> BlockRows:
        alive = np.flatnonzero((self._begin <= event) & (self._free > event))
        alive = self._without_lost(alive[np.argsort(self._address[alive], kind="stable")])
        begin = segments.address.astype(np.int64)
        end = begin + segments.bytes
        segment = np.searchsorted(begin, self._address[alive], side="right") - 1
        inside = (segment >= 0) & (self._address[alive] < np.append(end, 0)[segment])
        alive, segment = alive[inside], segment[inside]
        address = self._address[alive]
        following = np.minimum(np.append(address[1:], UNTIL_THE_END), end[segment])
        size = np.minimum(self._size[alive], following - address)
        # what is free before each block, and behind the last one of each segment
        before = np.where(np.diff(segment, prepend=-1) != 0, begin[segment], np.append(0, (address + size)[:-1]))
        tail = begin.copy()
        np.maximum.at(tail, segment, address + size)
        gap_address = np.concatenate([before, tail])
        gap_size = np.concatenate([address - before, end - tail])
        gap_segment = np.concatenate([segment, np.arange(len(segments))])
        gaps = np.flatnonzero(gap_size > 0)
        state = np.where(self._requested_free[alive] <= event, BlockState.PENDING_FREE, BlockState.ALLOCATED)
        rows = self._rows[alive]
        used, free = len(alive), len(gaps)
        every = np.concatenate([address, gap_address[gaps]])
        order = np.argsort(every, kind="stable")
        return BlockRows.of(
            used + free,
            segment=np.concatenate([segment, gap_segment[gaps]])[order],
            address=every[order].astype(np.uint64),
            bytes=np.concatenate([size, gap_size[gaps]])[order],
            requested_bytes=np.concatenate([self._timeline.rows.bytes[rows], np.zeros(free, np.int64)])[order],
            state=np.concatenate([state, np.full(free, BlockState.INACTIVE)])[order],
            row=np.concatenate([rows, np.full(free, -1)])[order],
            stack=np.concatenate([self._timeline.rows.stack[rows], np.full(free, -1)])[order],
        )

    def _without_lost(self, alive: I64) -> I64:
        """Without rows whose address was given to a later one: their free is missing from the recording."""
        while True:
            overlap = self._address[alive][:-1] + self._size[alive][:-1] > self._address[alive][1:]
            if not overlap.any():
                return alive
            older = self._begin[alive][:-1] < self._begin[alive][1:]
            gone = np.zeros(len(alive), bool)
            gone[:-1] |= overlap & older
            gone[1:] |= overlap & ~older
            alive = alive[~gone]


def _kinds(segments: SegmentRows, blocks: BlockRows) -> I64:
    """The pool of each segment; where only pages are known, that of its blocks, else of its size."""
    kind = segments.kind.astype(np.int64)
    used = blocks.state != BlockState.INACTIVE
    small = np.bincount(blocks.segment, used & (blocks.bytes <= SMALL), len(segments)) > 0
    large = np.bincount(blocks.segment, used & (blocks.bytes > SMALL), len(segments)) > 0
    of_pages = np.where(large | (~small & (segments.bytes % _LARGE_PAGE == 0)), SegmentKind.LARGE, SegmentKind.SMALL)
    return np.where(kind < 0, of_pages, kind)


def _block_sizes(timeline: AllocationTimeline, numbers: I64, reserved: Reserved) -> I64:
    """Bytes of each row's block: the file's, else those of its request and of a rest too small to be split off."""
    rows, settings = timeline.rows.take(numbers), recorded_settings(timeline)
    known = rows.rounded_bytes > 0
    if any(settings.roundup_power2_divisions):
        rounded = np.array([round_size(size, settings) for size in rows.bytes.tolist()], np.int64)
    else:
        rounded = np.maximum((rows.bytes + SMALLEST_BLOCK - 1) // SMALLEST_BLOCK, 1) * SMALLEST_BLOCK
    sizes = np.where(known, rows.rounded_bytes, rounded)
    # small blocks and those of expandable segments are always split
    large = np.flatnonzero(sizes > SMALL)
    walk = _Walk(settings)
    for kind, row, address, size in _changes(rows, large, sizes, reserved):
        found = walk.step(kind, address, size)
        if kind == _OPENED and not known[row]:
            sizes[row] = found
    return sizes


_RELEASED, _FREED, _RESERVED, _OPENED = range(4)
"""Changes in the order in which they happen at one event."""


def _changes(rows: AllocationRows, large: I64, sizes: I64, reserved: Reserved) -> Iterator[tuple[int, int, int, int]]:
    """Kind, row, address and bytes of each change of the large blocks and of segments that are not expandable.

    Of what was there before the recording the highest address comes first, so that each block finds its successor.
    """
    whole = np.flatnonzero(reserved.expandable == 0)
    free = np.where(rows.free_event < 0, UNTIL_THE_END, rows.free_event)[large]
    address = rows.address[large].astype(np.int64)
    extent = reserved.end[whole] - reserved.begin[whole]
    parts = [
        (_RELEASED, reserved.last[whole], whole, reserved.begin[whole], extent),
        (_FREED, free, large, address, sizes[large]),
        (_RESERVED, reserved.first[whole], whole, reserved.begin[whole], extent),
        (_OPENED, rows.alloc_event[large], large, address, sizes[large]),
    ]
    kind = np.concatenate([np.full(len(event), number) for number, event, *_ in parts])
    event, row, begin, size = (np.concatenate([part[field] for part in parts]) for field in range(1, 5))
    order = np.lexsort((-begin, kind, event))
    order = order[event[order] < UNTIL_THE_END]
    return zip(*(column[order].tolist() for column in (kind, row, begin, size)), strict=True)


class _Walk:
    """Large blocks and segments by address, event by event."""

    def __init__(self, settings: AllocatorSettings) -> None:
        self._limit, self._most = settings.max_split_size, settings.max_non_split_rounding
        self._blocks: list[int] = []
        self._segments: list[int] = []
        self._end: dict[int, int] = {}

    def step(self, kind: int, address: int, size: int) -> int:
        """Make a change; returns the bytes of the block."""
        if kind == _RESERVED:
            self._end[address] = address + size
            insort(self._segments, address)
        elif kind == _OPENED:
            size = self._with_rest(address, size)
            insort(self._blocks, address)
        else:
            starts = self._blocks if kind == _FREED else self._segments
            at = bisect_left(starts, address)
            if at < len(starts) and starts[at] == address:
                del starts[at]
        return size

    def _with_rest(self, address: int, size: int) -> int:
        at = bisect_right(self._segments, address) - 1
        end = self._end[self._segments[at]] if at >= 0 else 0
        if end <= address:
            return size
        following = bisect_right(self._blocks, address)
        if following < len(self._blocks):
            end = min(end, self._blocks[following])
        rest = end - address - size
        whole = rest <= SMALL or (size >= self._limit and rest < self._most)
        return size + rest if rest > 0 and whole else size
