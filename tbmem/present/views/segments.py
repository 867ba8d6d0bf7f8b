"""The allocator's segments and blocks at the end of a recording (``recordings.Segments``)."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from tbmem.analysis.recordings.fragmentation import cached_of_blocks, cached_of_segments
from tbmem.analysis.recordings.result import DeviceAnalysis, Share
from tbmem.model.category import word_of
from tbmem.model.columns import I8, I64
from tbmem.model.timeline_tables import BlockRows, BlockState, SegmentKind, SegmentRows
from tbmem.present.figures.figures import reserved_parts
from tbmem.present.palette import category_colour
from tbmem.present.views.empty_states import NO_SEGMENTS
from tbmem.present.views.peak import shares_of
from tbmem.present.views.recording_schema import BlockColumns, SegmentColumns, Segments, Shares
from tbmem.present.views.recording_view import Subject

_MOST_SEGMENTS = 3000
_MOST_BLOCKS = 20_000
_CELLS = 2000
"""A segment is drawn on at most so many pixels."""
FRAGMENTED, ALLOCATED, WAITING, CACHED = range(4)


def segments_view(subject: Subject, device: str | None = None) -> Segments:
    """The state of a device's allocator.

    Raises:
        UsageError: There is no such device.
    """
    one = subject.device(device)
    timeline = subject.analysis.timeline
    own = np.flatnonzero(timeline.segments.device == one.number)
    order = own[np.argsort(-timeline.segments.bytes[own], kind="stable")]
    kept, start, blocks, state = _chosen(subject, order)
    names = subject.analysis.labels.names
    return {
        "head": subject.head(one),
        "reserved": one.reserved_bytes,
        "allocated": one.allocated_bytes,
        "capacity": one.total_bytes,
        "efficiency_percent": one.efficiency_percent,
        "reserved_peak": one.peak_reserved_bytes,
        "grade": one.grade,
        "fragmentation": asdict(one.fragmentation),
        "parts": _parts(one),
        "names": list(names),
        "words": [word_of(name) for name in names],
        "colours": [category_colour(name) for name in names],
        "segments": _segments(subject, timeline.segments.take(kept), cached_of_segments(timeline)[kept], start),
        "blocks": _blocks(subject, timeline.segments, blocks, state),
        "segments_count": len(own),
        "blocks_count": int((timeline.segments.device[timeline.blocks.segment] == one.number).sum()),
        "empty": None if len(own) else NO_SEGMENTS,
    }


def _parts(device: DeviceAnalysis) -> Shares:
    parts = reserved_parts(device)
    total = sum(part.bytes for part in parts)
    shares = [
        Share(name=part.name, bytes=part.bytes, count=0, percent=round(100 * part.bytes / max(total, 1), 3))
        for part in parts
    ]
    found = shares_of(shares)
    found["colour"] = [part.colour for part in parts]
    return found


def _chosen(subject: Subject, order: I64) -> tuple[I64, I64, BlockRows, I8]:
    """Segments that fit into an answer, and their blocks, those that share a pixel put together."""
    timeline = subject.analysis.timeline
    blocks, segments = timeline.blocks, timeline.segments
    place = np.full(len(segments), len(order), np.int64)
    place[order] = np.arange(len(order))
    own = np.flatnonzero(place[blocks.segment] < min(len(order), _MOST_SEGMENTS))
    own = own[np.lexsort((blocks.address[own], place[blocks.segment[own]]))]
    rows = blocks.take(own)
    free = np.where(2 * cached_of_blocks(timeline)[own] > rows.bytes, CACHED, FRAGMENTED)
    state = np.where(rows.state == BlockState.INACTIVE, free, rows.state).astype(np.int8)
    rows, state = _merged(rows, state, segments)
    counts = np.bincount(place[rows.segment], minlength=min(len(order), _MOST_SEGMENTS))
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    fits = max(int(np.searchsorted(start, _MOST_BLOCKS, "right")) - 1, min(1, len(counts)))
    last = int(start[fits])
    return order[:fits], start[: fits + 1], rows.take(slice(0, last)), state[:last]


def _merged(rows: BlockRows, state: I8, segments: SegmentRows) -> tuple[BlockRows, I8]:
    """Neighbours of one state in one pixel become one block without a row."""
    if not len(rows):
        return rows, state
    offset = (rows.address - segments.address[rows.segment]).astype(np.int64)
    cell = offset * _CELLS // np.maximum(segments.bytes[rows.segment], 1)
    small = rows.bytes * _CELLS < segments.bytes[rows.segment]
    same = (rows.segment[1:] == rows.segment[:-1]) & (cell[1:] == cell[:-1]) & (state[1:] == state[:-1])
    begins = np.flatnonzero(np.insert(~(same & small[1:] & small[:-1]), 0, True))
    if len(begins) == len(rows):
        return rows, state
    lengths = np.diff(begins, append=len(rows))
    first = rows.take(begins)
    merged = first.replace(
        bytes=np.add.reduceat(rows.bytes, begins),
        requested_bytes=np.add.reduceat(rows.requested_bytes, begins),
        row=np.where(lengths > 1, -1, first.row),
    )
    return merged, state[begins]


def _segments(subject: Subject, rows: SegmentRows, cached: I64, start: I64) -> SegmentColumns:
    pools = subject.analysis.timeline.pools
    return {
        "address": [f"0x{address:x}" for address in rows.address.tolist()],
        "bytes": rows.bytes.tolist(),
        "allocated": rows.allocated_bytes.tolist(),
        "active": rows.active_bytes.tolist(),
        "requested": rows.requested_bytes.tolist(),
        "cached": cached.tolist(),
        "fragmented": (rows.bytes - rows.active_bytes - cached).tolist(),
        "stream": rows.stream.tolist(),
        "kind": [SegmentKind(kind).name.lower() for kind in rows.kind.tolist()],
        "pool": [_pool(pools, number) for number in rows.pool.tolist()],
        "expandable": (rows.expandable == 1).tolist(),
        "start": start.tolist(),
    }


def _pool(pools: tuple[tuple[int, int], ...], number: int) -> str:
    if number < 0 or pools[number] == (0, 0):
        return "default"
    return f"{pools[number][0]}, {pools[number][1]}"


def _blocks(subject: Subject, segments: SegmentRows, rows: BlockRows, state: I8) -> BlockColumns:
    code = np.append(subject.analysis.labels.code, -1)
    return {
        "offset": (rows.address - segments.address[rows.segment]).astype(np.int64).tolist(),
        "bytes": rows.bytes.tolist(),
        "requested": rows.requested_bytes.tolist(),
        "state": state.tolist(),
        "category": code[rows.row].tolist(),
        "row": rows.row.tolist(),
    }
