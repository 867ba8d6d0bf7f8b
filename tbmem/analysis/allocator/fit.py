"""Whether one more request would be served in a given state of an allocator, by which memory, or why not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tbmem.analysis.allocator.blocks import Block, Range
from tbmem.analysis.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemory
from tbmem.analysis.allocator.segments import UNKNOWN_CAPACITY, SimpleDevice
from tbmem.analysis.allocator.settings import SMALL, SMALL_SEGMENT
from tbmem.analysis.allocator.what_if import recorded_settings
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockState, ReservationKind, SegmentKind
from tbmem.units import format_bytes

_UNCERTAIN = "fits if the device has room"
"""The recording does not say how much memory the device has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the allocator would do with a request; bytes."""

    requested: int
    block: int
    """Bytes of the block, after rounding."""
    fits: bool
    verdict: str
    """``'fits'``, ``'does not fit'``, or under which condition it fits."""
    sentence: str
    stream: int
    free: int
    """In free blocks of the request's pool and stream."""
    largest_free: int
    """The largest of them."""
    free_blocks: int
    device_free: int | None
    """What the device could still give; ``None`` if its size is not known."""


def fit_of(state: AllocationTimeline, device: int, requested: int, room: int | None) -> Fit:
    """Try a request on the stream that holds most memory, in the default pool.

    Args:
        state: A recording whose segments and blocks are those of the moment.
        device: Its number.
        requested: Bytes, more than 0.
        room: Bytes that the process can reserve in all; ``None`` if not known.
    """
    allocator = _allocator_of(state, device, room)
    segments = state.segments.take(state.segments.device == device)
    streams, index = np.unique(segments.stream, return_inverse=True)
    stream = int(streams[np.argmax(np.bincount(index, segments.bytes))]) if len(streams) else 0
    size = allocator.round(requested)
    free = [entry[0] for entry in allocator.pool(size <= SMALL, 0).free[stream]]
    before = allocator.reserved
    try:
        block: Block | None = allocator.malloc(requested, stream)
    except SimulatedOutOfMemory as failure:
        block, verdict, sentence = None, "does not fit", f"{failure}."
    else:
        is_certain = room is not None or not allocator.changes
        verdict, sentence = "fits" if is_certain else _UNCERTAIN, _served(allocator, size, free)
    return Fit(
        requested=requested,
        block=size,
        fits=block is not None,
        verdict=verdict,
        sentence=sentence,
        stream=stream,
        free=sum(free),
        largest_free=max(free, default=0),
        free_blocks=len(free),
        device_free=None if room is None else max(room - before, 0),
    )


def _served(allocator: CachingAllocator, size: int, free: list[int]) -> str:
    changes = allocator.changes
    if not changes:
        return f"A free block of {format_bytes(min(one for one in free if one >= size))} takes it."
    added = sum(one.size for one in changes if one.change in (ReservationKind.ALLOC, ReservationKind.MAP))
    released = sum(one.size for one in changes) - added
    first = f"{format_bytes(released)} of cache are returned to the device, then " if released else ""
    largest = f"The largest free block of its pool and stream has {format_bytes(max(free, default=0))}"
    return f"{largest}: {first}{format_bytes(added)} more are reserved from the device."


def _allocator_of(state: AllocationTimeline, device: int, room: int | None) -> CachingAllocator:
    """The simulated allocator with the segments and blocks of a state."""
    reserved = int(state.segments.bytes[state.segments.device == device].sum())
    allocator = CachingAllocator(recorded_settings(state), SimpleDevice(room or UNKNOWN_CAPACITY, reserved))
    allocator.reserved = reserved
    order = np.argsort(state.blocks.segment, kind="stable")
    first = np.searchsorted(state.blocks.segment[order], np.arange(len(state.segments) + 1))
    for number in np.flatnonzero(state.segments.device == device).tolist():
        _add_segment(allocator, state, number, order[first[number] : first[number + 1]].tolist())
    return allocator


def _add_segment(allocator: CachingAllocator, state: AllocationTimeline, number: int, blocks: list[int]) -> None:
    segments, table = state.segments, state.blocks
    small, stream = segments.kind[number] == SegmentKind.SMALL, int(segments.stream[number])
    pool = allocator.pool(bool(small), max(int(segments.pool[number]), 0))
    space = None
    if segments.expandable[number] > 0:
        page = SMALL_SEGMENT if small else allocator.settings.large_segment_size
        space = Range(int(segments.address[number]), int(segments.bytes[number]) + allocator.device.total, page)
    last: Block | None = None
    for at in blocks:
        block = Block(pool, stream, int(table.address[at]), int(table.bytes[at]), 0, space)
        block.busy = table.state[at] != BlockState.INACTIVE
        block.allocated = table.state[at] == BlockState.ALLOCATED
        allocator.active += block.size * block.busy
        allocator.allocated += block.size * block.allocated
        if last is not None:
            block.insert_after(last)
        if not block.busy:
            pool.add(block)
        last = block
    if space is not None and last is not None:
        rest = Block(pool, stream, last.address + last.size, allocator.device.total, 0, space, mapped=False)
        rest.insert_after(last)
        pool.add(rest)
