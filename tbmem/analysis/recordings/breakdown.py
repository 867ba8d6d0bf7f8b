"""Breakdowns of the memory at the peak, by any code of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.recordings.result import Share
from tbmem.model.category import Basis
from tbmem.model.columns import I64
from tbmem.model.progress import progress
from tbmem.model.timeline import AllocationTimeline, Peak
from tbmem.model.timeline_tables import AllocationRows

OTHER = "(other)"
"""Name of parts that were merged."""
_TABLE = 16
"""Largest range of values, as a multiple of their number, for which a table is made."""


class PeakState(NamedTuple):
    """Memory that is alive on a device at its peak and at the end."""

    timeline: AllocationTimeline
    device: int
    peak: Peak
    alive: I64
    """Rows at the peak."""
    at_end: I64
    """Rows at the end."""
    unlisted: int
    """Bytes at both times that have no row."""


def peak_state(timeline: AllocationTimeline, device: int) -> PeakState:
    """State of a device at its peak."""
    peak = timeline.peak(device)
    alive, at_end = timeline.alive_at(device, peak.event), timeline.alive_at_end(device)
    return PeakState(timeline, device, peak, alive, at_end, timeline.devices[device].unlisted_bytes)


def percent(part: float, total: float) -> float:
    """Share in percent; 0 of 0."""
    return round(100 * part / total, 3) if total else 0.0


def sums(code: NDArray[Any], weights: I64, size: int) -> I64:
    """Sum of weights by code."""
    total = np.zeros(size, np.int64)
    np.add.at(total, code, weights)
    return total


def shares(
    state: PeakState,
    code: NDArray[Any],
    names: Callable[[int], str],
    *,
    rest: str,
    limit: int | None = None,
    frames: Callable[[int], tuple[str, ...]] | None = None,
    max_bytes: I64 | None = None,
) -> tuple[Share, ...]:
    """Parts of the peak, the largest first.

    Args:
        state: The peak.
        code: One number per row of the timeline; -1 for none.
        names: Name of a code.
        rest: Name for rows of code -1 and bytes without a row.
        limit: Maximum number of parts; the remaining ones are merged under ``'(other)'``.
        frames: Frames of a code; parts of the same name then stay apart.
        max_bytes: For categories: by code, the most bytes at any time.
    """
    progress("analysing")
    at_peak, at_end, count = _by_code(state, code)
    last, total = len(at_peak) - 1, state.peak.bytes
    most = np.zeros(last + 1, np.int64) if max_bytes is None else np.append(max_bytes, state.unlisted)
    filled = np.flatnonzero((at_peak != 0) | (count > 0) | (at_end != 0) | (most != 0))
    order = filled[np.lexsort((filled, -at_peak[filled]))]
    bases = {} if max_bytes is None else _bases(state, code)
    inferred = np.zeros(last + 1, np.int64) if max_bytes is None else _inferred_bytes(state, code, last + 1)
    parts = [
        Share(
            name=rest if number == last else names(number),
            bytes=int(at_peak[number]),
            count=int(count[number]),
            percent=percent(int(at_peak[number]), total),
            end_bytes=int(at_end[number]),
            max_bytes=None if max_bytes is None else int(most[number]),
            basis="" if max_bytes is None else bases.get(number if number < last else -1, "none"),
            inferred_bytes=int(inferred[number]),
            stack=frames(number) if frames is not None and number < last else (),
        )
        for number in order[:limit].tolist()
    ]
    if limit is not None and len(order) > limit:
        size, allocations, end = (int(column[order[limit:]].sum()) for column in (at_peak, count, at_end))
        parts.append(Share(name=OTHER, bytes=size, count=allocations, percent=percent(size, total), end_bytes=end))
    return tuple(parts) if frames is not None else _merge_names(parts)


def _by_code(state: PeakState, code: NDArray[Any]) -> tuple[I64, I64, I64]:
    """Bytes at the peak, bytes at the end and allocations at the peak; the last element is for no code."""
    size, rows = int(code.max(initial=-1)) + 2, state.timeline.rows
    at_peak = sums(code[state.alive], rows.bytes[state.alive], size)
    at_end = sums(code[state.at_end], rows.bytes[state.at_end], size)
    count = sums(code[state.alive], np.ones(len(state.alive), np.int64), size)
    at_peak[-1] += state.unlisted
    at_end[-1] += state.unlisted
    return at_peak, at_end, count


def _merge_names(parts: Sequence[Share]) -> tuple[Share, ...]:
    """Parts of the same name merged, in order of the first."""
    by_name: dict[str, Share] = {}
    for share in parts:
        earlier = by_name.get(share.name)
        by_name[share.name] = share if earlier is None else _sum(earlier, share)
    return tuple(by_name.values())


def _sum(left: Share, right: Share) -> Share:
    bases = {share.basis for share in (left, right) if share.bytes} or {left.basis}
    return Share(
        name=left.name,
        bytes=left.bytes + right.bytes,
        count=left.count + right.count,
        percent=round(left.percent + right.percent, 3),
        end_bytes=left.end_bytes + right.end_bytes,
        max_bytes=None if left.max_bytes is None or right.max_bytes is None else left.max_bytes + right.max_bytes,
        basis=bases.pop() if len(bases) == 1 else "mixed",
        inferred_bytes=left.inferred_bytes + right.inferred_bytes,
        stack=left.stack or right.stack,
    )


def _bases(state: PeakState, code: NDArray[Any]) -> dict[int, str]:
    """How the category of each code's rows is known."""
    rows = state.timeline.rows
    on_device = rows.device == state.device
    pairs = np.bincount((code[on_device].astype(np.int64) + 1) * len(Basis) + rows.basis[on_device])
    bases: dict[int, str] = {}
    for pair in np.flatnonzero(pairs).tolist():
        number, value = pair // len(Basis) - 1, pair % len(Basis)
        bases[number] = "mixed" if number in bases else Basis(value).name.lower()
    return bases


