"""Finds operator, stack, module and phase of each allocation in a trace, and the calls of operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tbmem.model.category import Phase
from tbmem.model.columns import I8, I32, I64, Bools
from tbmem.model.progress import progress
from tbmem.model.stacks import Names, Numbering
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import CallRows, ChangeRows, OperatorCalls, RangeKind, RangeRows
from tbmem.model.trace_additions import TraceAdditions
from tbmem.sources.events.annotations import kind_of_range, phases_of, step_of_range
from tbmem.sources.trace.columns import Spans, TraceColumns
from tbmem.sources.trace.stacks import TraceStacks

_ALLOCATES = re.compile(r"aten::(new_)?(empty|resize)")
"""Operators that only allocate: their caller is more informative."""
_AUTOGRAD = re.compile(r"autograd::engine::|(struct )?torch::autograd::|\w*Backward\d*$")


class AllocationContext:
    """What was active in the thread of each allocation, by its memory event in ``entries`` (-1 for none)."""

    def __init__(self, columns: TraceColumns, entries: I64, additions: TraceAdditions, clock_zero: int) -> None:
        self._columns, self._words = columns, list(columns.words)
        # a row without an event is in no thread
        self._thread = np.append(columns.memory["thread"], -1)[entries]
        self._at = np.append(columns.memory["begin"], -1)[entries]
        calls, lines = columns.functions, additions.calls
        called_from = calls["called_from"] if lines is None else lines.at(calls["begin"] + clock_zero)
        self.stacks = TraceStacks(calls, self._words, called_from, additions.files)
        self._lines = additions.operators.at(self._at + clock_zero)
        self._clock_zero = clock_zero
        self.operators = Names()

    def attributes(self) -> dict[str, Any]:
        """Columns ``operator``, ``stack``, ``module`` and ``phase``."""
        operator = self._around(self._columns.operators)
        stack, module = self.stacks.of_calls(self._around(self._columns.functions), self._lines)
        texts = self.stacks.of_texts(list(self._columns.call_stacks))
        if len(texts):
            text = np.append(self._columns.operators["call_stack"], -1)[operator]
            stack = np.where(stack < 0, np.append(texts, -1)[text], stack)
        return {"operator": self._operators(operator), "stack": stack, "module": module, "phase": self._phases(stack)}

    def ranges(self) -> tuple[RangeRows, tuple[str, ...]]:
        """Steps, optimizer and annotations, and the table of their names."""
        spans = self._columns.annotations
        words = [self._words[number] for number in spans["name"].tolist()]
        names = Numbering[str]()
        table = RangeRows.of(
            len(spans),
            name=[names[word] for word in words],
            kind=[kind_of_range(word) for word in words],
            begin_ns=spans["begin"] + self._clock_zero,
            end_ns=spans["end"] + self._clock_zero,
            step=[step_of_range(word) for word in words],
        )
        return table.take(np.argsort(table.begin_ns, kind="stable")), tuple(names)

    def _operators(self, innermost_operator: I64) -> I64:
        """Numbers of the innermost operators that do more than allocate, else of the innermost ones."""
        spans = self._columns.operators
        inner = self._around(spans, self._named(spans["name"], lambda word: not _ALLOCATES.match(word)))
        used = np.append(spans["name"], -1)[np.where(inner >= 0, inner, innermost_operator)]
        numbers = {word: self.operators[self._words[word]] for word in np.unique(used).tolist() if word >= 0}
        return np.array([numbers.get(word, -1) for word in used.tolist()], np.int64)

    def _phases(self, stack: I32) -> I8:
        """Phase by stack, operators of autograd, and the optimizer's annotation."""
        phase: I8 = np.append(phases_of(self.stacks.table()), np.int8(Phase.OTHER))[stack]
        spans, annotations = self._columns.operators, self._columns.annotations
        autograd = self._named(spans["name"], lambda word: bool(_AUTOGRAD.match(word)))
        optimizer = self._named(annotations["name"], lambda word: kind_of_range(word) == RangeKind.OPTIMIZER)
        phase[(self._around(spans, autograd) >= 0) & (phase != Phase.OPTIMIZER)] = Phase.BACKWARD
        phase[self._around(annotations, optimizer) >= 0] = Phase.OPTIMIZER
        return phase

    def _named(self, names: I64, accepts: Callable[[str], bool]) -> Bools:
        """A mask of the spans whose name is accepted."""
        return np.array([accepts(word) for word in self._words] or [False], np.bool_)[names]

    def _around(self, spans: Spans, mask: Bools | None = None) -> I64:
        """Number of the innermost span around each allocation, in the same thread; -1 for none."""
        numbers = np.arange(len(spans)) if mask is None else np.flatnonzero(mask)
        thread, begin, end = (spans[name][numbers] for name in ("thread", "begin", "end"))
        return np.append(numbers, -1)[innermost(thread, begin, end, self._thread, self._at)]


