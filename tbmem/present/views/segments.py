"""The allocator's segments and blocks at the end of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tbmem.analysis.recordings.fragmentation import cached_of_blocks, cached_of_segments
from tbmem.analysis.recordings.result import DeviceAnalysis, Share
from tbmem.model.category import word_of
from tbmem.model.columns import I8, I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockRows, BlockState, SegmentKind, SegmentRows
from tbmem.present.figures.figures import reserved_parts
from tbmem.present.palette import category_colour
from tbmem.present.views.empty_states import NO_SEGMENTS
from tbmem.present.views.peak import shares_of
from tbmem.present.views.recording_view import RecordingView

_MOST_SEGMENTS = 3000
_MOST_BLOCKS = 20_000
_CELLS = 2000
"""Pixels that a segment is drawn on at most."""
FRAGMENTED, ALLOCATED, WAITING, CACHED = range(4)
"""States of blocks; a free one is fragmented or cached as most of its bytes are."""


def segments_view(recording: RecordingView, device: str | None = None) -> dict[str, Any]:
    """The state of a device's allocator.

    Raises:
        UsageError: There is no such device.
    """
    selected = recording.device(device)
    timeline = recording.analysis.timeline
    on_device = np.flatnonzero(timeline.segments.device == selected.number)
    largest_first = on_device[np.argsort(-timeline.segments.bytes[on_device], kind="stable")]
    return {
        "head": recording.head(selected),
        "reserved": selected.reserved_bytes,
        "allocated": selected.allocated_bytes,
        "capacity": selected.total_bytes,
        "efficiency_percent": selected.efficiency_percent,
        "reserved_peak": selected.peak_reserved_bytes,
        "grade": selected.grade,
        "fragmentation": asdict(selected.fragmentation),
        "parts": _parts(selected),
        **block_map(recording, timeline, largest_first),
        "empty": None if len(on_device) else NO_SEGMENTS,
    }


def block_map(recording: RecordingView, timeline: AllocationTimeline, order: I64) -> dict[str, Any]:
    """The segments of a state in a given order, and their blocks; ``timeline`` has that state's segments and blocks."""
    listed, start, blocks, state = _listed(timeline, order)
    names = recording.analysis.labels.names
    return {
        "names": list(names),
        "words": [word_of(name) for name in names],
        "colours": [category_colour(name) for name in names],
        "settings": {key: str(value) for key, value in timeline.settings.items()},
        "segments": _segments(timeline, timeline.segments.take(listed), cached_of_segments(timeline)[listed], start),
        "blocks": _blocks(recording, timeline.segments, blocks, state),
        "segments_count": len(order),  # more than listed if the answer would be too long
        "blocks_count": int(np.isin(timeline.blocks.segment, order).sum()),
    }


def pool_name(pools: Sequence[tuple[int, int]], number: int) -> str:
    """A memory pool as torch numbers it; one that is not known is taken for the default one."""
    pool = pools[number] if 0 <= number < len(pools) else (0, 0)
    return "default" if pool == (0, 0) else f"{pool[0]}, {pool[1]}"


def _parts(device: DeviceAnalysis) -> dict[str, list[Any]]:
    parts = reserved_parts(device)
    total = sum(part.bytes for part in parts)
    percents = [round(100 * part.bytes / max(total, 1), 3) for part in parts]
    shares = [
        Share(name=part.name, bytes=part.bytes, count=0, percent=percent)
        for part, percent in zip(parts, percents, strict=True)
    ]
    return shares_of(shares) | {"colour": [part.colour for part in parts]}


def _listed(timeline: AllocationTimeline, order: I64) -> tuple[I64, I64, BlockRows, I8]:
    """Segments that fit into an answer, where their blocks begin, and the blocks, merged where they share a pixel."""
    blocks, segments = timeline.blocks, timeline.segments
    rank = np.full(len(segments), len(order), np.int64)
    rank[order] = np.arange(len(order))
    chosen = np.flatnonzero(rank[blocks.segment] < min(len(order), _MOST_SEGMENTS))
    chosen = chosen[np.lexsort((blocks.address[chosen], rank[blocks.segment[chosen]]))]
    rows = blocks.take(chosen)
    free = np.where(2 * cached_of_blocks(timeline)[chosen] > rows.bytes, CACHED, FRAGMENTED)
    state = np.where(rows.state == BlockState.INACTIVE, free, rows.state).astype(np.int8)
    rows, state = _merged(rows, state, segments)
    counts = np.bincount(rank[rows.segment], minlength=min(len(order), _MOST_SEGMENTS))
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    fits = max(int(np.searchsorted(start, _MOST_BLOCKS, "right")) - 1, min(1, len(counts)))
    last = int(start[fits])
    return order[:fits], start[: fits + 1], rows.take(slice(0, last)), state[:last]


def _merged(rows: BlockRows, state: I8, segments: SegmentRows) -> tuple[BlockRows, I8]:
    """Merge neighbours of the same state in the same pixel into one block without a row."""
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


def _segments(timeline: AllocationTimeline, rows: SegmentRows, cached: I64, start: I64) -> dict[str, list[Any]]:
    """One entry per segment, the largest first; ``start`` is where its blocks begin, with one entry more at the end."""
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
        "pool": [pool_name(timeline.pools, number) for number in rows.pool.tolist()],
        "expandable": (rows.expandable == 1).tolist(),
        "start": start.tolist(),
    }


def _blocks(recording: RecordingView, segments: SegmentRows, rows: BlockRows, state: I8) -> dict[str, list[Any]]:
    """One entry per block, by segment and offset in it; a category of -1 is none, as a row."""
    code = np.append(recording.analysis.labels.code, -1)
    return {
        "offset": (rows.address - segments.address[rows.segment]).astype(np.int64).tolist(),
        "bytes": rows.bytes.tolist(),
        "requested": rows.requested_bytes.tolist(),
        "state": state.tolist(),
        "category": code[rows.row].tolist(),
        "row": rows.row.tolist(),
    }