def _inferred_bytes(state: PeakState, code: NDArray[Any], size: int) -> I64:
    """Bytes at the peak whose category is inferred, by code."""
    rows = state.timeline.rows
    alive = state.alive[rows.basis[state.alive] == Basis.INFERRED]
    return sums(code[alive], rows.bytes[alive], size)


def groups(*columns: NDArray[Any]) -> tuple[I64, I64]:
    """A row of each group, and the group of each row; rows of a group agree in every column."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        ranks = _ranks(column)
        group = _ranks(group * (int(ranks.max(initial=0)) + 1) + ranks)
    first = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # of several rows the one that is written last, the first, stays
    return first, group


def _ranks(values: NDArray[Any]) -> I64:
    """The place of each value among the different ones, in ascending order; a table is faster than sorting."""
    if not len(values):
        return np.zeros(0, np.int64)
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest > _TABLE * len(values):
        _, ranks = np.unique(values, return_inverse=True)
        return ranks.reshape(-1)
    offsets = values.astype(np.int64) - lowest
    is_there = np.zeros(highest - lowest + 1, np.bool_)
    is_there[offsets] = True
    places: I64 = np.cumsum(is_there) - 1
    return places[offsets]


def max_by_code(timeline: AllocationTimeline, device: int, code: NDArray[Any]) -> I64:
    """By code, the most bytes that were alive at any time."""
    rows = timeline.rows
    size = int(code.max(initial=-1)) + 1
    coded = np.flatnonzero((rows.device == device) & (code >= 0))
    coded = coded[np.argsort(code[coded], kind="stable")]
    parts = np.split(coded, np.searchsorted(code[coded], np.arange(1, size)))[:size]
    return np.array([peak_bytes(rows, part) for part in parts], np.int64)


def peak_bytes(rows: AllocationRows, indices: I64) -> int:
    """The most bytes of some rows of one device that were alive at once."""
    freed = indices[rows.free_event[indices] >= 0]
    event = np.concatenate([rows.alloc_event[indices], rows.free_event[freed]])
    change = np.concatenate([rows.bytes[indices], -rows.bytes[freed]])
    # frees come before allocations of the same event
    return int(np.cumsum(change[np.lexsort((change, event))]).max(initial=0))
