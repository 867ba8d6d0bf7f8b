"""Columns of a trace's events that concern memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tbmem.model.columns import I64
from tbmem.model.stacks import Numbering
from tbmem.sources.trace.json_stream import NO_ARGUMENTS, Event

_LATEST = 9e15  # microseconds; later times in nanoseconds do not fit into 64 bits
_OPERATORS = ("cpu_op", "Operator")
_ANNOTATION_NAMES = ("ProfilerStep#", "Optimizer.")  # until 2022 these were operators
_NUMBERS = {"bytes": 0, "address": 0, "type": 0, "index": -1, "allocated": -1, "reserved": -1}
"""Arguments of a memory event with their default values, in the order of the columns."""
_WEIGHTS = {
    **{"aten::embedding": (0,), "aten::linear": (1, 2), "aten::convolution": (1, 2)},
    **{"aten::layer_norm": (2, 3), "aten::batch_norm": (1, 2, 3, 4), "aten::group_norm": (2, 3)},
}
"""Which inputs of an operator are weights."""


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
        self.words, self.call_stacks, self.threads = Numbering[str](), Numbering[str](), Numbering[str]()
        self.operators = Spans("name", "call_stack")
        self.functions = Spans("name", "id", "parent", "called_from")
        self.annotations = Spans("name")
        self.memory = Spans(*_NUMBERS)
        """``begin`` equals ``end``."""
        self.weights = Counter[tuple[str, str, tuple[int, ...]]]()
        """Calls of operators by name, and by type and shape of each weight."""

    def add(self, batch: list[Event]) -> None:
        """Append events; ValueError or OverflowError if a time or number is out of range."""
        by_category: dict[str | None, list[Event]] = defaultdict(list)
        for event in batch:
            if event.name and event.ts is not None:
                by_category[event.cat].append(event)
        functions = by_category.pop("python_function", [])
        lines = [_line_of(location) for location in _argument(functions, "called_from", "")]
        ids, parents = _argument(functions, "id", -1), _argument(functions, "parent", -1)
        self.functions.add(*self._span(functions), ids, parents, lines)
        events = [event for category in _OPERATORS for event in by_category.pop(category, [])]
        annotations = by_category.pop("user_annotation", [])
        annotations += [event for event in events if event.name.startswith(_ANNOTATION_NAMES)]
        self.annotations.add(*self._span(annotations))
        operators = [event for event in events if not event.name.startswith(_ANNOTATION_NAMES)]
        stacks = [self.call_stacks[text] if text else -1 for text in _argument(operators, "call_stack", "")]
        self.operators.add(*self._span(operators), stacks)
        self.weights.update(weight for event in operators if event.name in _WEIGHTS for weight in _weights(event))
        memory = [event for events in by_category.values() for event in events if event.name == "[memory]"]
        numbers = (_argument(memory, name, default) for name, default in _NUMBERS.items())
        begin = _ns([event.ts or 0.0 for event in memory])
        self.memory.add(self._threads(memory), begin, begin, *numbers)

    def _span(self, events: list[Event]) -> tuple[list[int], I64, I64, list[int]]:
        begin = _ns([event.ts or 0.0 for event in events])
        names = [self.words[event.name] for event in events]
        return self._threads(events), begin, begin + _ns([event.dur or 0.0 for event in events]), names

    def _threads(self, events: list[Event]) -> list[int]:
        return [self.threads[str(event.tid)] for event in events]


def _argument(events: list[Event], name: str, default: Any) -> list[Any]:
    values = [getattr(event.args or NO_ARGUMENTS, name) for event in events]
    return [default if value is None else value for value in values]


def _weights(event: Event) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name of the operator, type and shape of each of its weights, as far as the trace has shapes."""
    arguments = event.args or NO_ARGUMENTS
    dims, types = (msgspec.json.decode(raw) if raw else None for raw in (arguments.dims, arguments.types))
    if not isinstance(dims, list) or not isinstance(types, list):
        return
    inputs = list(zip(dims, types, strict=False))
    for position in _WEIGHTS[event.name]:
        shape, dtype = inputs[position] if position < len(inputs) else ((), "")
        if isinstance(shape, list) and shape and all(isinstance(size, int) for size in shape):
            yield event.name, str(dtype), tuple(shape)


def _line_of(location: str) -> int:
    """The line in ``'train.py:12'``; 0 for none."""
    line = location.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _ns(microseconds: list[float]) -> I64:
    """Nanoseconds from microseconds."""
    values = np.array(microseconds, np.float64)
    if not (np.abs(values) <= _LATEST).all():
        raise ValueError("a time beyond the year 2255")
    floor = np.floor(values)
    return np.asarray(floor.astype(np.int64) * 1000 + np.rint((values - floor) * 1000).astype(np.int64))
