"""What was alive at the peak of a recording, and all that is known of one allocation (``recordings.Peak``)."""

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
from tbmem.present.views.recording_view import Subject
from tbmem.present.views.tensors import Words
from tbmem.present.views.timeline import peak_of

_MODULES = 2000
_SHARES = 500


def peak_view(subject: Subject, device: str | None = None) -> Peak:
    """The peak of a device.

    Raises:
        UsageError: There is no such device.
    """
    one = subject.device(device)
    return {
        "head": subject.head(one),
        "peak": peak_of(subject, one, subject.clock(one.number).axes[0]),
        "capacity": one.total_bytes,
        "reserved_peak": one.peak_reserved_bytes,
        "by_category": shares_of(one.by_category, category_colour),
        "by_phase": shares_of(one.by_phase, lambda name: PHASES.get(name, "")),
        "modules": _tree(one.modules),
        "merged": shares_of(one.by_module),
        "by_line": shares_of(one.by_line),
        "by_operator": shares_of(one.by_operator),
        "stacks": _stacks(one.by_stack),
        "suspects": [asdict(suspect) for suspect in one.suspects],
        "advice": [asdict(advice) for advice in one.recommendations],
        "empty": None if one.peak.bytes else NOTHING_RECORDED,
    }


def shares_of(shares: Sequence[Share], colour: Callable[[str], str] = lambda name: "") -> Shares:
    """Parts of a peak as columns."""
    kept = shares[:_SHARES]
    found: Shares = columns_of(kept, "name", "bytes", "count", "percent", "end_bytes", "max_bytes", "basis")
    found["colour"] = [colour(one.name) for one in kept]
    return found


def _tree(root: ModuleShare) -> ModuleTree:
    """The largest modules, parents first; a parent is never smaller than what is in it."""
    sizes = sorted((one.bytes for one in root.walk()), reverse=True)
    least = sizes[_MODULES - 1] if len(sizes) > _MODULES else 0
    nodes: list[tuple[int, ModuleShare]] = [(-1, root)]
    at = 0
    while at < len(nodes):
        nodes += [(at, child) for child in nodes[at][1].children if child.bytes >= least and child.bytes > 0]
        at += 1
    kept = [node for _, node in nodes]
    found: ModuleTree = columns_of(kept, "name", "path", "bytes", "own_bytes", "count", "percent")
    found["parent"] = [parent for parent, _ in nodes]
    return found


def _stacks(shares: Sequence[Share]) -> StackShares:
    found: StackShares = columns_of(shares, "bytes", "count", "percent")
    found["line"] = [one.name for one in shares]
    found["frames"] = [list(one.stack) for one in shares]
    return found


def stack_view(subject: Subject, row: int) -> OneAllocation:
    """All that is known of one allocation.

    Raises:
        UsageError: There is no such row.
    """
    timeline = subject.analysis.timeline
    rows = timeline.rows
    if not 0 <= row < len(rows):
        raise UsageError(f"row={row}: {subject.file} has rows 0 to {len(rows) - 1}")
    device = subject.analysis.devices[int(rows.device[row])]
    words, which = Words(subject), np.array([row])
    clock = subject.clock(device.number)
    rounded, context, address = int(rows.rounded_bytes[row]), int(rows.context[row]), int(rows.address[row])
    category, name, module, operator, line = (
        words.of(column, which)[0] for column in ("category", "name", "module", "operator", "line")
    )
    return {
        "head": subject.head(device),
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
