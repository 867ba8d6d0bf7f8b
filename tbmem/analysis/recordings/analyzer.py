"""Analyzes an AllocationTimeline, device by device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tbmem.analysis.allocator.what_if import reserved_change
from tbmem.analysis.recordings.breakdown import PeakState, max_by_code, peak_state, shares, sums
from tbmem.analysis.recordings.category_rules import UNKNOWN, CategoryTable, categorize
from tbmem.analysis.recordings.fragmentation import efficiency, fragmentation_of
from tbmem.analysis.recordings.lifetimes import MIN_GENERATIONS, lifetimes_of, suspects_of
from tbmem.analysis.recordings.module_tree import merged_modules, module_codes, module_tree
from tbmem.analysis.recordings.recommendations import DeviceFacts, recommendations_for
from tbmem.analysis.recordings.result import Allocation, Analysis, DeviceAnalysis, Labels, PeakMoment
from tbmem.analysis.recordings.step_table import recorded_steps
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I64
from tbmem.model.progress import progress
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import format_bytes

_TOP, _STACKS = 50, 50
_LINES = 1000
"""Lines and operators; comparisons need all of them."""
_OPTIMIZERS_NAME = re.compile(r"(^|\.)group\d+\.param\d+(\.|$)")
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
        path: Its file.
    """
    recorded = timeline
    progress("analysing")
    timeline, labels = categorize(timeline, book, table)
    lines = SourceLines(timeline.stacks)
    modules = module_codes(timeline)
    states = [peak_state(timeline, number) for number in range(len(timeline.devices))]
    return Analysis(
        name=name,
        path=path,
        source=timeline.source,
        timeline=timeline,
        labels=labels,
        devices=tuple(_Device(state, labels, lines, modules).analysis() for state in states),
        notes=(*timeline.notes, *_notes(recorded, timeline, labels), *_notes_of_names(book)),
    )


def _notes(recorded: AllocationTimeline, timeline: AllocationTimeline, labels: Labels) -> list[str]:
    notes = []
    bases = {device.name: device.base_bytes for device in recorded.devices}
    for device in timeline.devices:
        if device.name not in bases:
            text = "the recording has no events of it; only storages in the address book are counted"
            notes.append(f"{device.name}: {text}.")
        elif older := device.base_bytes - bases[device.name]:
            notes.append(
                f"{device.name}: {format_bytes(older)} of parameters, optimizer state and similar are older than the"
                f" recording and known from the address book: they are counted in the peak."
            )
    steps = np.unique(timeline.rows.step[timeline.rows.step >= 0])
    if (timeline.rows.alloc_event >= 0).any() and len(steps) < MIN_GENERATIONS:
        notes.append(
            f"{len(steps) or 'No'} step{'s' * (len(steps) != 1)} can be distinguished; accumulation over steps is"
            f" detected from {MIN_GENERATIONS} on."
        )
    if len(labels.names) > len(Category):
        notes.append("The categories are inferred from stacks and operators: there is no address book beside the file.")
    older = (timeline.rows.basis == Basis.INFERRED) & (timeline.rows.alloc_event < 0) & (timeline.rows.stack < 0)
    if size := int(timeline.rows.bytes[older].sum()):
        notes.append(
            f"The categories of {format_bytes(size)} that are older than the recording are inferred: from copies of"
            " equal sizes, from what is freed when, or from shapes of weights."
        )
    return notes


def _notes_of_names(book: AddressBook | None) -> list[str]:
    if book is None or not any(map(_OPTIMIZERS_NAME.search, book.names)):
        return []
    names = "memory.watch(model, optimizer), or tbmem run, names them as the model does"
    return [f"Parameters are named by their place in the optimizer (group0.param0): {names}."]


