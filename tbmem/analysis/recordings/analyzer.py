"""Analyses a timeline, device by device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tbmem.analysis.recordings.breakdown import Moment, basis_name, moment_of, most_by_code, shares, sums
from tbmem.analysis.recordings.categorize import label
from tbmem.analysis.recordings.category_rules import UNKNOWN, CategoryTable
from tbmem.analysis.recordings.fragmentation import efficiency, fragmentation_of
from tbmem.analysis.recordings.lifetimes import MIN_GENERATIONS, lifetimes_of, suspects_of
from tbmem.analysis.recordings.module_tree import merged_modules, module_codes, module_tree
from tbmem.analysis.recordings.recommendations import Figures, recommendations_for
from tbmem.analysis.recordings.result import Allocation, Analysis, DeviceAnalysis, Labels, PeakMoment
from tbmem.analysis.source_lines import SourceLines
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Category, Phase
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import DeviceTotals
from tbmem.units import format_bytes

TOP = 50
_STACKS = 50
_PLACES = 1000
"""Lines and operators: comparisons need all of them."""
_NO_STACK, _NO_OPERATOR = "(no stack)", "(no operator)"


def analyze(
    timeline: AllocationTimeline,
    *,
    book: AddressBook | None = None,
    table: CategoryTable | None = None,
    name: str = "",
    path: str = "",
) -> Analysis:
    """Say what a recording means.

    Args:
        timeline: The recording.
        book: Address book of the same window: with it, categories are known and not guessed.
        table: Rules to guess by where there is no book; without one the default rules.
        name: Short name of the recording.
        path: Where it was read.
    """
    before = timeline
    timeline, labels = label(timeline, book, table)
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
        notes=(*timeline.notes, *_notes(before, timeline, labels)),
    )


def _notes(before: AllocationTimeline, timeline: AllocationTimeline, labels: Labels) -> list[str]:
    """What the analysis itself has to add."""
    notes = []
    bases = {device.name: device.base_bytes for device in before.devices}
    for new in timeline.devices:
        if new.name not in bases:
            notes.append(
                f"{new.name}: the recording has no events of it; only what the address book noted there is counted."
            )
        elif more := new.base_bytes - bases[new.name]:
            notes.append(
                f"{new.name}: {format_bytes(more)} of parameters, optimizer state and the like are older than the"
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
    """Puts together what is said of one device."""

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
        self._totals: DeviceTotals = timeline.devices[number]
        self._moment: Moment = moment_of(timeline, number)

    def analysis(self) -> DeviceAnalysis:
        totals = self._totals
        reserved_peak = self._timeline.peak_reserved(self._number)
        never_used, percent, grade = efficiency(self._moment.peak, reserved_peak)
        taken_over = ("name", "type", "index", "model", "measure", "events", "base_bytes", "total_bytes")
        counts = ("unmatched_frees", "ooms")
        sizes = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
        result = DeviceAnalysis(
            **{name: getattr(totals, name) for name in (*taken_over, *sizes, *counts)},
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
            lifetimes=lifetimes_of(self._moment),
            suspects=suspects_of(self._moment, self._lines, self._labels),
            recommendations=(),
        )
        return replace(result, recommendations=recommendations_for(self._figures(result)))

    def _breakdowns(self) -> dict[str, Any]:
        """Parts of the peak, by each thing that a row has."""
        moment, rows, lines, labels = self._moment, self._timeline.rows, self._lines, self._labels
        most = most_by_code(self._timeline, self._number, labels.code)
        line, operators = lines.codes(rows.stack), self._timeline.operators
        stacks = shares(
            moment, rows.stack, lines.line, rest=_NO_STACK, limit=_STACKS, distinct=True, extra=lines.frames
        )
        return {
            "by_category": shares(moment, labels.code, labels.names.__getitem__, rest=UNKNOWN, basis=True, most=most),
            "by_phase": shares(moment, rows.phase, lambda code: Phase(code).name, rest=Phase.OTHER.name),
            "modules": module_tree(moment, *self._modules),
            "by_module": merged_modules(moment, *self._modules),
            "by_line": shares(moment, line, lines.of_frame, rest=_NO_STACK, limit=_PLACES),
            "by_stack": stacks,
            "by_operator": shares(moment, rows.operator, operators.__getitem__, rest=_NO_OPERATOR, limit=_PLACES),
        }

    def _figures(self, result: DeviceAnalysis) -> Figures:
        segments, settings = self._timeline.segments, self._timeline.settings
        rows, alive = self._timeline.rows, self._moment.alive
        by_kind = sums(rows.category[alive], rows.bytes[alive], len(Category))
        return Figures(
            device=result,
            by_kind={category: int(by_kind[category]) for category in Category},
            settings=settings if isinstance(settings, Mapping) else {},
            expandable=bool(np.any(segments.expandable[segments.device == self._number])),
        )

    def _peak(self) -> PeakMoment:
        peak = self._moment.peak
        rows = self._timeline.rows
        at = np.flatnonzero((rows.device == self._number) & (rows.alloc_event == peak.event))
        row = int(at[0]) if peak.event >= 0 and len(at) else -1
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
        operator = int(rows.operator[row])
        return self._lines.line(int(rows.stack[row])) or (self._timeline.operators[operator] if operator >= 0 else "")

    def _top(self) -> tuple[Allocation, ...]:
        size = self._timeline.rows.bytes
        alive = self._moment.alive[size[self._moment.alive] > 0]
        order = alive[np.lexsort((alive, -size[alive]))][:TOP]
        return tuple(self._allocation(row) for row in order.tolist())

    def _allocation(self, row: int) -> Allocation:
        timeline, rows = self._timeline, self._timeline.rows
        return Allocation(
            row=row,
            bytes=int(rows.bytes[row]),
            rounded_bytes=int(rows.rounded_bytes[row]),
            category=self._labels.names[self._labels.code[row]],
            basis=basis_name(int(rows.basis[row])),
            name=_word(timeline.names, int(rows.name[row])),
            module=_word(self._modules[1], int(self._modules[0][row])),
            operator=_word(timeline.operators, int(rows.operator[row])),
            phase=Phase(int(rows.phase[row])).name,
            step=int(rows.step[row]),
            line=self._lines.line(int(rows.stack[row])),
            stack=self._lines.frames(int(rows.stack[row])),
            alloc_event=int(rows.alloc_event[row]),
            free_event=int(rows.free_event[row]),
            alloc_ns=int(rows.alloc_ns[row]),
            free_ns=int(rows.free_ns[row]),
            alive_at_end=int(rows.free_event[row]) < 0,
        )


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if number >= 0 else ""
