"""Columns of a trace's events that concern memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tbmem.model.columns import I64
from tbmem.sources.trace.json_stream import NO_ARGUMENTS, Arguments, Event

NO_TOTAL = -1
_LATEST = 9e15
"""Microseconds; later times in nanoseconds do not fit into 64 bits."""
_MEMORY = "[memory]"
_FUNCTIONS = "python_function"
_OPERATORS = ("cpu_op", "Operator")
_ANNOTATIONS = "user_annotation"
_ANNOTATION_NAMES = ("ProfilerStep#", "Optimizer.")
"""Until 2022 these were operators."""
_NUMBERS = {"bytes": 0, "address": 0, "type": 0, "index": -1, "allocated": NO_TOTAL, "reserved": NO_TOTAL}
"""Arguments of a memory event with their default values, in the order of the columns."""


class Numbering(dict[str, int]):
    """Numbers of words in the order of their first use."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Spans:
    """Columns that grow batch by batch: thread, begin, end and extra ones."""

    def __init__(self, *extra: str) -> None:
        self._parts: dict[str, list[I64]] = {name: [] for name in ("thread", "begin", "end", *extra)}

    def add(self, *columns: Sequence[int] | I64) -> None:
        """Append values, column by column."""
        for parts, values in zip(self._parts.values(), columns, strict=True):
            parts.append(np.array(values, np.int64))

    def __getitem__(self, name: str) -> I64:
        parts = self._parts[name]
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self["thread"])


class TraceColumns:
    """Memory events of a trace, and the operators, functions and annotations around them."""

    def __init__(self) -> None:
        self.words, self.call_stacks, self.threads = Numbering(), Numbering(), Numbering()
        self.operators = Spans("name", "call_stack")
        self.functions = Spans("name", "id", "parent", "called_from")
        self.annotations = Spans("name")
        self.memory = Spans(*_NUMBERS)
        """``begin`` equals ``end``."""

    def add(self, batch: list[Event]) -> None:
        """Append events.

        Raises:
            ValueError: A time is out of range.
            OverflowError: A number does not fit into 64 bits.
        """
        by_category: dict[str | None, list[Event]] = defaultdict(list)
        for event in batch:
            if event.name and event.ts is not None:
                by_category[event.cat].append(event)
        self._add_functions(by_category.pop(_FUNCTIONS, []))
        operators = [event for category in _OPERATORS for event in by_category.pop(category, [])]
        annotations = by_category.pop(_ANNOTATIONS, [])
        annotations += [event for event in operators if event.name.startswith(_ANNOTATION_NAMES)]
        self.annotations.add(*self._span(annotations))
        self._add_operators([event for event in operators if not event.name.startswith(_ANNOTATION_NAMES)])
        self._add_memory([event for events in by_category.values() for event in events if event.name == _MEMORY])

    def _add_functions(self, events: list[Event]) -> None:
        arguments = _arguments(events)
        ids = [-1 if args.id is None else args.id for args in arguments]
        parents = [-1 if args.parent is None else args.parent for args in arguments]
        lines = [0 if args.called_from is None else _line_of(args.called_from) for args in arguments]
        self.functions.add(*self._span(events), ids, parents, lines)

    def _add_operators(self, events: list[Event]) -> None:
        texts = [args.call_stack for args in _arguments(events)]
        self.operators.add(*self._span(events), [-1 if text is None else self.call_stacks[text] for text in texts])

    def _add_memory(self, events: list[Event]) -> None:
        begin = _ns([event.ts or 0.0 for event in events])
        arguments = _arguments(events)
        columns = []
        for name, default in _NUMBERS.items():
            values = [getattr(args, name) for args in arguments]
            columns.append([default if value is None else value for value in values])
        self.memory.add(self._threads(events), begin, begin, *columns)

    def _span(self, events: list[Event]) -> tuple[list[int], I64, I64, list[int]]:
        begin = _ns([event.ts or 0.0 for event in events])
        names = [self.words[event.name] for event in events]
        return self._threads(events), begin, begin + _ns([event.dur or 0.0 for event in events]), names

    def _threads(self, events: list[Event]) -> list[int]:
        return [self.threads[str(event.tid)] for event in events]


def _arguments(events: list[Event]) -> list[Arguments]:
    return [event.args or NO_ARGUMENTS for event in events]


def _line_of(location: str) -> int:
    """The line in ``'train.py:12'``; 0 for none."""
    line = location.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _ns(microseconds: list[float]) -> I64:
    """Nanoseconds from microseconds."""
    values = np.array(microseconds, np.float64)
    if not (np.abs(values) <= _LATEST).all():
        raise ValueError("a time beyond the year 2255")
    whole = np.floor(values)
    nanoseconds: I64 = whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
    return nanoseconds
