"""Replays of a recording under other allocator settings, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tbmem.analysis.allocator.what_if import ReplayFigures, WhatIf
from tbmem.present.labels import columns
from tbmem.present.lines import device_label
from tbmem.units import format_bytes, format_signed

_HEADER = (
    "",
    "peak allocated",
    "peak reserved",
    "",
    "share allocated",
    "at the end",
    "cached",
    "fragmented",
    "segments",
)


def what_if_lines(name: str, found: Sequence[WhatIf]) -> Iterator[str]:
    """Before and after, one table for each device of a recording."""
    for one in found:
        recorded = "" if one.recorded_reserved is None else f", {format_bytes(one.recorded_reserved)} were reserved"
        yield f"{name}, {device_label(one.device)}{recorded}{f'; replayed on {one.gpu}' if one.gpu else ''}"
        yield from columns(_HEADER, [_row(one.before, one.before), *(_row(after, one.before) for after in one.after)])
        yield from _failure_lines(one)
        yield from _refused_lines(one)
        if one.note:
            yield one.note
        yield ""


def _row(outcome: ReplayFigures, before: ReplayFigures) -> tuple[str, ...]:
    if outcome is before:
        change = "as recorded"
    elif outcome.failure or before.failure:
        change = "not to compare"
    else:
        change = format_signed(outcome.peak_reserved - before.peak_reserved)
    return (
        outcome.settings,
        format_bytes(outcome.peak_allocated),
        format_bytes(outcome.peak_reserved),
        change,
        f"{outcome.allocated_percent:.1f} %",
        format_bytes(outcome.end_reserved),
        format_bytes(outcome.end_cached),
        format_bytes(outcome.end_fragmented),
        str(outcome.segments),
    )


def _failure_lines(one: WhatIf) -> Iterator[str]:
    """Which replays ran out of memory: their rows end there."""
    for outcome in (one.before, *one.after):
        if outcome.failure:
            yield (
                f"out of memory under {outcome.settings} after {100 * outcome.replayed:.0f} % of the recording, where"
                f" its row ends: {outcome.failure}."
            )


def _refused_lines(one: WhatIf) -> Iterator[str]:
    """What became of each request that failed when it was recorded."""
    for number, refused in enumerate(one.refused):
        if any(len(outcome.served) <= number for outcome in (one.before, *one.after)):
            # a replay ended before
            continue
        what = f"{format_bytes(refused.requested)} failed when {format_bytes(refused.room)} could be reserved in all"
        fits = [outcome.settings for outcome in one.after if outcome.served[number]]
        if one.before.served[number]:
            yield f"{what}; the replay under the recording's own settings serves it, so it cannot tell."
        elif fits:
            yield f"{what}; it fits under {' and under '.join(fits)}."
        else:
            yield f"{what}; it does not fit under the other settings either."


def what_if_view(name: str, found: Sequence[WhatIf]) -> dict[str, Any]:
    """Plain values."""
    return {"name": name, "devices": [asdict(one) for one in found]}
