"""Compares a recording's decisions with those that the simulator predicts.

Only what the simulator cannot know is read off the recording: the addresses that the device hands out, that the device
was full, and that a user emptied the cache. What is asked for, when and how much, and what is given back, is predicted.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from allocator_rewind import Start
from allocator_state import seed

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemory
from tbmem.analysis.allocator.replay import EventKind, MemoryEvents
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import SMALL, AllocatorSettings
from tbmem.model.timeline_tables import ReservationKind

_CHANGES = {
    int(EventKind.SEGMENT_ALLOC): ReservationKind.ALLOC,
    int(EventKind.SEGMENT_FREE): ReservationKind.FREE,
    int(EventKind.SEGMENT_MAP): ReservationKind.MAP,
    int(EventKind.SEGMENT_UNMAP): ReservationKind.UNMAP,
}
_GAINS = (ReservationKind.ALLOC, ReservationKind.MAP)
Recorded = tuple[ReservationKind, int, int]
"""Change, address, bytes."""


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """How a replay compares with its recording; bytes."""

    requests: int
    requests_right: int
    """Served from the cache, or by exactly the segments that were recorded, as it was."""
    addresses_right: int
    changes: int
    changes_right: int
    """Segments' changes predicted at the right request, address and size."""
    peak_reserved: int
    final_reserved: int
    final_allocated: int
    recorded_peak: int


class RecordedDevice(SimpleDevice):
    """Hands out what was recorded: addresses while the recording has them, nothing where it gave memory back."""

    def __init__(self) -> None:
        super().__init__()
        self.script: deque[Recorded] = deque()
        self.full = False

    def allocate(self, size: int) -> int | None:
        """The recorded address; ``None`` where cached memory was given back first, or the request failed."""
        entry = self._follow(ReservationKind.ALLOC)
        if entry is not None:
            return entry[1]
        return None if self.full else self.reserve(size)

    def reserve(self, size: int) -> int:
        """The address at which pages were mapped next."""
        for change, address, _ in self.script:
            if change is ReservationKind.MAP:
                return address
        return super().reserve(size)

    def map(self, size: int) -> bool:
        """Whether pages were mapped."""
        return self._follow(ReservationKind.MAP) is not None or not self.full

    def release(self, size: int) -> None:
        """Follow the recording past what was given back."""
        while self.script and self.script[0][0] not in _GAINS:
            self.script.popleft()

    def _follow(self, change: ReservationKind) -> Recorded | None:
        if self.script and self.script[0][0] is change:
            return self.script.popleft()
        return None


def check_decisions(
    events: MemoryEvents, start: Start, settings: AllocatorSettings, ties_by_age: bool = False
) -> Decisions:
    """Replay a recording from its begin and compare.

    Args:
        events: What was recorded, segments' changes included.
        start: The state at its begin.
        settings: The allocator's settings.
        ties_by_age: See :class:`CachingAllocator`.
    """
    checker = _Checker(start, settings, ties_by_age)
    for row in events.rows():
        checker.follow(*row)
    checker.settle()
    return checker.result()


