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
    *("", "peak allocated", "peak reserved", "change", "share allocated"),
    *("at the end", "cached", "fragmented", "segments"),
)

_FULL = 95.0
"""Percent of reserved memory allocated at the peak, from which on settings can hardly save any."""


def what_if_lines(name: str, replays: Sequence[WhatIf]) -> Iterator[str]:
    """One table for each device of a recording: as recorded, and under the other settings."""
    for replay in replays:
        outcomes = (replay.before, *replay.after)
        replayed = f"; replayed on {replay.gpu}" if replay.gpu else ""
        yield f"{name}, {device_label(replay.device)}{_recorded(replay)}{replayed}"
        yield from columns(_HEADER, [_row(outcome, replay.before) for outcome in outcomes])
        for outcome in outcomes:
            if outcome.failure:
                yield (
                    f"out of memory under {outcome.settings} after {100 * outcome.replayed:.0f} % of the recording,"
                    f" where its row ends: {outcome.failure}."
                )
        yield from _conclusion(replay)
        yield from _refused_lines(replay)
        if replay.note:
            yield replay.note
        yield ""


def _recorded(replay: WhatIf) -> str:
    """``', 11.79 GiB were reserved (-50.00 MiB in the replay)'``: older blocks lie elsewhere in a replay."""
    reserved = replay.recorded_reserved
    if reserved is None:
        return ""
    apart = 0 if replay.before.failure else replay.before.peak_reserved - reserved
    return f", {format_bytes(reserved)} were reserved" + f" ({format_signed(apart)} in the replay)" * bool(apart)


def _row(outcome: ReplayFigures, before: ReplayFigures) -> tuple[str, ...]:
    if outcome is before:
        change = "the recording's"
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


def _conclusion(replay: WhatIf) -> Iterator[str]:
    """Which of the settings needs the least, where replays can be compared."""
    complete = [outcome for outcome in replay.after if not outcome.failure]
    if replay.before.failure or not complete:
        return
    best, usual = min(complete, key=lambda outcome: outcome.peak_reserved), replay.before.peak_reserved
    saved = usual - best.peak_reserved
    if saved > 0:
        share = f"{100 * saved / usual:.1f} %"
        yield f"{best.settings} lowers the peak of reserved memory by {format_bytes(saved)} ({share})."
    else:
        yield "None of the other settings lowers the peak of reserved memory."
    used = replay.before.allocated_percent
    if used >= _FULL:
        yield f"Settings can save little here: under the recording's own {used:.1f} % of it is allocated."


def _refused_lines(replay: WhatIf) -> Iterator[str]:
    """Whether each request that failed in the recording fits under the other settings."""
    for number, refused in enumerate(replay.refused):
        if any(len(outcome.served) <= number for outcome in (replay.before, *replay.after)):
            # a replay ended before
            continue
        what = f"{format_bytes(refused.requested)} failed when {format_bytes(refused.room)} could be reserved in all"
        fits = [outcome.settings for outcome in replay.after if outcome.served[number]]
        if replay.before.served[number]:
            yield f"{what}; the replay under the recording's own settings serves it, so it cannot tell."
        elif fits:
            yield f"{what}; it fits under {' and under '.join(fits)}."
        else:
            yield f"{what}; it does not fit under the other settings either."


def what_if_view(name: str, replays: Sequence[WhatIf]) -> dict[str, Any]:
    """The replays as JSON values."""
    return {"name": name, "devices": [asdict(replay) for replay in replays]}
