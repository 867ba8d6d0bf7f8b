"""Which addresses an allocator had reserved from the device, and from which event until which."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tbmem.analysis.allocator.settings import SMALL_SEGMENT
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BEFORE, ReservationKind, SegmentKind, SegmentRows

UNTIL_THE_END = 1 << 62
"""Event at which memory ends that was reserved, or in use, when the recording ended."""
_UNKNOWN = -1


class Reserved(NamedTuple):
    """Reserved memory, piece by piece: addresses, and from which event until which it was reserved."""

    begin: I64
    end: I64
    first: I64
    last: I64
    stream: I64
    kind: I64
    pool: I64
    expandable: I64
    """1 for pages of an expandable segment, else 0."""
    stack: I64
    """Of the allocation that it was reserved for; -1 where unknown."""

    def at(self, event: int) -> Reserved:
        """What was reserved just after an event, by address."""
        there = np.flatnonzero((self.first <= event) & (self.last > event))
        there = there[np.argsort(self.begin[there], kind="stable")]
        return Reserved(*(column[there] for column in self))


@dataclass(slots=True)
class _Piece:
    begin: int
    end: int
    last: int
    stream: int
    kind: int = _UNKNOWN
    pool: int = 0
    expandable: bool = False
    stack: int = _UNKNOWN


def reserved_memory(timeline: AllocationTimeline, device: int) -> Reserved:
    """What was reserved when: the segments at the end, with the changes taken back one by one."""
    changes = timeline.reservations
    changes = changes.take((changes.device == device) & (changes.kind != ReservationKind.REPORTED))
    found: list[tuple[int, ...]] = []
    pieces = _Pieces(_last_pieces(timeline.segments, device))
    names = ("event", "kind", "address", "bytes", "stream", "pool", "stack")
    listed = zip(*(getattr(changes, name).tolist() for name in names), strict=True)
    for event, kind, address, size, stream, pool, stack in reversed(list(listed)):
        end = address + abs(size)
        if kind in (ReservationKind.FREE, ReservationKind.UNMAP):
            whole = kind == ReservationKind.FREE
            of_size = SegmentKind.SMALL if abs(size) == SMALL_SEGMENT else SegmentKind.LARGE
            kind_of = int(of_size) if whole else _UNKNOWN
            pieces.add(_Piece(address, end, event, stream, kind_of, max(pool, 0), not whole))
        else:
            found += [_columns(piece, event, stack) for piece in pieces.cut(address, end)]
    found += [_columns(piece, BEFORE, piece.stack) for piece in pieces.left()]
    table = np.array(found, np.int64).reshape(-1, len(Reserved._fields))
    return Reserved(*table.T)


def _last_pieces(segments: SegmentRows, device: int) -> list[_Piece]:
    rows = segments.take(segments.device == device)
    columns = (rows.address, rows.bytes, rows.stream, rows.kind, rows.pool, rows.expandable, rows.stack)
    return [
        _Piece(address, address + size, UNTIL_THE_END, stream, kind, pool, expandable > 0, stack)
        for address, size, stream, kind, pool, expandable, stack in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _columns(piece: _Piece, first: int, stack: int) -> tuple[int, ...]:
    place = piece.begin, piece.end, first, piece.last
    return *place, piece.stream, piece.kind, piece.pool, int(piece.expandable), stack


class _Pieces:
    """Pieces of reserved memory by address; they do not overlap."""

    def __init__(self, pieces: list[_Piece]) -> None:
        self._of = {piece.begin: piece for piece in pieces}
        self._starts = sorted(self._of)

    def add(self, piece: _Piece) -> None:
        if piece.begin not in self._of:
            insort(self._starts, piece.begin)
        self._of[piece.begin] = piece

    def cut(self, begin: int, end: int) -> Iterator[_Piece]:
        """Take out what lies between two addresses; the rest of a piece that goes beyond remains."""
        at = max(bisect_right(self._starts, begin) - 1, 0)
        while at < len(self._starts) and self._starts[at] < end:
            piece = self._of[self._starts[at]]
            if piece.end <= begin:
                at += 1
                continue
            del self._of[self._starts.pop(at)]
            if piece.begin < begin:
                self.add(replace(piece, end=begin))
                at += 1
            if piece.end > end:
                self.add(replace(piece, begin=end))
            yield replace(piece, begin=max(piece.begin, begin), end=min(piece.end, end))

    def left(self) -> Iterator[_Piece]:
        return iter(self._of.values())
