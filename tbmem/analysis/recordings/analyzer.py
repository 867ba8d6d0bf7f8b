"""Analyzes an AllocationTimeline, device by device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tbmem.analysis.recordings.breakdown import basis_name, max_by_code, peak_state, shares, sums
from tbmem.analysis.recordings.categorize import categorize
from tbmem.analysis.recordings.category_rules import UNKNOWN, CategoryTable
from tbmem.analysis.recordings.fragmentation import efficiency, fragmentation_of
from tbmem.analysis.recordings.lifetimes import MIN_GENERATIONS, lifetimes_of, suspects_of
from tbmem.analysis.recordings.module_tree import merged_modules, module_codes, module_tree
from tbmem.analysis.recordings.recommendations import DeviceFacts, recommendations_for
from tbmem.analysis.recordings.result import Allocation, Analysis, DeviceAnalysis, Labels, PeakMoment
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Category, Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import format_bytes

_TOP = 50
_STACKS = 50
_LINES = 1000
"""Lines and operators; comparisons need all of them."""
_NO_STACK, _NO_OPERATOR = "(no stack)", "(no operator)"


def analyze(
    timeline: AllocationTimeline,
    *,
    book: AddressBook | None = None,
    table: CategoryTable | None = None,
    name: str = "",
    path: str = "",
) -> Analysis:
    """Analyze a recording.

    Args:
        timeline: The recording.
        book: Address book of the same window; with it, categories are known rather than inferred.
        table: Rules that categories are inferred by without a book; the default rules if ``None``.
        name: Short name of the recording.
        path: File that it was read from.
    """
    recorded = timeline
    timeline, labels = categorize(timeline, book, table)
    lines = SourceLines(timeline.stacks)
    modules = module_codes(timeline)
    devices = tuple(
        _Device(timeline, number, labels, lines, modules).analysis() for number in range(len(timeline.devices))
    )
    return Analysis(
        name=name,
        path=path,
        source=timeline.source,
        timeline=timeline,
        labels=labels,
        devices=devices,
        notes=(*timeline.notes, *_notes(recorded, timeline, labels)),
    )


def _notes(recorded: AllocationTimeline, timeline: AllocationTimeline, labels: Labels) -> list[str]:
    """Notes of the analysis, beside those of the reader."""
    notes = []
    bases = {device.name: device.base_bytes for device in recorded.devices}
    for device in timeline.devices:
        if device.name not in bases:
            notes.append(
                f"{device.name}: the recording has no events of it; only what the address book noted there is counted."
            )
        elif older := device.base_bytes - bases[device.name]:
            notes.append(
                f"{device.name}: {format_bytes(older)} of parameters, optimizer state and the like are older than the"
                " recording and known from the address book: they are counted in the peak."
            )
    steps = np.unique(timeline.rows.step[timeline.rows.step >= 0])
    if (timeline.rows.alloc_event >= 0).any() and len(steps) < MIN_GENERATIONS:
        notes.append(
            f"{len(steps) or 'No'} step{'s' * (len(steps) != 1)} can be told apart; what piles up step by step is"
            f" looked for from {MIN_GENERATIONS} on."
        )
    if len(labels.names) > len(Category):
        notes.append(
            "The categories are inferred from words in stacks and operators: there is no address book beside the file."
        )
    return notes


class _Device:
    """Analysis of one device."""

    def __init__(
        self,
        timeline: AllocationTimeline,
        number: int,
        labels: Labels,
        lines: SourceLines,
        modules: tuple[I64, tuple[str, ...]],
    ) -> None:
        self._timeline, self._number = timeline, number
        self._labels, self._lines, self._modules = labels, lines, modules
        self._state = peak_state(timeline, number)

    def analysis(self) -> DeviceAnalysis:
        totals = self._timeline.devices[self._number]
        reserved_peak = self._timeline.peak_reserved(self._number)
        never_used, percent, grade = efficiency(self._state.peak, reserved_peak)
        same = ("name", "type", "index", "model", "measure", "events", "base_bytes", "total_bytes", "unmatched_frees")
        sizes = ("ooms", "reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
        result = DeviceAnalysis(
            **{name: getattr(totals, name) for name in (*same, *sizes)},
            **self._breakdowns(),
            number=self._number,
            key=str(totals.index) if totals.index >= 0 else totals.name,
            peak=self._peak(),
            peak_reserved_bytes=None if reserved_peak is None else reserved_peak.bytes,
            fragmentation=fragmentation_of(self._timeline, self._number),
            never_used_bytes=never_used,
            efficiency_percent=percent,
            grade=grade,
            top=self._top(),
            lifetimes=lifetimes_of(self._state),
            suspects=suspects_of(self._state, self._lines, self._labels),
            recommendations=(),
        )
        return replace(result, recommendations=recommendations_for(self._facts(result)))

    def _breakdowns(self) -> dict[str, Any]:
        state, rows, lines, labels = self._state, self._timeline.rows, self._lines, self._labels
        most = max_by_code(self._timeline, self._number, labels.code)
        line, operators, names = lines.codes(rows.stack), self._timeline.operators, labels.names
        return {
            "by_category": shares(state, labels.code, names.__getitem__, rest=UNKNOWN, basis=True, max_bytes=most),
            "by_phase": shares(state, rows.phase, lambda code: Phase(code).name, rest=Phase.OTHER.name),
            "modules": module_tree(state, *self._modules),
            "by_module": merged_modules(state, *self._modules),
            "by_line": shares(state, line, lines.of_frame, rest=_NO_STACK, limit=_LINES),
            "by_stack": shares(
                state, rows.stack, lines.line, rest=_NO_STACK, limit=_STACKS, distinct=True, frames=lines.frames
            ),
            "by_operator": shares(state, rows.operator, operators.__getitem__, rest=_NO_OPERATOR, limit=_LINES),
        }

    def _facts(self, result: DeviceAnalysis) -> DeviceFacts:
        segments, settings = self._timeline.segments, self._timeline.settings
        rows, alive = self._timeline.rows, self._state.alive
        by_category = sums(rows.category[alive], rows.bytes[alive], len(Category))
        return DeviceFacts(
            device=result,
            by_category={category: int(by_category[category]) for category in Category},
            settings=settings if isinstance(settings, Mapping) else {},
            expandable=bool(np.any(segments.expandable[segments.device == self._number])),
        )

    def _peak(self) -> PeakMoment:
        peak, rows = self._state.peak, self._timeline.rows
        at_peak = np.flatnonzero((rows.device == self._number) & (rows.alloc_event == peak.event))
        row = int(at_peak[0]) if peak.event >= 0 and len(at_peak) else -1
        return PeakMoment(
            bytes=peak.bytes,
            event=peak.event,
            ns=peak.ns,
            step=int(rows.step[row]) if row >= 0 else -1,
            phase=Phase(int(rows.phase[row])).name if row >= 0 else Phase.OTHER.name,
            line=self._line(row) if row >= 0 else "",
        )

    def _line(self, row: int) -> str:
        rows = self._timeline.rows
        return self._lines.line(int(rows.stack[row])) or _text(self._timeline.operators, int(rows.operator[row]))

    def _top(self) -> tuple[Allocation, ...]:
        size = self._timeline.rows.bytes
        alive = self._state.alive[size[self._state.alive] > 0]
        order = alive[np.lexsort((alive, -size[alive]))][:_TOP]
        return tuple(self._allocation(row) for row in order.tolist())

    def _allocation(self, row: int) -> Allocation:
        timeline, rows = self._timeline, self._timeline.rows
        numbers = ("bytes", "rounded_bytes", "step", "alloc_event", "free_event", "alloc_ns", "free_ns")
        return Allocation(
            **{name: int(getattr(rows, name)[row]) for name in numbers},
            row=row,
            category=self._labels.names[self._labels.code[row]],
            basis=basis_name(int(rows.basis[row])),
            name=_text(timeline.names, int(rows.name[row])),
            module=_text(self._modules[1], int(self._modules[0][row])),
            operator=_text(timeline.operators, int(rows.operator[row])),
            phase=Phase(int(rows.phase[row])).name,
            line=self._lines.line(int(rows.stack[row])),
            stack=self._lines.frames(int(rows.stack[row])),
            alive_at_end=int(rows.free_event[row]) < 0,
        )


def _text(names: tuple[str, ...], number: int) -> str:
    return names[number] if number >= 0 else ""
