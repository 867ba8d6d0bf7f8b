"""Events of a trace go in, in batches; columns of what concerns memory come out, the rest is passed over."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tbmem.model.columns import I64
from tbmem.sources.json_events import Batch, parse_body

NO_TOTAL = -1
_TEXT = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_HEAD = re.compile(
    rb'\s*"ph":\s*"(\w)",\s*(?:"cat":\s*"([^"]*)",\s*)?(?:"s":\s*"\w",\s*)?"name":\s*' + _TEXT + rb","
    rb'\s*"pid":\s*[^,]*,\s*"tid":\s*"?([^,"]*)"?\s*,\s*"ts":\s*"?(-?[0-9.]+(?:[eE][+-]?\d+)?)"?'
    rb'(?:,\s*"dur":\s*"?([0-9.]+(?:[eE][+-]?\d+)?)"?)?'
    rb'(?:\s*,\s*"args":\s*\{\s*(?:"CallFrom":\s*"[^"]*?(?::(\d+))?",\s*)?(?:"Python parent id":\s*(null|\d+),\s*)?'
    rb'(?:"Python module id":\s*\d+,\s*)?"Python id":\s*(\d+))?'
)
"""How torch begins an event; whatever is written otherwise is parsed in full."""
_CATEGORY, _NAME, _THREAD, _BEGIN, _DURATION, _CALLED_FROM, _PARENT, _ID = range(2, 10)
_CALL_STACK = b'"Call stack":'
_CALL_STACK_TEXT = re.compile(rb"\s*" + _TEXT)
_NUMBERS = re.compile(rb'"([A-Z][A-Za-z ]*)":\s*"?(-?\d+)\b')
_LATEST = 9e15
"""Microseconds; nanoseconds of more have no room in 64 bits."""
_MEMORY = b"[memory]"
_MAY_MATTER = (b'"X"', b'"[memory]"')
_FUNCTIONS = b"python_function"
_OPERATORS = (b"cpu_op", b"Operator")
_ANNOTATIONS = b"user_annotation"
_ANNOTATION_NAMES = (b"ProfilerStep#", b"Optimizer.")
"""Before 2022 these were operators."""
_ARGUMENTS = {
    b"Bytes": 0,
    b"Addr": 0,
    b"Device Type": 0,
    b"Device Id": -1,
    b"Total Allocated": NO_TOTAL,
    b"Total Reserved": NO_TOTAL,
}
"""Of a memory event, with what stands for one that is missing; in the order of the columns."""
_FURTHER_ARGUMENTS = ("CallFrom", "Python parent id", "Python id", "Call stack")
"""``CallFrom`` is written since torch 2.14: file and line from which a Python function was called."""
Heads = list[re.Match[bytes]]


class Words:
    """Numbers words as they stand in the file, and reads them at the end."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = _Counting()

    def number(self, raw: bytes) -> int:
        """Number of a word."""
        return self._numbers[raw]

    def numbers(self, raw: Iterable[bytes]) -> list[int]:
        """Numbers of words, which may hold JSON's escapes."""
        return list(map(self._numbers.__getitem__, raw))

    def table(self) -> list[str]:
        """All words so far, each at its number."""
        return [_unescape(raw) for raw in self._numbers]


class _Counting(dict[bytes, int]):
    def __missing__(self, key: bytes) -> int:
        number = self[key] = len(self)
        return number


