"""What was alive at the peak of a recording, and all that is known of one allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tbmem.analysis.recordings.result import ModuleShare, Share
from tbmem.analysis.source_lines import DEEPEST, is_own, is_own_text
from tbmem.errors import UsageError
from tbmem.model.category import word_of
from tbmem.model.stacks import Frame
from tbmem.present.palette import PHASES, category_colour
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_view import RecordingView, columns_of
from tbmem.present.views.tensors import RowLabels
from tbmem.present.views.timeline import peak_of

_MODULES = 2000
_SHARES = 500


def peak_view(recording: RecordingView, device: str | None = None) -> dict[str, Any]:
    """The peak of a device, broken down.

    Raises:
        UsageError: There is no such device.
    """
    selected = recording.device(device)
    return {
        "head": recording.head(selected),
        "peak": peak_of(recording, selected, recording.clock(selected.number).axes[0]),
        "capacity": selected.total_bytes,
        "reserved_peak": selected.peak_reserved_bytes,
        "by_category": shares_of(selected.by_category, category_colour),
        "by_phase": shares_of(selected.by_phase, lambda name: PHASES.get(name, "")),
        "modules": _tree(selected.modules),
        "merged": shares_of(selected.by_module),  # the numbers of repeated layers replaced: ``layers.*.mlp``
        "by_line": shares_of(selected.by_line),
        "by_operator": shares_of(selected.by_operator),
        "stacks": _stacks(selected.by_stack),
        "suspects": [asdict(suspect) for suspect in selected.suspects],
        "advice": [asdict(advice) for advice in selected.recommendations],
        "empty": None if selected.peak.bytes else NOTHING_RECORDED,
    }


def shares_of(shares: Sequence[Share], colour: Callable[[str], str] = lambda name: "") -> dict[str, list[Any]]:
    """Shares of the peak as columns, the largest first; the colour of a part without one is empty."""
    listed = shares[:_SHARES]
    columns = columns_of(listed, "name", "bytes", "count", "percent", "end_bytes", "max_bytes", "basis")
    columns["colour"] = [colour(share.name) for share in listed]
    return columns


def _tree(root: ModuleShare) -> dict[str, list[Any]]:
    """The largest modules, parents first, as a parent is never smaller than what is in it; the root has parent -1."""
    sizes = sorted((module.bytes for module in root.walk()), reverse=True)
    least = sizes[_MODULES - 1] if len(sizes) > _MODULES else 0
    nodes: list[tuple[int, ModuleShare]] = [(-1, root)]
    for parent, (_, module) in enumerate(nodes):
        # the loop also visits the children that it appends
        nodes += [(parent, child) for child in module.children if child.bytes >= least and child.bytes > 0]
    modules = [module for _, module in nodes]
    columns = columns_of(modules, "name", "path", "bytes", "own_bytes", "count", "percent")
    return columns | {"parent": [parent for parent, _ in nodes]}


def _stacks(shares: Sequence[Share]) -> dict[str, list[Any]]:
    columns = columns_of(shares, "bytes", "count", "percent")
    columns["line"], columns["frames"] = [share.name for share in shares], [list(share.stack) for share in shares]
    columns["own"] = [[is_own_text(frame) for frame in share.stack] for share in shares]  # of each frame
    return columns


def stack_view(recording: RecordingView, row: int) -> dict[str, Any]:
    """Everything known about one allocation.

    Raises:
        UsageError: There is no such row.
    """
    timeline = recording.analysis.timeline
    rows = timeline.rows
    if not 0 <= row < len(rows):
        raise UsageError(f"row={row}: {recording.file} has rows 0 to {len(rows) - 1}")
    device = recording.analysis.devices[int(rows.device[row])]
    origin_ns = recording.clock(device.number).origin_ns
    known = {name: values[0] for name, values in RowLabels(recording).columns(np.array([row])).items()}
    rounded, context, address = int(rows.rounded_bytes[row]), int(rows.context[row]), int(rows.address[row])
    return {
        "head": recording.head(device),
        **known,
        "rounded_bytes": rounded if rounded >= 0 else None,
        "word": word_of(known["category"]),
        "colour": category_colour(known["category"]),
        "stream": int(rows.stream[row]),
        "address": f"0x{address:x}" if address else "",
        "context": timeline.contexts[context] if context >= 0 else "",
        "begin_ms": _ms(int(rows.alloc_ns[row]), origin_ns),
        "end_ms": _ms(int(rows.free_ns[row]), origin_ns),
        "alloc_event": int(rows.alloc_event[row]),
        "free_event": int(rows.free_event[row]),  # -1: alive at the end, -2: its free was not recorded
        "frames": frames_of(timeline.frames(row)),
        "forward_frames": frames_of(timeline.stacks.of(int(rows.forward_stack[row]))),
    }


def frames_of(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    """Frames of a stack, the innermost first, and whether each is in code of the program."""
    return [{"text": str(frame), "own": is_own(frame)} for frame in frames[:DEEPEST]]


def _ms(ns: int, origin: int) -> float | None:
    """Milliseconds since the recording began; ``None``: before it, after it, or not known."""
    return None if ns < 0 else round((ns - origin) / 1e6, 6)
