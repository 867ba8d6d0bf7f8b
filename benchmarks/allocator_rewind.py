"""The allocator's state when a recording began: its last segments, with the recorded events undone one by one.

A snapshot shows blocks at its end only. Undone from the last event to the first, the events give those at the start:
which blocks were in use, and, from where their neighbours were carved, how large those were that were freed since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from allocator_state import Group, LiveBlock, MappedRuns, Segment, group_of

from tbmem.analysis.allocator.replay import EventKind, MemoryEvents
from tbmem.analysis.allocator.settings import SMALL, SMALL_SEGMENT, AllocatorSettings, round_size
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockState, SegmentKind


@dataclass
class Start:
    """The state at the recording's begin."""

    segments: list[Segment]
    bases: dict[Group, int]
    """Lowest address seen of each expandable segment."""
    unexplained: int
    """Events that no segment or block fits: the recording is incomplete."""
    unsure: int
    """Blocks that may be up to 1 MiB larger than assumed: free memory followed them, and nothing was carved from it."""


@dataclass
class _Live:
    size: int
    requested: int
    allocated: bool
    exact: bool


def rewind(segments: Sequence[Segment], events: MemoryEvents, settings: AllocatorSettings) -> Start:
    """Undo a recording.

    Args:
        segments: All segments of the device at the end.
        events: What was recorded, up to that moment.
        settings: The allocator's settings during the recording.
    """
    state = _State(settings, segments)
    rows = list(events.rows())
    state.runs.classify(rows, settings)
    for kind, key, size, stream, pool in reversed(rows):
        state.undo(kind, key, size, stream, pool)
    return Start(state.layout(), state.runs.bases(), state.unexplained, state.unsure)


@dataclass
class _State:
    settings: AllocatorSettings
    final: Sequence[Segment]
    whole: dict[int, Segment] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    live: dict[int, _Live] = field(default_factory=dict)
    addresses: list[int] = field(default_factory=list)
    unexplained: int = 0
    unsure: int = 0

    def __post_init__(self) -> None:
        self.runs = MappedRuns()
        for segment in self.final:
            if segment.expandable:
                self.runs.add(group_of(segment), segment.address, segment.size)
            else:
                self.whole[segment.address] = segment
            for block in segment.blocks:
                self.live[block.address] = _Live(block.size, block.requested, block.allocated, exact=True)
        self.starts = sorted(self.whole)
        self.addresses = sorted(self.live)

    def undo(self, kind: int, key: int, size: int, stream: int, pool: int) -> None:
        if kind == EventKind.ALLOC:
            self._undo_alloc(key)
        elif kind == EventKind.FREE_COMPLETED:
            self._undo_free(key, size, allocated=False)
        elif kind == EventKind.FREE_REQUESTED:
            if key in self.live:
                self.live[key].allocated = True
        elif kind == EventKind.FREE:
            self._undo_free(key, size, allocated=True)
        elif kind == EventKind.SEGMENT_ALLOC:
            self._forget_segment(key)
        elif kind == EventKind.SEGMENT_FREE:
            self.whole[key] = Segment(key, size, stream, size == SMALL_SEGMENT, pool)
            insort(self.starts, key)
        elif kind == EventKind.SEGMENT_MAP:
            self.runs.undo_map(key, size)
        elif kind == EventKind.SEGMENT_UNMAP:
            self.runs.undo_unmap(key, size, stream, pool)

    def _undo_alloc(self, address: int) -> None:
        index = bisect_left(self.addresses, address)
        if index == len(self.addresses) or self.addresses[index] != address:
            self.unexplained += 1
            return
        del self.addresses[index], self.live[address]
        if index:
            # blocks are carved from the front of a free one, so the block before ended exactly here
            self._stretch(self.addresses[index - 1], address)

    def _undo_free(self, address: int, requested: int, allocated: bool) -> None:
        segment = self._segment(address)
        size = round_size(requested, self.settings)
        exact = segment is None or segment.small
        if segment is not None and size >= self.settings.max_split_size:
            size, exact = segment.address + segment.size - address, True
        if segment is None and not self.runs.covers(address):
            self.unexplained += 1
            return
        if address not in self.live:
            insort(self.addresses, address)
        self.live[address] = _Live(size, requested, allocated, exact)

    def _forget_segment(self, address: int) -> None:
        if self.whole.pop(address, None) is None:
            self.unexplained += 1
            return
        del self.starts[bisect_left(self.starts, address)]

    def _segment(self, address: int) -> Segment | None:
        """The segment of fixed size around an address."""
        index = bisect_right(self.starts, address) - 1
        if index < 0:
            return None
        segment = self.whole[self.starts[index]]
        return segment if address < segment.address + segment.size else None

    def _stretch(self, address: int, end: int) -> None:
        """A large block reaches as far as what follows it, if no free block can lie between."""
        block = self.live[address]
        if block.exact or not 0 < end - address - block.size <= SMALL:
            return
        segment = self._segment(address)
        if segment is not None and end <= segment.address + segment.size:
            block.size, block.exact = end - address, True

    def layout(self) -> list[Segment]:
        segments = [*self.whole.values(), *self.runs.segments()]
        return [self._filled(segment) for segment in sorted(segments, key=lambda segment: segment.address)]

    def _filled(self, segment: Segment) -> Segment:
        end = segment.address + segment.size
        inside = self.addresses[bisect_left(self.addresses, segment.address) : bisect_left(self.addresses, end)]
        blocks = []
        for address, following in zip(inside, [*inside, end][1:], strict=True):
            self._stretch(address, following)
            block = self.live[address]
            self.unsure += not block.exact and following > address + block.size
            blocks.append(LiveBlock(address, block.size, block.requested, block.allocated))
        return replace(segment, blocks=tuple(blocks))


def final_segments(timeline: AllocationTimeline, device: int = 0) -> list[Segment]:
    """A device's segments with the blocks in use when the recording ended."""
    segments, blocks = timeline.segments, timeline.blocks
    live: dict[int, list[LiveBlock]] = {}
    for number in np.flatnonzero(blocks.state != BlockState.INACTIVE).tolist():
        block = LiveBlock(
            int(blocks.address[number]),
            int(blocks.bytes[number]),
            int(blocks.requested_bytes[number]) or int(blocks.bytes[number]),
            bool(blocks.state[number] == BlockState.ALLOCATED),
        )
        live.setdefault(int(blocks.segment[number]), []).append(block)
    return [
        Segment(
            address=int(segments.address[number]),
            size=int(segments.bytes[number]),
            stream=int(segments.stream[number]),
            small=bool(segments.kind[number] == SegmentKind.SMALL),
            pool=max(int(segments.pool[number]), 0),
            expandable=bool(segments.expandable[number]),
            blocks=tuple(live.get(number, ())),
        )
        for number in np.flatnonzero(segments.device == device).tolist()
    ]
