"""Tables of phases and modules: what a device allocated, kept and reached within spans of time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tbmem.analysis.recordings.breakdown import peak_bytes
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.recordings.running_sum import RunningSum
from tbmem.model.category import Category
from tbmem.model.columns import I64
from tbmem.model.span import ModuleMemory, PhaseMemory, Span


def phase_table(analysis: Analysis, spans: Sequence[Span]) -> tuple[PhaseMemory, ...]:
    """Memory in each phase on each device, in the order in which the phases began.

    Args:
        analysis: A recording with its rows.
        spans: The phases; those that overlap each have all of what happened within.
    """
    by_name: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.begin_ns):
        by_name[span.name].append(span)
    return tuple(
        _phase(_DeviceLog.of(analysis, device.number), device.name, name, found)
        for device in analysis.shown
        for name, found in by_name.items()
    )


def _phase(log: _DeviceLog, device: str, name: str, spans: Sequence[Span]) -> PhaseMemory:
    net: Counter[str] = Counter()
    for span in spans:
        net.update(log.net_by_category(span))
    return PhaseMemory(
        name=name,
        device=device,
        calls=len(spans),
        peak=max(map(log.peak, spans)),
        allocated=sum(map(log.allocated, spans)),
        net=sum(net.values()),
        by_category=dict(sorted(((key, size) for key, size in net.items() if size), key=lambda item: -item[1])),
    )


def module_table(analysis: Analysis, spans: Sequence[Span], kinds: Mapping[str, str]) -> tuple[ModuleMemory, ...]:
    """Memory in the forward pass of each module on the main device, in the order of their first calls.

    Args:
        analysis: A recording with its rows.
        spans: Each call of a module, named by its path.
        kinds: Class of each module, by its path.
    """
    device = analysis.main
    log = _DeviceLog.of(analysis, device.number)
    by_path: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.begin_ns, -span.end_ns)):
        by_path[span.name].append(span)
    saved = _saved(analysis, device.number)
    return tuple(
        ModuleMemory(
            name=path,
            kind=kinds.get(path, ""),
            device=device.name,
            calls=len(calls),
            allocated=max(map(log.allocated, calls)),
            kept=max(sum(log.net_by_category(call).values()) for call in calls),
            saved=saved.get(path, 0),
            peak=max(map(log.peak, calls)),
        )
        for path, calls in by_path.items()
    )


class _DeviceLog(NamedTuple):
    """Allocations, frees and levels of a device in order of time."""

    allocations: RunningSum
    alloc_ns: I64
    alloc_code: I64
    alloc_bytes: I64
    free_ns: I64
    free_code: I64
    free_bytes: I64
    level_ns: I64
    level: I64
    names: tuple[str, ...]
    """Of the categories."""

    @classmethod
    def of(cls, analysis: Analysis, device: int) -> _DeviceLog:
        timeline, rows = analysis.timeline, analysis.timeline.rows
        allocs = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
        frees = np.flatnonzero((rows.device == device) & (rows.free_event >= 0))
        allocs, frees = allocs[np.argsort(rows.alloc_ns[allocs])], frees[np.argsort(rows.free_ns[frees])]
        curve, code = timeline.curve(device), analysis.labels.code
        return cls(
            RunningSum(rows.alloc_ns[allocs], rows.bytes[allocs]),
            rows.alloc_ns[allocs],
            code[allocs].astype(np.int64),
            rows.bytes[allocs],
            rows.free_ns[frees],
            code[frees].astype(np.int64),
            rows.bytes[frees],
            np.maximum.accumulate(curve.ns),
            curve.bytes,
            analysis.labels.names,
        )

    def allocated(self, span: Span) -> int:
        """Bytes that were allocated within a span."""
        return self.allocations.within(span.begin_ns, span.end_ns)

    def peak(self, span: Span) -> int:
        """Highest level within a span, that at its beginning included."""
        first, last = np.searchsorted(self.level_ns, (span.begin_ns, span.end_ns))
        return int(self.level[max(first - 1, 0) : last].max(initial=0))

    def net_by_category(self, span: Span) -> dict[str, int]:
        """Bytes allocated less freed within a span, by category."""
        change = np.zeros(len(self.names) + 1, np.int64)
        for ns, code, size, sign in (
            (self.alloc_ns, self.alloc_code, self.alloc_bytes, 1),
            (self.free_ns, self.free_code, self.free_bytes, -1),
        ):
            first, last = np.searchsorted(ns, (span.begin_ns, span.end_ns))
            np.add.at(change, code[first:last], sign * size[first:last])
        names = (*self.names, Category.UNKNOWN.name)
        return {names[number]: int(change[number]) for number in np.flatnonzero(change).tolist()}


def _saved(analysis: Analysis, device: int) -> dict[str, int]:
    """By path, the most bytes alive at once that a module, or one in it, saved for the backward pass."""
    timeline, rows = analysis.timeline, analysis.timeline.rows
    saved = np.flatnonzero((rows.device == device) & (rows.category == Category.ACTIVATION) & (rows.name >= 0))
    by_path: defaultdict[str, list[int]] = defaultdict(list)
    for row in saved.tolist():
        for path in _with_parents(timeline.names[int(rows.name[row])]):
            by_path[path].append(row)
    return {path: peak_bytes(rows, np.array(found, np.int64)) for path, found in by_path.items()}


def _with_parents(path: str) -> Iterator[str]:
    """The path, those of the modules around it, and the model's own, which is empty."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""
