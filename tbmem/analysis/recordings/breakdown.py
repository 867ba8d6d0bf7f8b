"""Breakdowns of the memory at the peak, by any code of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.recordings.result import Share
from tbmem.model.category import Basis
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline, Peak

OTHER = "(other)"
"""Parts that were put together."""


class Moment(NamedTuple):
    """What is alive on a device at its peak, and at the end."""

    timeline: AllocationTimeline
    device: int
    peak: Peak
    alive: I64
    """Rows at the peak."""
    at_end: I64
    """Rows at the end."""
    unlisted: int
    """Bytes that are there at both and have no row."""

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return self.peak.bytes


def moment_of(timeline: AllocationTimeline, device: int) -> Moment:
    """The peak of a device."""
    peak = timeline.peak(device)
    return Moment(
        timeline=timeline,
        device=device,
        peak=peak,
        alive=timeline.alive_at(device, peak.event),
        at_end=timeline.alive_at_end(device),
        unlisted=timeline.devices[device].unlisted_bytes,
    )


def basis_name(value: int) -> str:
    """``'none'``, ``'inferred'`` or ``'known'``."""
    return Basis(value).name.lower()


def percent(part: float, whole: float) -> float:
    """Share in percent; 0 of nothing."""
    return round(100 * part / whole, 3) if whole else 0.0


def sums(code: NDArray[Any], weights: I64, size: int) -> I64:
    """Sum of weights by code."""
    total = np.zeros(size, np.int64)
    np.add.at(total, code, weights)
    return total


def shares(
    moment: Moment,
    code: NDArray[Any],
    names: Callable[[int], str],
    *,
    rest: str,
    limit: int | None = None,
    distinct: bool = False,
    basis: bool = False,
    extra: Callable[[int], tuple[str, ...]] | None = None,
    most: I64 | None = None,
) -> tuple[Share, ...]:
    """Parts of the peak, the largest first.

    Args:
        moment: The peak.
        code: One number per row of the timeline; -1 for none.
        names: Name of a code.
        rest: What rows of code -1, and bytes without a row, are called.
        limit: Parts at most, the others being put together under ``'(other)'``.
        distinct: Whether parts of the same name stay apart.
        basis: Whether to say how each part is known.
        extra: Frames of a code.
        most: By code, the most bytes at any moment.
    """
    at_peak, at_end, count = _by_code(moment, code)
    last = len(at_peak) - 1
    ever = np.zeros(last + 1, np.int64) if most is None else np.append(most, moment.unlisted)
    filled = np.flatnonzero((at_peak != 0) | (count > 0) | (at_end != 0) | (ever != 0))
    order = filled[np.lexsort((filled, -at_peak[filled]))]
    kept = order if limit is None else order[:limit]
    known = _bases(moment, code) if basis else {}
    found = [
        Share(
            name=rest if number == last else names(number),
            bytes=int(at_peak[number]),
            count=int(count[number]),
            percent=percent(int(at_peak[number]), moment.total),
            end_bytes=int(at_end[number]),
            max_bytes=None if most is None else int(ever[number]),
            basis=known.get(number if number < last else -1, "none") if basis else "",
            stack=extra(number) if extra is not None and number < last else (),
        )
        for number in kept.tolist()
    ]
    if len(kept) < len(order):
        left = order[len(kept) :]
        size = int(at_peak[left].sum())
        share = percent(size, moment.total)
        end, allocations = int(at_end[left].sum()), int(count[left].sum())
        found.append(Share(name=OTHER, bytes=size, count=allocations, percent=share, end_bytes=end))
    return tuple(found) if distinct else _merged(found)


def _by_code(moment: Moment, code: NDArray[Any]) -> tuple[I64, I64, I64]:
    """Bytes at the peak, bytes at the end and allocations at the peak; the last element is what has no code."""
    size = int(code.max()) + 2 if len(code) else 1
    rows = moment.timeline.rows
    at_peak = sums(code[moment.alive], rows.bytes[moment.alive], size)
    at_end = sums(code[moment.at_end], rows.bytes[moment.at_end], size)
    count = sums(code[moment.alive], np.ones(len(moment.alive), np.int64), size)
    at_peak[-1] += moment.unlisted
    at_end[-1] += moment.unlisted
    return at_peak, at_end, count


def _merged(found: Sequence[Share]) -> tuple[Share, ...]:
    """Parts of the same name put together, in order of the first."""
    by_name: dict[str, Share] = {}
    for share in found:
        before = by_name.get(share.name)
        by_name[share.name] = share if before is None else _sum(before, share)
    return tuple(by_name.values())


def _sum(one: Share, other: Share) -> Share:
    return Share(
        name=one.name,
        bytes=one.bytes + other.bytes,
        count=one.count + other.count,
        percent=round(one.percent + other.percent, 3),
        end_bytes=one.end_bytes + other.end_bytes,
        max_bytes=None if one.max_bytes is None or other.max_bytes is None else one.max_bytes + other.max_bytes,
        basis=one.basis if one.basis == other.basis or not other.bytes else other.basis if not one.bytes else "mixed",
        stack=one.stack or other.stack,
    )


def _bases(moment: Moment, code: NDArray[Any]) -> dict[int, str]:
    """How the rows of each code are known."""
    rows = moment.timeline.rows
    own = rows.device == moment.device
    pairs = np.bincount((code[own].astype(np.int64) + 1) * len(Basis) + rows.basis[own])
    found: dict[int, str] = {}
    for pair in np.flatnonzero(pairs).tolist():
        number, value = pair // len(Basis) - 1, pair % len(Basis)
        found[number] = "mixed" if number in found else basis_name(value)
    return found


def groups(*columns: NDArray[Any]) -> tuple[I64, I64]:
    """Rows that agree in every column get one number.

    Returns:
        A row of each group, and the group of each row.
    """
    group = np.zeros(len(columns[0]), np.int64)
    first = np.zeros(0, np.int64)
    for column in columns:
        _, own = np.unique(column, return_inverse=True)
        combined = group * (int(own.max(initial=0)) + 1) + own.reshape(-1)
        _, first, group = np.unique(combined, return_index=True, return_inverse=True)
        group = group.reshape(-1)
    return first, group


def most_by_code(timeline: AllocationTimeline, device: int, code: NDArray[Any]) -> I64:
    """By code, the most bytes that were alive at any moment."""
    rows = timeline.rows
    size = int(code.max()) + 1 if len(code) else 0
    own = np.flatnonzero((rows.device == device) & (code >= 0))
    own = own[np.argsort(code[own], kind="stable")]
    cuts = np.searchsorted(code[own], np.arange(size + 1))
    most = [_most(timeline, own[cuts[number] : cuts[number + 1]]) for number in range(size)]
    return np.array(most, np.int64)


def _most(timeline: AllocationTimeline, which: I64) -> int:
    rows = timeline.rows
    size, begin, end = rows.bytes[which], rows.alloc_event[which], rows.free_event[which]
    freed = end >= 0
    event = np.concatenate([begin, end[freed]])
    change = np.concatenate([size, -size[freed]])
    # of one moment, what goes is counted before what comes
    order = np.lexsort((change, event))
    return int(max(np.cumsum(change[order]).max(initial=0), 0))
