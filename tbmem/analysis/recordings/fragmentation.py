"""Cached, fragmented and never used memory of a recording, and the sizes of its blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tbmem.analysis.allocator.settings import SMALL_SEGMENT
from tbmem.analysis.recordings.breakdown import percent
from tbmem.analysis.recordings.result import Analysis, Fragmentation
from tbmem.model.columns import I64
from tbmem.model.oom import AllocatorUsage
from tbmem.model.timeline import AllocationTimeline, Peak
from tbmem.model.timeline_tables import BlockState, MarkKind, SegmentKind
from tbmem.units import MIB

EXCELLENT, GOOD = 98, 95
_LARGE_PAGE = 20 * MIB
"""Page of an expandable segment of the large pool (c10's ``kLargeBuffer``)."""
_MIN_EXPONENT = 9
"""Exponent of 512 bytes, to which torch rounds; smaller sizes are counted there."""


def fragmentation_of(timeline: AllocationTimeline, device: int) -> Fragmentation:
    """Reserved memory of a device that is not in use, by kind."""
    totals, marks = timeline.devices[device], timeline.marks
    segments, blocks = timeline.segments, timeline.blocks
    failures = marks.bytes[(marks.device == device) & (marks.kind == MarkKind.OOM)]
    failed = int(failures[-1]) if len(failures) else None
    on_device = segments.device == device
    if totals.reserved_bytes is None or not on_device.any():
        used = totals.active_bytes if totals.active_bytes is not None else totals.allocated_bytes
        free = None if totals.reserved_bytes is None or used is None else totals.reserved_bytes - used
        return Fragmentation(free_bytes=free, failing_request_bytes=failed)
    pieces = pieces_of(timeline, device)
    gap = (blocks.state == BlockState.INACTIVE) & (on_device & (segments.active_bytes > 0))[blocks.segment]
    pending = (blocks.state == BlockState.PENDING_FREE) & on_device[blocks.segment]
    return Fragmentation(
        free_bytes=pieces.free,
        cached_bytes=pieces.cached,
        cached_in_pages_bytes=int(cached_of_blocks(timeline)[gap].sum()),
        fragmented_bytes=pieces.fragmented,
        rounding_loss_bytes=pieces.active - int(segments.requested_bytes[on_device].sum()),
        pending_free_bytes=int(blocks.bytes[pending].sum()),
        largest_free_block_bytes=pieces.largest_free,
        largest_gap_bytes=int(blocks.bytes[gap].max(initial=0)),
        gaps=int(gap.sum()),
        fragmented_percent=percent(pieces.fragmented, pieces.reserved),
        failing_request_bytes=failed,
        failing_request_fits_free_sum=None if failed is None else pieces.free >= failed,
    )


def pieces_of(timeline: AllocationTimeline, device: int) -> AllocatorUsage:
    """Memory that the allocator holds of a device, computed block by block; the one definition of cached memory."""
    segments, blocks = timeline.segments, timeline.blocks
    on_device = segments.device == device
    free = (blocks.state == BlockState.INACTIVE) & on_device[blocks.segment]
    reserved, active = int(segments.bytes[on_device].sum()), int(segments.active_bytes[on_device].sum())
    cached = int(cached_of_segments(timeline)[on_device].sum())
    return AllocatorUsage(
        reserved=reserved,
        active=active,
        cached=cached,
        fragmented=reserved - active - cached,
        largest_free=int(blocks.bytes[free].max(initial=0)),
    )


def cached_of_segments(timeline: AllocationTimeline) -> I64:
    """Bytes of each segment that can be returned: all of a free one, whole free pages of an expandable one."""
    segments, blocks = timeline.segments, timeline.blocks
    pages = np.bincount(blocks.segment, cached_of_blocks(timeline), len(segments)).astype(np.int64)
    return np.where(segments.active_bytes == 0, segments.bytes, pages)


def cached_of_blocks(timeline: AllocationTimeline) -> I64:
    """Bytes of each block that can be returned; of an expandable segment what c10's ``ExpandableSegment`` can unmap."""
    segments, blocks = timeline.segments, timeline.blocks
    segment = blocks.segment
    page = np.where(segments.kind[segment] == SegmentKind.SMALL, SMALL_SEGMENT, _LARGE_PAGE)
    begin = (blocks.address - segments.address[segment]).astype(np.int64)
    pages = np.maximum((begin + blocks.bytes) // page - -(-begin // page), 0) * page
    in_use = np.where(segments.expandable[segment] > 0, pages, 0)
    free = np.where(segments.active_bytes[segment] == 0, blocks.bytes, in_use)
    return np.where(blocks.state == BlockState.INACTIVE, free, 0)


def efficiency(peak: Peak, reserved: Peak | None) -> tuple[int | None, float | None, str]:
    """Reserved bytes that were never in use, the peak in percent of the reserved peak, and its grade.

    They are not known if the peak is the recording's beginning, or if the recording misses some of the reserved memory.
    """
    if reserved is None or peak.event < 0 or not 0 < peak.bytes <= reserved.bytes:
        return None, None, "unknown"
    value = 100 * peak.bytes / reserved.bytes
    grade = "excellent" if value > EXCELLENT else "good" if value >= GOOD else "poor"
    return reserved.bytes - peak.bytes, round(value, 3), grade


class Histogram(NamedTuple):
    """Blocks by size, in powers of two: smallest size, number and sum of each bin."""

    least: I64
    blocks: I64
    bytes: I64


class BlockSizes(NamedTuple):
    """Sizes of used and free blocks, in the same bins."""

    active: Histogram
    moment: str
    """``'at the end'`` if the file lists the blocks then, else ``'at the peak'``."""
    gaps: Histogram
    """Free blocks between used ones."""
    cached: Histogram
    """Free blocks of segments without a used one."""


def block_sizes(analysis: Analysis, device: int) -> BlockSizes:
    """Sizes of the blocks of a device."""
    timeline = analysis.timeline
    blocks, segments = timeline.blocks, timeline.segments
    on_device = segments.device[blocks.segment] == device
    used = blocks.state != BlockState.INACTIVE
    gap = on_device & ~used & (segments.active_bytes[blocks.segment] > 0)
    active, moment = blocks.bytes[on_device & used], "at the end"
    if not len(active):
        peak = analysis.devices[device].peak
        active, moment = timeline.rows.bytes[timeline.alive_at(device, peak.event)], "at the peak"
    kinds = (active, blocks.bytes[gap], blocks.bytes[on_device & ~used & ~gap])
    bins = _bin_of(np.concatenate(kinds))
    first, end = int(bins.min(initial=bins.max(initial=0) + 1)), int(bins.max(initial=0)) + 1
    active_sizes, gaps, cached = (_histogram(sizes, first, end) for sizes in kinds)
    return BlockSizes(active_sizes, moment, gaps, cached)


def _bin_of(sizes: I64) -> I64:
    """Exponent of the next lower power of two, counted from the smallest bin."""
    exponent = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1].astype(np.int64) - 1
    return np.maximum(exponent - _MIN_EXPONENT, 0)


def _histogram(sizes: I64, first: int, end: int) -> Histogram:
    sizes = sizes[sizes > 0]
    number = _bin_of(sizes)
    count = np.bincount(number, minlength=end)[first:].astype(np.int64)
    summed = np.bincount(number, weights=sizes, minlength=end)[first:].astype(np.int64)
    return Histogram(1 << (np.arange(first, end) + _MIN_EXPONENT), count, summed)
