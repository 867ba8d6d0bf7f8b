"""What would have made a request fit that failed, with figures: settings of the allocator, the batch, the estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.allocator.what_if import QUICK, ReplayFigures, WhatIf, recorded_failures, what_ifs
from tbmem.analysis.diagnosis.advice import CONF
from tbmem.errors import UsageError
from tbmem.model.category import Category
from tbmem.present.views.recording_view import RecordingView
from tbmem.units import format_bytes, format_signed

SETTINGS = (
    "expandable_segments:True",
    "max_split_size_mb:256",
    "roundup_power2_divisions:8",
)
"""Those that PyTorch's documentation recommends against fragmentation."""
_UNKNOWN = "The snapshot has no stacks and no events: with snapshot.history=run what would have fitted is computed."
_BY_BATCH = (Category.ACTIVATION, Category.INPUT, Category.TEMPORARY, Category.AUTOGRAD_DETAIL)
"""What a smaller batch makes smaller."""


def remedies_view(
    subject: RecordingView | None, estimate: Mapping[str, Any] | None, missing: int, limit: int = QUICK
) -> dict[str, Any]:
    """Changes with their effect, those that make the request fit first.

    Args:
        subject: The snapshot written at the error, if there is one.
        estimate: The run's estimate as JSON, if there is one.
        missing: Bytes by which the request did not fit.
        limit: Allocations above which the snapshot is not replayed.
    """
    changes = [] if subject is None else [*_settings(subject, limit), *_smaller_batch(subject, missing)]
    changes += _alternatives(estimate or {})
    order = {True: 0, None: 1, False: 2}
    changes.sort(key=lambda change: order[change["fits"]])
    return {"missing": missing, "changes": changes, "note": _note(subject, limit) or _UNKNOWN * (not changes)}


def _note(subject: RecordingView | None, limit: int) -> str:
    if subject is None:
        return "No snapshot was written at the error: with snapshot.history=run its settings can be replayed."
    if len(subject.analysis.timeline) > limit:
        return f"To replay the allocator's settings: tbmem analyze {subject.file} --what-if {SETTINGS[0]}"
    return ""


def _change(text: str, effect: str, fits: bool | None) -> dict[str, Any]:
    return {"change": text, "effect": effect, "fits": fits}


def _smaller_batch(subject: RecordingView, missing: int) -> Iterator[dict[str, Any]]:
    """The share of the batch that would have to go, if what depends on it is proportional to it."""
    device, timeline = subject.analysis.main, subject.analysis.timeline
    alive = timeline.rows.take(timeline.alive_at(device.number, device.peak.event))
    by_batch = int(alive.bytes[np.isin(alive.category, _BY_BATCH)].sum())
    failed = recorded_failures(timeline, device.number)
    by_batch += failed[-1].requested if failed else 0
    if missing <= 0 or by_batch <= missing:
        return
    percent = math.ceil(100 * missing / by_batch)
    text = f"a batch smaller by {percent} %, with more gradient accumulation; or activation checkpointing"
    yield _change(text, f"of {format_bytes(by_batch)} that grow with the batch {format_bytes(missing)} must go", True)


def _settings(subject: RecordingView, limit: int) -> Iterator[dict[str, Any]]:
    """Replays of the snapshot: whether the request that failed is served."""
    if len(subject.analysis.timeline) > limit:
        return
    try:
        replays = what_ifs(subject.analysis.timeline, [parse_settings(text) for text in SETTINGS])
    except UsageError:
        # a snapshot without events
        return
    name = subject.analysis.main.name
    for replay in (replay for replay in replays if replay.device == name):
        for text, after in zip(SETTINGS, replay.after, strict=True):
            fits = _is_served(replay, after)
            if fits is not None:
                size = format_signed(after.peak_reserved - replay.before.peak_reserved)
                effect = f"the request {'fits' if fits else 'does not fit'}; peak reserved {size}"
                yield _change(f"{CONF}={text}", effect, fits)


def _is_served(replay: WhatIf, after: ReplayFigures) -> bool | None:
    """Whether the last request that failed is served within the device; ``None`` where the replay cannot tell."""
    if not replay.refused or len(after.served) < len(replay.refused) or replay.before.served[-1]:
        return None
    return after.served[-1] and after.peak_reserved <= replay.refused[-1].room


def _alternatives(estimate: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The alternatives of the run's estimate."""
    for one in estimate.get("alternatives") or ():
        if isinstance(one, Mapping) and isinstance(one.get("reserved"), int):
            fits = {"fits": True, "tight": None}.get(str(one.get("fit")), False)
            sizes = f"{format_bytes(one['reserved'])} reserved by the estimate"
            yield _change(str(one.get("change", "")), sizes, fits)