def calls_of(columns: TraceColumns, timeline: AllocationTimeline, clock_zero: int) -> OperatorCalls:
    """Calls of operators, and changes of memory on the timeline's devices, in Unix time."""
    spans, memory = columns.operators, columns.memory
    used, name = np.unique(spans["name"], return_inverse=True)
    words = list(columns.words)
    device = np.full(len(memory), -1, np.int16)
    for number, totals in enumerate(timeline.devices):
        device[(memory["type"] == totals.type) & ((memory["index"] == totals.index) | (totals.type == 0))] = number
    return OperatorCalls(
        calls=CallRows.of(
            len(spans),
            name=name.reshape(-1),
            thread=spans["thread"],
            begin_ns=spans["begin"] + clock_zero,
            end_ns=spans["end"] + clock_zero,
        ),
        changes=ChangeRows.of(
            len(memory),
            device=device,
            thread=memory["thread"],
            ns=memory["begin"] + clock_zero,
            bytes=memory["bytes"],
            call=innermost(spans["thread"], spans["begin"], spans["end"], memory["thread"], memory["begin"]),
        ),
        names=tuple(words[number] for number in used.tolist()),
    )


def innermost(thread: I64, begin: I64, end: I64, at_thread: I64, at: I64) -> I64:
    """Number of the innermost range of the same thread around each moment, its ends included; -1 for none.

    Of ranges that overlap without nesting (due to rounding to microseconds) the one that began last counts.
    """
    innermost_ranges = np.full(len(at), -1, np.int64)
    for number in np.unique(at_thread):
        ranges, moments = np.flatnonzero(thread == number), np.flatnonzero(at_thread == number)
        moments = moments[np.argsort(at[moments], kind="stable")]
        times = at[moments]
        # most ranges contain no moment
        holding = np.searchsorted(times, begin[ranges], "left") < np.searchsorted(times, end[ranges], "right")
        ranges = ranges[holding]
        ranges = ranges[np.lexsort((-end[ranges], begin[ranges]))]
        inner = np.array(_sweep(begin[ranges].tolist(), end[ranges].tolist(), times.tolist()), np.int64)
        innermost_ranges[moments] = np.append(ranges, -1)[inner]
    return innermost_ranges


def _sweep(begins: list[int], ends: list[int], times: list[int]) -> list[int]:
    """Innermost range at each time; ranges and times are sorted."""
    progress("attributing allocations")
    innermost_ranges: list[int] = []
    open_ranges: list[int] = []
    following, count = 0, len(begins)
    for time in times:
        while following < count and begins[following] <= time:
            while open_ranges and ends[open_ranges[-1]] < begins[following]:
                open_ranges.pop()
            open_ranges.append(following)
            following += 1
        while open_ranges and ends[open_ranges[-1]] < time:
            open_ranges.pop()
        innermost_ranges.append(open_ranges[-1] if open_ranges else -1)
    return innermost_ranges
