"""A training-like load on the simulator, written down as a GPU's allocator would: material for undoing and checking."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemory
from tbmem.analysis.allocator.replay import EventKind, MemoryEvents, Row, segments_now
from tbmem.analysis.allocator.segments import SegmentChange, SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import KIB, MIB

KINDS = {
    ReservationKind.ALLOC: EventKind.SEGMENT_ALLOC,
    ReservationKind.FREE: EventKind.SEGMENT_FREE,
    ReservationKind.MAP: EventKind.SEGMENT_MAP,
    ReservationKind.UNMAP: EventKind.SEGMENT_UNMAP,
}


class Recorder:
    """An allocator whose every event is written down."""

    def __init__(self, settings: AllocatorSettings, device: SimpleDevice) -> None:
        self.allocator = CachingAllocator(settings, device)
        self.rows: list[Row] = []
        self.live: list[Block] = []
        self.pending: list[Block] = []
        self._seen = 0

    def malloc(self, size: int, stream: int = 0, pool: int = 0) -> None:
        try:
            block = self.allocator.malloc(size, stream, pool)
        except SimulatedOutOfMemory:
            self._write_changes(pool)
            self.rows.append((EventKind.OOM, 0, self.allocator.round(size), stream, pool))
            return
        self._write_changes(pool)
        self.rows.append((EventKind.ALLOC, block.address, size, stream, pool))
        self.live.append(block)

    def free(self, index: int, at_once: bool = True) -> None:
        block = self.live.pop(index)
        self.allocator.request_free(block)
        self._free_row(EventKind.FREE_REQUESTED, block)
        self.pending.append(block)
        if at_once:
            self.complete()

    def complete(self) -> None:
        for block in self.pending:
            self._free_row(EventKind.FREE_COMPLETED, block)
            self.allocator.complete_free(block)
        self.pending = []

    def empty_cache(self) -> None:
        self.allocator.empty_cache()
        self._write_changes(0)

    def segments(self) -> list[list[Block]]:
        return segments_now(self.allocator, [*self.live, *self.pending])

    def events(self, first: int = 0) -> MemoryEvents:
        return MemoryEvents.of(self.rows[first:])

    def _free_row(self, kind: EventKind, block: Block) -> None:
        self.rows.append((kind, block.address, block.requested, block.stream, block.pool.id))

    def _write_changes(self, pool: int) -> None:
        changes: Sequence[SegmentChange] = self.allocator.changes[self._seen :]
        self.rows += [(KINDS[one.change], one.address, one.size, one.stream, pool) for one in changes]
        self._seen = len(self.allocator.changes)


def busy_recorder(settings: AllocatorSettings, device: SimpleDevice, seed: int, operations: int = 1500) -> Recorder:
    """Requests of all sizes on two streams, frees in any order, some of them late, the cache emptied now and then."""
    recorder, chance = Recorder(settings, device), random.Random(seed)
    for _ in range(operations):
        draw = chance.random()
        if draw < 0.55 or not recorder.live:
            high = chance.choice((700, 90 * KIB, 3 * MIB, 12 * MIB, 40 * MIB))
            recorder.malloc(chance.randint(1, high), stream=chance.choice((0, 0, 0, 7)))
        elif draw < 0.985:
            recorder.free(chance.randrange(len(recorder.live)), at_once=chance.random() < 0.9)
        else:
            recorder.complete()
            recorder.empty_cache()
    return recorder
