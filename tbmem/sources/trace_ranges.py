"""Operator, stack, module, phase and step of each allocation, from what was running in a trace."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tbmem.model.category import Phase
from tbmem.model.columns import I8, I32, I64, Bools
from tbmem.model.stacks import Names
from tbmem.model.timeline_tables import RangeKind, RangeRows
from tbmem.model.trace_additions import TraceAdditions
from tbmem.sources.nesting import innermost
from tbmem.sources.ranges import kind_of_range, step_of_range
from tbmem.sources.snapshot_stacks import phases_of
from tbmem.sources.trace_columns import Spans, TraceColumns
from tbmem.sources.trace_stacks import TraceStacks

_ALLOCATES = re.compile(r"aten::(new_)?(empty|resize)")
"""Operators that do nothing but allocate: what called them says more."""
_AUTOGRAD = re.compile(r"autograd::engine::|(struct )?torch::autograd::|\w*Backward\d*$")


class Running:
    """What was running in each thread at the moments of the allocations.

    Args:
        columns: The trace.
        entries: Memory events that made the rows; -1 for a row without one.
        additions: What tbmem noted.
        clock_zero: Unix time at which the trace's clock reads 0, in nanoseconds.
    """

    def __init__(self, columns: TraceColumns, entries: I64, additions: TraceAdditions, clock_zero: int) -> None:
        self._columns = columns
        self._made = np.flatnonzero(entries >= 0)
        self._rows = len(entries)
        memory = columns.memory
        self._thread = memory["thread"][entries[self._made]]
        self._at = memory["begin"][entries[self._made]]
        self._words = list(columns.words)
        calls = columns.functions
        noted = additions.calls
        called_from = calls["called_from"] if noted is None else noted.at(calls["begin"] + clock_zero)
        self.stacks = TraceStacks(calls, self._words, called_from, additions.files)
        self._lines = additions.operators.at(self._at + clock_zero)
        self._clock_zero = clock_zero
        self.operators = Names()
        self.range_names = Names()

    def attributes(self) -> dict[str, Any]:
        """Columns ``operator``, ``stack``, ``module`` and ``phase``."""
        every = self._around(self._columns.operators)
        stack, module = self.stacks.of_calls(self._around(self._columns.functions), self._lines)
        texts = self.stacks.of_texts(list(self._columns.call_stacks))
        if len(texts):
            text = np.append(self._columns.operators["call_stack"], -1)[every]
            stack = np.where(stack < 0, np.append(texts, -1)[text], stack)
        found = {
            "operator": self._operators(every),
            "stack": stack,
            "module": module,
            "phase": self._phases(stack),
        }
        return {name: self._on_rows(values, 0 if name == "phase" else -1) for name, values in found.items()}

    def ranges(self) -> RangeRows:
        """Steps, optimizer and annotations."""
        spans = self._columns.annotations
        names = [self._words[number] for number in spans["name"].tolist()]
        table = RangeRows.of(
            len(spans),
            name=[self.range_names.number(name) for name in names],
            kind=[kind_of_range(name) for name in names],
            begin_ns=spans["begin"] + self._clock_zero,
            end_ns=spans["end"] + self._clock_zero,
            step=[step_of_range(name) for name in names],
        )
        return table.take(np.argsort(table.begin_ns, kind="stable"))

    def _operators(self, every: I64) -> I64:
        spans = self._columns.operators
        names = spans["name"]
        telling = self._named(names, lambda word: not _ALLOCATES.match(word))
        inner = self._around(spans, telling)
        inner = np.where(inner >= 0, inner, every)
        used = np.append(names, -1)[inner]
        numbers = {word: self.operators.number(self._words[word]) for word in np.unique(used).tolist() if word >= 0}
        return np.array([numbers.get(word, -1) for word in used.tolist()], np.int64)

    def _phases(self, stack: I32) -> I8:
        """Phase by stack, by operators of autograd, and by the optimizer's annotation."""
        found: I8 = np.append(phases_of(self.stacks.builder.table()), np.int8(Phase.OTHER))[stack]
        spans, annotations = self._columns.operators, self._columns.annotations
        autograd = self._named(spans["name"], lambda word: bool(_AUTOGRAD.match(word)))
        optimizer = self._named(annotations["name"], lambda word: kind_of_range(word) == RangeKind.OPTIMIZER)
        found[(self._around(spans, autograd) >= 0) & (found != Phase.OPTIMIZER)] = Phase.BACKWARD
        found[self._around(annotations, optimizer) >= 0] = Phase.OPTIMIZER
        return found

    def _named(self, names: I64, says: Any) -> Bools:
        """Which of some spans have a name that a test accepts."""
        accepted = np.array([says(word) for word in self._words] or [False], np.bool_)
        chosen: Bools = accepted[names] if len(names) else np.zeros(0, np.bool_)
        return chosen

    def _around(self, spans: Spans, which: Bools | None = None) -> I64:
        """The innermost of some spans around each moment, in the same thread."""
        numbers = np.arange(len(spans)) if which is None else np.flatnonzero(which)
        inner = innermost(
            spans["thread"][numbers], spans["begin"][numbers], spans["end"][numbers], self._thread, self._at
        )
        return np.append(numbers, -1)[inner]

    def _on_rows(self, values: Any, fill: int) -> Any:
        column = np.full(self._rows, fill, np.int64)
        column[self._made] = values
        return column
