"""Segments and blocks at the end go in; what is cached, what is fragmented and what rounding costs comes out."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.allocator.sizes import SMALL_SEGMENT
from tbmem.analysis.breakdown import percent
from tbmem.analysis.report import Fragmentation
from tbmem.model.columns import Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockState, MarkKind, SegmentKind
from tbmem.units import MIB

_EXCELLENT, _GOOD = 98, 95
_LARGE_PAGE = 20 * MIB
"""Page of an expandable segment of the large pool (c10's ``kLargeBuffer``)."""


def fragmentation_of(timeline: AllocationTimeline, device: int) -> Fragmentation:
    """Where the reserved memory of a device lies that nobody uses."""
    totals = timeline.devices[device]
    own = timeline.segments.device == device
    failed = _failing_request(timeline, device)
    if totals.reserved_bytes is None:
        return Fragmentation(failing_request_bytes=failed)
    if not own.any():
        used = totals.active_bytes if totals.active_bytes is not None else totals.allocated_bytes
        cached = None if used is None else totals.reserved_bytes - used
        return Fragmentation(cached_bytes=cached, failing_request_bytes=failed)
    segments, blocks = timeline.segments, timeline.blocks
    whole = own & (segments.active_bytes == 0)
    free = (blocks.state == BlockState.INACTIVE) & own[blocks.segment]
    gap = free & ~whole[blocks.segment]
    reserved, active = int(segments.bytes[own].sum()), int(segments.active_bytes[own].sum())
    in_whole = int(segments.bytes[whole].sum())
    pending = (blocks.state == BlockState.PENDING_FREE) & own[blocks.segment]
    return Fragmentation(
        cached_bytes=reserved - active,
        free_in_whole_segments_bytes=in_whole,
        free_in_gaps_bytes=reserved - active - in_whole,
        free_in_pages_bytes=_whole_pages(timeline, gap),
        rounding_loss_bytes=active - int(segments.requested_bytes[own].sum()),
        pending_free_bytes=int(blocks.bytes[pending].sum()),
        largest_free_block_bytes=int(blocks.bytes[free].max(initial=0)),
        largest_gap_bytes=int(blocks.bytes[gap].max(initial=0)),
        gaps=int(gap.sum()),
        gap_percent=percent(reserved - active - in_whole, reserved),
        failing_request_bytes=failed,
        failing_request_fits_free_sum=None if failed is None else reserved - active >= failed,
    )


def _whole_pages(timeline: AllocationTimeline, gap: Bools) -> int:
    """Bytes of whole pages in free blocks of expandable segments, which c10's ``ExpandableSegment`` can unmap."""
    segments, blocks = timeline.segments, timeline.blocks
    at = np.flatnonzero(gap & (segments.expandable[blocks.segment] > 0))
    segment = blocks.segment[at]
    page = np.where(segments.kind[segment] == SegmentKind.SMALL, SMALL_SEGMENT, _LARGE_PAGE)
    begin = (blocks.address[at] - segments.address[segment]).astype(np.int64)
    pages = (begin + blocks.bytes[at]) // page - -(-begin // page)
    return int((np.maximum(pages, 0) * page).sum())


def _failing_request(timeline: AllocationTimeline, device: int) -> int | None:
    """What the last out-of-memory asked for."""
    marks = timeline.marks
    at = np.flatnonzero((marks.device == device) & (marks.kind == MarkKind.OOM))
    return int(marks.bytes[at[-1]]) if len(at) else None


def efficiency(allocated: int | None, reserved: int | None) -> tuple[float | None, str]:
    """Allocated of reserved in percent, and its grade."""
    if allocated is None or not reserved:
        return None, "unknown"
    value = 100 * allocated / reserved
    grade = "excellent" if value > _EXCELLENT else "good" if value >= _GOOD else "poor"
    return round(value, 3), grade