class _Checker:
    def __init__(self, start: Start, settings: AllocatorSettings, ties_by_age: bool) -> None:
        self.device = RecordedDevice()
        self.allocator = CachingAllocator(settings, self.device, ties_by_age)
        self.live: dict[int, Block] = seed(self.allocator, start.segments, start.bases)
        self.recorded_now = self.recorded_peak = self.allocator.reserved
        self.pending: list[Recorded] = []
        self.pending_pool = 0
        self.seen = 0
        self.requests = self.requests_right = self.addresses_right = self.changes = self.changes_right = 0

    def follow(self, kind: int, key: int, size: int, stream: int, pool: int) -> None:
        if kind == EventKind.ALLOC:
            self._alloc(key, size, stream, pool)
        elif kind == EventKind.FREE_REQUESTED:
            if key in self.live:
                self.allocator.request_free(self.live[key])
        elif kind in (EventKind.FREE_COMPLETED, EventKind.FREE):
            if self.pending:
                self.settle()
            block = self.live.pop(key, None)
            if block is not None:
                self.allocator.request_free(block)
                self.allocator.complete_free(block)
        elif kind == EventKind.OOM:
            self._fail(size, stream, pool)
        elif kind in _CHANGES:
            self._note(_CHANGES[kind], key, size, pool)

    def settle(self) -> None:
        """Segments went without a request that needed room: the user emptied the cache."""
        if self.pending:
            self._empty_cache()
            self._compare()

    def result(self) -> Decisions:
        return Decisions(
            requests=self.requests,
            requests_right=self.requests_right,
            addresses_right=self.addresses_right,
            changes=self.changes,
            changes_right=self.changes_right,
            peak_reserved=self.allocator.peak_reserved,
            final_reserved=self.allocator.reserved,
            final_allocated=self.allocator.allocated,
            recorded_peak=self.recorded_peak,
        )

    def _note(self, change: ReservationKind, address: int, size: int, pool: int) -> None:
        self.recorded_now += size if change in _GAINS else -size
        self.recorded_peak = max(self.recorded_peak, self.recorded_now)
        self.pending.append((change, address, size))
        self.pending_pool = pool

    def _alloc(self, key: int, size: int, stream: int, pool: int) -> None:
        self._prepare(size, stream, pool)
        try:
            block = self.allocator.malloc(size, stream, pool)
        except SimulatedOutOfMemory:
            self.device.full = False
            self.device.script.clear()
            block = self.allocator.malloc(size, stream, pool)
        self.live[key] = block
        self.addresses_right += block.address == key
        self._count()

    def _fail(self, size: int, stream: int, pool: int) -> None:
        self._prepare(size, stream, pool)
        self.device.full = True
        try:
            self.allocator.complete_free(self.allocator.malloc(size, stream, pool))
            self.requests_right -= 1
        except SimulatedOutOfMemory:
            pass
        self._count()

    def _prepare(self, size: int, stream: int, pool: int) -> None:
        """Tell a user's empty_cache() before a request from memory given back for the request itself."""
        if not self.pending:
            self.device.full = False
            return
        if self.pending[0][0] not in _GAINS and self._was_emptied(size, stream, pool):
            self._empty_cache()
        self.device.script = deque(self.pending)
        self.device.full = any(change not in _GAINS for change, _, _ in self.pending)
        if len(self.allocator.changes) != self.seen:
            self.device.release(0)

    def _was_emptied(self, size: int, stream: int, pool: int) -> bool:
        """Whether everything that was cached went before the request, not only what the request needed."""
        gains = any(change in _GAINS for change, _, _ in self.pending)
        if not gains or self._would_hit(size, stream, pool):
            return True
        freed = {(address, size) for change, address, size in self.pending if change is ReservationKind.FREE}
        return freed == {(block.address, block.size) for block in self._free(0) if _is_whole(block)}

    def _would_hit(self, requested: int, stream: int, pool: int) -> bool:
        """Whether a cached block would serve a request; nothing changes."""
        size = self.allocator.round(requested)
        return self.allocator.find(self.allocator.pool(size <= SMALL, pool), stream, size) is not None

    def _free(self, pool: int) -> list[Block]:
        return [block for one in self.allocator.pools.get(pool, ()) for block in one.blocks()]

    def _empty_cache(self) -> None:
        """Of a private pool, which nothing needs any more, or of the default one."""
        if not self.pending_pool:
            self.allocator.empty_cache()
            return
        for block in self._free(self.pending_pool):
            if block.range is not None:
                self.allocator.shrink(block)
            elif _is_whole(block):
                self.allocator.release_segment(block)

    def _count(self) -> None:
        self.requests += 1
        if not self.pending and len(self.allocator.changes) == self.seen:
            self.requests_right += 1
            return
        self.requests_right += self._compare()

    def _compare(self) -> bool:
        """Count what was recorded and predicted since the last time."""
        predicted = Counter((change, address, size) for change, address, size, _ in self.allocator.changes[self.seen :])
        recorded = Counter(self.pending)
        right = (predicted & recorded).total()
        total = max(predicted.total(), recorded.total())
        self.changes += total
        self.changes_right += right
        self.pending, self.seen = [], len(self.allocator.changes)
        self.device.script.clear()
        return right == total


def _is_whole(block: Block) -> bool:
    """Whether a free block is a whole segment of fixed size."""
    return block.range is None and not block.is_split
