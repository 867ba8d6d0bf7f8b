"""What was alive at the peak of a recording, and all that is known of one allocation (``recording_schema.Peak``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from tbmem.analysis.recordings.result import ModuleShare, Share
from tbmem.analysis.source_lines import DEEPEST, is_own
from tbmem.errors import UsageError
from tbmem.model.category import Basis, Phase, word_of
from tbmem.present.palette import PHASES, category_colour
from tbmem.present.views.empty_states import NOTHING_RECORDED
from tbmem.present.views.recording_schema import (
    ModuleTree,
    OneAllocation,
    Peak,
    Shares,
    StackShares,
    columns_of,
)
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.tensors import RowLabels
from tbmem.present.views.timeline import peak_of

_MODULES = 2000
_SHARES = 500


def peak_view(recording: RecordingView, device: str | None = None) -> Peak:
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
        "merged": shares_of(selected.by_module),
        "by_line": shares_of(selected.by_line),
        "by_operator": shares_of(selected.by_operator),
        "stacks": _stacks(selected.by_stack),
        "suspects": [asdict(suspect) for suspect in selected.suspects],
        "advice": [asdict(advice) for advice in selected.recommendations],
        "empty": None if selected.peak.bytes else NOTHING_RECORDED,
    }


def shares_of(shares: Sequence[Share], colour: Callable[[str], str] = lambda name: "") -> Shares:
    """Shares of the peak as columns."""
    listed = shares[:_SHARES]
    columns: Shares = columns_of(listed, "name", "bytes", "count", "percent", "end_bytes", "max_bytes", "basis")
    columns["colour"] = [colour(share.name) for share in listed]
    return columns


def _tree(root: ModuleShare) -> ModuleTree:
    """The largest modules, parents first; a parent is never smaller than what is in it."""
    sizes = sorted((module.bytes for module in root.walk()), reverse=True)
    least = sizes[_MODULES - 1] if len(sizes) > _MODULES else 0
    nodes: list[tuple[int, ModuleShare]] = [(-1, root)]
    for parent, (_, module) in enumerate(nodes):
        # the loop also visits the children that it appends
        nodes += [(parent, child) for child in module.children if child.bytes >= least and child.bytes > 0]
    columns: ModuleTree = columns_of(
        [node for _, node in nodes], "name", "path", "bytes", "own_bytes", "count", "percent"
    )
    columns["parent"] = [parent for parent, _ in nodes]
    return columns


def _stacks(shares: Sequence[Share]) -> StackShares:
    columns: StackShares = columns_of(shares, "bytes", "count", "percent")
    columns["line"] = [share.name for share in shares]
    columns["frames"] = [list(share.stack) for share in shares]
    return columns


def stack_view(recording: RecordingView, row: int) -> OneAllocation:
    """Everything known about one allocation.

    Raises:
        UsageError: There is no such row.
    """
    timeline = recording.analysis.timeline
    rows = timeline.rows
    if not 0 <= row < len(rows):
        raise UsageError(f"row={row}: {recording.file} has rows 0 to {len(rows) - 1}")
    device = recording.analysis.devices[int(rows.device[row])]
    row_labels = RowLabels(recording)
    clock = recording.clock(device.number)
    rounded, context, address = int(rows.rounded_bytes[row]), int(rows.context[row]), int(rows.address[row])
    category, name, module, operator, line = (
        row_labels.of(column, np.array([row]))[0] for column in ("category", "name", "module", "operator", "line")
    )
    return {
        "head": recording.head(device),
        "row": row,
        "bytes": int(rows.bytes[row]),
        "rounded_bytes": rounded if rounded >= 0 else None,
        "category": category,
        "word": word_of(category),
        "colour": category_colour(category),
        "basis": Basis(int(rows.basis[row])).name.lower(),
        "name": name,
        "module": module,
        "operator": operator,
        "phase": Phase(int(rows.phase[row])).name,
        "step": int(rows.step[row]),
        "stream": int(rows.stream[row]),
        "address": f"0x{address:x}" if address else "",
        "context": timeline.contexts[context] if context >= 0 else "",
        "begin_ms": _ms(int(rows.alloc_ns[row]), clock.origin_ns),
        "end_ms": _ms(int(rows.free_ns[row]), clock.origin_ns),
        "alloc_event": int(rows.alloc_event[row]),
        "free_event": int(rows.free_event[row]),
        "line": line,
        "frames": [{"text": str(frame), "own": is_own(frame)} for frame in timeline.frames(row)[:DEEPEST]],
    }


def _ms(ns: int, origin: int) -> float | None:
    return None if ns < 0 else round((ns - origin) / 1e6, 6)