class Spans:
    """Columns that grow batch by batch: thread, begin and end, and some of their own."""

    def __init__(self, *extra: str) -> None:
        self._parts: dict[str, list[I64]] = {name: [] for name in ("thread", "begin", "end", *extra)}

    def add(self, *columns: Sequence[int] | I64) -> None:
        """Some more, column by column."""
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
    """What a trace says of memory, and what was running meanwhile."""

    def __init__(self) -> None:
        self.words = Words()
        self.call_stacks = Words()
        self.threads = Words()
        self.operators = Spans("name", "call_stack")
        self.functions = Spans("name", "id", "parent", "called_from")
        self.annotations = Spans("name")
        self.memory = Spans("bytes", "address", "type", "index", "allocated", "reserved")
        """``begin`` and ``end`` are the same moment."""

    def add(self, batch: Batch) -> None:
        """Take some events."""
        bodies = [event if isinstance(event, bytes) else _as_torch_writes(event) for event in batch]
        by_category: dict[bytes | None, Heads] = defaultdict(list)
        for body in bodies:
            head = _HEAD.match(body)
            if _is_unlike_torch(head, body):
                head = _HEAD.match(_as_torch_writes(parse_body(body)))
            if head is not None:
                by_category[head[_CATEGORY]].append(head)
        self._add_functions(by_category.pop(_FUNCTIONS, []))
        operators = [head for category in _OPERATORS for head in by_category.pop(category, [])]
        named = [head for head in operators if head[_NAME].startswith(_ANNOTATION_NAMES)]
        self._add_annotations(by_category.pop(_ANNOTATIONS, []) + named)
        self._add_operators([head for head in operators if not head[_NAME].startswith(_ANNOTATION_NAMES)])
        self._add_memory([head for heads in by_category.values() for head in heads if head[_NAME] == _MEMORY])

    def _add_functions(self, heads: Heads) -> None:
        own, parents = ([_number(head[part]) for head in heads] for part in (_ID, _PARENT))
        lines = [int(head[_CALLED_FROM] or 0) for head in heads]
        self.functions.add(*self._span(heads), own, parents, lines)

    def _add_annotations(self, heads: Heads) -> None:
        self.annotations.add(*self._span(heads))

    def _add_operators(self, heads: Heads) -> None:
        self.operators.add(*self._span(heads), [self._call_stack(head.string, head.end()) for head in heads])

    def _call_stack(self, body: bytes, at: int) -> int:
        place = body.find(_CALL_STACK, at)
        text = _CALL_STACK_TEXT.match(body, place + len(_CALL_STACK)) if place >= 0 else None
        return self.call_stacks.number(text[1]) if text else -1

    def _add_memory(self, heads: Heads) -> None:
        begin = _ns([head[_BEGIN] for head in heads])
        given = [dict(_NUMBERS.findall(head.string, head.end())) for head in heads]
        numbers = [[int(one.get(key, missing)) for one in given] for key, missing in _ARGUMENTS.items()]
        self.memory.add(self.threads.numbers(head[_THREAD] for head in heads), begin, begin, *numbers)

    def _span(self, heads: Heads) -> tuple[list[int], I64, I64, list[int]]:
        """Thread, begin, end and name."""
        begin = _ns([head[_BEGIN] for head in heads])
        return (
            self.threads.numbers([head[_THREAD] for head in heads]),
            begin,
            begin + _ns([head[_DURATION] or b"0" for head in heads]),
            self.words.numbers([head[_NAME] for head in heads]),
        )


def _is_unlike_torch(head: re.Match[bytes] | None, body: bytes) -> bool:
    """Whether an event that may matter stands in the file in another order: a newer torch may write more keys."""
    if head is None:
        return any(mark in body for mark in _MAY_MATTER)
    return head[_CATEGORY] == _FUNCTIONS and head[_ID] is None and b'"Python id"' in body


def _number(digits: bytes | None) -> int:
    """A number that may be missing or null."""
    return int(digits) if digits is not None and digits != b"null" else -1


def _ns(microseconds: list[bytes]) -> I64:
    """Nanoseconds from the digits of microseconds (those since 1970, as torch wrote until 2024, are whole)."""
    values = np.array(microseconds, np.bytes_).astype(np.float64) if microseconds else np.zeros(0)
    if (np.abs(values) > _LATEST).any():
        raise ValueError("a time beyond the year 2255")
    whole = np.floor(values)
    nanoseconds: I64 = whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
    return nanoseconds


def _as_torch_writes(event: dict[str, Any]) -> bytes:
    """An event that stands in the file in another order or manner; nothing if it is none of ours."""
    name, begin = event.get("name"), event.get("ts")
    if not isinstance(name, str) or begin is None:
        return b""
    arguments = event.get("args") or {}
    wanted = [*_FURTHER_ARGUMENTS, *(key.decode() for key in _ARGUMENTS)]
    order = {
        "ph": str(event.get("ph")),
        "cat": str(event.get("cat", "")),
        "name": name,
        "pid": 0,
        "tid": str(event.get("tid")),
        "ts": begin,
        "dur": event.get("dur", 0),
        "args": {key: arguments[key] for key in wanted if key in arguments},
    }
    return json.dumps(order)[1:-1].encode()


def _unescape(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        # a Windows path as kineto writes it
        return text