class _Device(NamedTuple):
    state: PeakState
    labels: Labels
    lines: SourceLines
    modules: tuple[I64, tuple[str, ...]]

    def analysis(self) -> DeviceAnalysis:
        state, timeline, number = self.state, self.state.timeline, self.state.device
        totals, reserved_peak = timeline.devices[number], timeline.peak_reserved(number)
        never_used, percent, grade = efficiency(state.peak, reserved_peak)
        same = ("name", "type", "index", "model", "measure", "events", "base_bytes", "total_bytes", "unmatched_frees")
        sizes = ("ooms", "reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
        result = DeviceAnalysis(
            **{name: getattr(totals, name) for name in (*same, *sizes)},
            **self._breakdowns(),
            number=number,
            key=str(totals.index) if totals.index >= 0 else totals.name,
            peak=self._peak(),
            peak_reserved_bytes=None if reserved_peak is None else reserved_peak.bytes,
            fragmentation=fragmentation_of(timeline, number),
            never_used_bytes=never_used,
            efficiency_percent=percent,
            grade=grade,
            top=self._top(),
            lifetimes=lifetimes_of(state),
            suspects=suspects_of(state, self.lines, self.labels),
            recommendations=(),
            steps=recorded_steps(timeline, number),
        )
        by_category = sums(timeline.rows.category[state.alive], timeline.rows.bytes[state.alive], len(Category))
        facts = DeviceFacts(
            device=result,
            by_category={category: int(by_category[category]) for category in Category},
            settings=timeline.settings if isinstance(timeline.settings, Mapping) else {},
            expandable=bool(np.any(timeline.segments.expandable[timeline.segments.device == number])),
            replayed=partial(reserved_change, timeline, number),
        )
        return replace(result, recommendations=recommendations_for(facts))

    def _breakdowns(self) -> dict[str, Any]:
        state, timeline, lines, labels = self.state, self.state.timeline, self.lines, self.labels
        rows, line = timeline.rows, lines.codes(timeline.rows.stack)
        operator, most = timeline.operators.__getitem__, max_by_code(timeline, state.device, labels.code)
        category = labels.names.__getitem__
        return {
            "by_category": shares(state, labels.code, category, rest=UNKNOWN, max_bytes=most),
            "by_phase": shares(state, rows.phase, lambda code: Phase(code).name, rest=Phase.OTHER.name),
            "modules": module_tree(state, *self.modules),
            "by_module": merged_modules(state, *self.modules),
            "by_line": shares(state, line, lines.of_frame, rest=_NO_STACK, limit=_LINES),
            "by_stack": shares(state, rows.stack, lines.line, rest=_NO_STACK, limit=_STACKS, frames=lines.frames),
            "by_operator": shares(state, rows.operator, operator, rest=_NO_OPERATOR, limit=_LINES),
        }

    def _peak(self) -> PeakMoment:
        peak, timeline = self.state.peak, self.state.timeline
        rows = timeline.rows
        at_peak = np.flatnonzero((rows.device == self.state.device) & (rows.alloc_event == peak.event))
        step, phase, line = -1, Phase.OTHER, ""
        if peak.event >= 0 and len(at_peak):
            row = int(at_peak[0])
            step, phase = int(rows.step[row]), Phase(int(rows.phase[row]))
            line = self.lines.line(int(rows.stack[row])) or _text(timeline.operators, int(rows.operator[row]))
        return PeakMoment(bytes=peak.bytes, event=peak.event, ns=peak.ns, step=step, phase=phase.name, line=line)

    def _top(self) -> tuple[Allocation, ...]:
        size = self.state.timeline.rows.bytes
        alive = self.state.alive[size[self.state.alive] > 0]
        return tuple(map(self._allocation, alive[np.lexsort((alive, -size[alive]))][:_TOP].tolist()))

    def _allocation(self, row: int) -> Allocation:
        timeline, rows = self.state.timeline, self.state.timeline.rows
        numbers = ("bytes", "rounded_bytes", "step", "alloc_event", "free_event", "alloc_ns", "free_ns")
        return Allocation(
            **{name: int(getattr(rows, name)[row]) for name in numbers},
            row=row,
            category=self.labels.names[self.labels.code[row]],
            basis=Basis(int(rows.basis[row])).name.lower(),
            name=_text(timeline.names, int(rows.name[row])),
            module=_text(self.modules[1], int(self.modules[0][row])),
            operator=_text(timeline.operators, int(rows.operator[row])),
            phase=Phase(int(rows.phase[row])).name,
            line=self.lines.line(int(rows.stack[row])),
            stack=self.lines.frames(int(rows.stack[row])),
            alive_at_end=int(rows.free_event[row]) < 0,
        )


def _text(names: tuple[str, ...], number: int) -> str:
    return names[number] if number >= 0 else ""
