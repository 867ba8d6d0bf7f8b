"""Cached, fragmented and never used memory of a recording, and the sizes of its blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.allocator.sizes import SMALL_SEGMENT
from tbmem.analysis.recordings.breakdown import percent
from tbmem.analysis.recordings.result import Analysis, Fragmentation
from tbmem.model.columns import I64
from tbmem.model.oom import Pieces
from tbmem.model.timeline import AllocationTimeline, Peak
from tbmem.model.timeline_tables import BlockState, MarkKind, SegmentKind
from tbmem.units import MIB

_EXCELLENT, _GOOD = 98, 95
_LARGE_PAGE = 20 * MIB
"""Page of an expandable segment of the large pool (c10's ``kLargeBuffer``)."""
_SMALLEST = 9
"""512 bytes, by which torch rounds: what is smaller is counted there."""


def fragmentation_of(timeline: AllocationTimeline, device: int) -> Fragmentation:
    """Where the reserved memory of a device lies that nobody uses."""
    totals = timeline.devices[device]
    own = timeline.segments.device == device
    failed = _failing_request(timeline, device)
    if totals.reserved_bytes is None:
        return Fragmentation(failing_request_bytes=failed)
    if not own.any():
        used = totals.active_bytes if totals.active_bytes is not None else totals.allocated_bytes
        free = None if used is None else totals.reserved_bytes - used
        return Fragmentation(free_bytes=free, failing_request_bytes=failed)
    segments, blocks = timeline.segments, timeline.blocks
    pieces = pieces_of(timeline, device)
    in_use = own & (segments.active_bytes > 0)
    gap = (blocks.state == BlockState.INACTIVE) & in_use[blocks.segment]
    pending = (blocks.state == BlockState.PENDING_FREE) & own[blocks.segment]
    return Fragmentation(
        free_bytes=pieces.free,
        cached_bytes=pieces.cached,
        cached_in_pages_bytes=int(cached_of_blocks(timeline)[gap].sum()),
        fragmented_bytes=pieces.fragmented,
        rounding_loss_bytes=pieces.active - int(segments.requested_bytes[own].sum()),
        pending_free_bytes=int(blocks.bytes[pending].sum()),
        largest_free_block_bytes=pieces.largest_free,
        largest_gap_bytes=int(blocks.bytes[gap].max(initial=0)),
        gaps=int(gap.sum()),
        fragmented_percent=percent(pieces.fragmented, pieces.reserved),
        failing_request_bytes=failed,
        failing_request_fits_free_sum=None if failed is None else pieces.free >= failed,
    )


def pieces_of(timeline: AllocationTimeline, device: int) -> Pieces:
    """What the allocator holds of a device, block by block: the one place that tells cached from fragmented."""
    segments, blocks = timeline.segments, timeline.blocks
    own = segments.device == device
    free = (blocks.state == BlockState.INACTIVE) & own[blocks.segment]
    reserved, active = int(segments.bytes[own].sum()), int(segments.active_bytes[own].sum())
    cached = int(cached_of_segments(timeline)[own].sum())
    return Pieces(
        reserved=reserved,
        active=active,
        cached=cached,
        fragmented=reserved - active - cached,
        largest_free=int(blocks.bytes[free].max(initial=0)),
    )


def cached_of_segments(timeline: AllocationTimeline) -> I64:
    """Of each segment the bytes that can go back to the device: all of a free one, whole pages of an expandable one."""
    segments, blocks = timeline.segments, timeline.blocks
    pages = np.bincount(blocks.segment, cached_of_blocks(timeline), len(segments)).astype(np.int64)
    found: I64 = np.where(segments.active_bytes == 0, segments.bytes, pages)
    return found


def cached_of_blocks(timeline: AllocationTimeline) -> I64:
    """Of each block the bytes that can go back: of expandable segments what c10's ``ExpandableSegment`` can unmap."""
    segments, blocks = timeline.segments, timeline.blocks
    segment = blocks.segment
    page = np.where(segments.kind[segment] == SegmentKind.SMALL, SMALL_SEGMENT, _LARGE_PAGE)
    begin = (blocks.address - segments.address[segment]).astype(np.int64)
    pages = np.maximum((begin + blocks.bytes) // page - -(-begin // page), 0) * page
    in_use = np.where(segments.expandable[segment] > 0, pages, 0)
    free = np.where(segments.active_bytes[segment] == 0, blocks.bytes, in_use)
    found: I64 = np.where(blocks.state == BlockState.INACTIVE, free, 0)
    return found


def _failing_request(timeline: AllocationTimeline, device: int) -> int | None:
    """What the last out-of-memory asked for."""
    marks = timeline.marks
    at = np.flatnonzero((marks.device == device) & (marks.kind == MarkKind.OOM))
    return int(marks.bytes[at[-1]]) if len(at) else None


def efficiency(peak: Peak, reserved: Peak | None) -> tuple[int | None, float | None, str]:
    """How well the allocator served the peak: what a step's end leaves free serves the next peak, and is no loss.

    Args:
        peak: The most that was in use at once.
        reserved: The most that was reserved; ``None`` if not known.

    Returns:
        Reserved bytes that were never in use, the peak in percent of the reserved ones, and its grade. Nothing is known
        where no event rose to the peak, as what the memory was reserved for came before the recording, or where less
        was reserved than used, as the recording has not seen all of it.
    """
    if reserved is None or peak.event < 0 or not 0 < peak.bytes <= reserved.bytes:
        return None, None, "unknown"
    value = 100 * peak.bytes / reserved.bytes
    grade = "excellent" if value > _EXCELLENT else "good" if value >= _GOOD else "poor"
    return reserved.bytes - peak.bytes, round(value, 3), grade


class Histogram(NamedTuple):
    """Blocks by size; a class is as wide as a power of two."""

    least: I64
    """Smallest size of each class."""
    blocks: I64
    """How many there are of each class."""
    bytes: I64
    """All of the class together."""


class Sizes(NamedTuple):
    """Sizes of what is used and of what is free; all three have the same classes."""

    active: Histogram
    moment: str
    """``'at the end'`` where the file lists the blocks of that moment, else ``'at the peak'``."""
    gaps: Histogram
    """Free blocks between used ones."""
    cached: Histogram
    """Free blocks of segments without a used one."""


def sizes_of(analysis: Analysis, device: int) -> Sizes:
    """Sizes of the blocks on one device."""
    timeline = analysis.timeline
    blocks, segments = timeline.blocks, timeline.segments
    own = segments.device[blocks.segment] == device
    used = blocks.state != BlockState.INACTIVE
    gap = own & ~used & (segments.active_bytes[blocks.segment] > 0)
    active, moment = blocks.bytes[own & used], "at the end"
    if not len(active):
        peak = analysis.devices[device].peak
        active, moment = timeline.rows.bytes[timeline.alive_at(device, peak.event)], "at the peak"
    kinds = (active, blocks.bytes[gap], blocks.bytes[own & ~used & ~gap])
    classes = max([_class_of(sizes).max(initial=0) for sizes in kinds]) + 1
    first = min([_class_of(sizes).min(initial=classes) for sizes in kinds])
    found = [_histogram(sizes, int(first), int(classes)) for sizes in kinds]
    return Sizes(found[0], moment, found[1], found[2])


def _class_of(sizes: I64) -> I64:
    """Exponent of the power of two that is not larger, counted from the smallest class."""
    exponent = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1].astype(np.int64) - 1
    return np.maximum(exponent - _SMALLEST, 0)


def _histogram(sizes: I64, first: int, classes: int) -> Histogram:
    sizes = sizes[sizes > 0]
    place = _class_of(sizes)
    count = np.bincount(place, minlength=classes)[first:]
    summed = np.bincount(place, weights=sizes, minlength=classes)[first:].astype(np.int64)
    return Histogram(1 << (np.arange(first, classes) + _SMALLEST), count.astype(np.int64), summed)
