"""Ranges that nest, and moments, go in; the innermost range around each moment comes out."""

from __future__ import annotations

import numpy as np

from tbmem.model.columns import I64


def innermost(thread: I64, begin: I64, end: I64, at_thread: I64, at: I64) -> I64:
    """The innermost range of the same thread around each moment.

    A range includes its first and its last moment. Of ranges that overlap without nesting (times that are cut to
    microseconds make such) the one that began last counts.

    Args:
        thread: Thread of each range.
        begin: When it began.
        end: When it ended.
        at_thread: Thread of each moment.
        at: The moment.

    Returns:
        Number of the range; -1 for none.
    """
    found = np.full(len(at), -1, np.int64)
    for one in np.unique(at_thread):
        ranges, moments = np.flatnonzero(thread == one), np.flatnonzero(at_thread == one)
        moments = moments[np.argsort(at[moments], kind="stable")]
        times = at[moments]
        # most ranges hold no moment at all
        holding = np.searchsorted(times, begin[ranges], "left") < np.searchsorted(times, end[ranges], "right")
        ranges = ranges[holding]
        ranges = ranges[np.lexsort((-end[ranges], begin[ranges]))]
        inner = np.array(_sweep(begin[ranges].tolist(), end[ranges].tolist(), times.tolist()), np.int64)
        found[moments] = np.append(ranges, -1)[inner]
    return found


def _sweep(begins: list[int], ends: list[int], times: list[int]) -> list[int]:
    """Walk through ranges and moments in order of time with the calls that are open."""
    found: list[int] = []
    open_ranges: list[int] = []
    following, count = 0, len(begins)
    for time in times:
        while following < count and begins[following] <= time:
            while open_ranges and ends[open_ranges[-1]] < begins[following]:
                open_ranges.pop()
            open_ranges.append(following)
            following += 1
        while open_ranges and ends[open_ranges[-1]] < time:
            open_ranges.pop()
        found.append(open_ranges[-1] if open_ranges else -1)
    return found
