"""Events of a trace go in, one by one; columns of what concerns memory come out, the rest is passed over."""

from __future__ import annotations

import json
import re
from array import array
from typing import Any

import numpy as np

from tbmem.model.columns import I64
from tbmem.sources.json_events import Event, parse_body

NO_TOTAL = -1
_HEAD = re.compile(
    rb'\s*"ph":\s*"(\w)",\s*(?:"cat":\s*"([^"]*)",\s*)?(?:"s":\s*"\w",\s*)?"name":\s*"([^"\\]*(?:\\.[^"\\]*)*)",'
    rb'\s*"pid":\s*[^,]*,\s*"tid":\s*([^,]*?),\s*"ts":\s*([0-9.]+)(?:,\s*"dur":\s*([0-9.]+))?'
)
"""How torch begins an event; whatever is written otherwise is parsed in full."""
_PYTHON_ID = re.compile(rb'"Python id":\s*(\d+)')
_PYTHON_PARENT = re.compile(rb'"Python parent id":\s*(\d+)')
_CALL_STACK = b'"Call stack":'
_TEXT = re.compile(rb'\s*"([^"\\]*(?:\\.[^"\\]*)*)"')
_NUMBERS = re.compile(rb'"([A-Z][A-Za-z ]*)":\s*(-?\d+)\b')
_MAY_MATTER = (b'"X"', b'"[memory]"')
_MEMORY = b"[memory]"
_OPERATORS = frozenset((b"cpu_op", b"Operator"))
_ANNOTATIONS = frozenset((b"user_annotation",))
_ANNOTATION_NAMES = (b"ProfilerStep#", b"Optimizer.")
_FLOAT_IS_EXACT = 4e12
"""Microseconds below which a float holds nanoseconds."""


class Words:
    """Numbers words as they stand in the file, and reads them at the end."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def number(self, raw: bytes) -> int:
        """Number of a word, which may hold JSON's escapes."""
        return self._numbers.setdefault(raw, len(self._numbers))

    def table(self) -> list[str]:
        """All words so far, each at its number."""
        return [_unescape(raw) for raw in self._numbers]


class Spans:
    """Columns of events that last: thread, begin and end, and numbers of their own."""

    def __init__(self, *extra: str) -> None:
        self._columns = {name: array("q") for name in ("thread", "begin", "end", *extra)}
        self._append = tuple(column.append for column in self._columns.values())

    def add(self, *values: int) -> None:
        """One more."""
        for append, value in zip(self._append, values):  # noqa: B905 - called a million times
            append(value)

    def __getitem__(self, name: str) -> I64:
        return np.frombuffer(self._columns[name], np.int64) if len(self._columns[name]) else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._columns["thread"])


class TraceColumns:
    """What a trace says of memory, and what was running meanwhile."""

    def __init__(self) -> None:
        self.words = Words()
        self.call_stacks = Words()
        self.threads = Words()
        self.operators = Spans("name", "call_stack")
        self.functions = Spans("name", "id", "parent")
        self.annotations = Spans("name")
        self.memory = Spans("bytes", "address", "type", "index", "allocated", "reserved")
        """``begin`` and ``end`` are the same moment."""

    def add(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, dict):
            self._add_parsed(event)
            return
        head = _HEAD.match(event)
        if head is None:
            if any(mark in event for mark in _MAY_MATTER):
                self._add_parsed(parse_body(event))
            return
        phase, category, name, thread, begin, duration = head.groups()
        if name == _MEMORY:
            numbers = {key: int(value) for key, value in _NUMBERS.findall(event, head.end())}
            self._add_memory(self.threads.number(thread.strip(b'"')), _ns(begin), numbers)
        elif phase == b"X" and duration is not None:
            self._add_span(category, name, thread.strip(b'"'), begin, duration, event, head.end())

    def _add_span(
        self, category: bytes, name: bytes, thread: bytes, begin: bytes, duration: bytes, event: bytes, at: int
    ) -> None:
        if category == b"python_function":
            own, parent = _PYTHON_ID.search(event, at), _PYTHON_PARENT.search(event, at)
            numbers = int(own[1]) if own else -1, int(parent[1]) if parent else -1
            start = _ns(begin)
            number = self.threads.number(thread)
            self.functions.add(number, start, start + _ns(duration), self.words.number(name), *numbers)
        elif category in _ANNOTATIONS or name.startswith(_ANNOTATION_NAMES) and category in _OPERATORS:
            start = _ns(begin)
            self.annotations.add(self.threads.number(thread), start, start + _ns(duration), self.words.number(name))
        elif category in _OPERATORS:
            start = _ns(begin)
            number = self.threads.number(thread)
            called = self._call_stack(event, at)
            self.operators.add(number, start, start + _ns(duration), self.words.number(name), called)

    def _call_stack(self, event: bytes, at: int) -> int:
        place = event.find(_CALL_STACK, at)
        text = _TEXT.match(event, place + len(_CALL_STACK)) if place >= 0 else None
        return self.call_stacks.number(text[1]) if text else -1

    def _add_parsed(self, event: dict[str, Any]) -> None:
        """Take an event that torch did not write in its own manner."""
        name, begin = event.get("name"), event.get("ts")
        if not isinstance(name, str) or not isinstance(begin, (int, float, str)):
            return
        thread = str(event.get("tid")).encode()
        arguments = event.get("args") or {}
        if name == "[memory]":
            numbers = {key.encode(): value for key, value in arguments.items()}
            self._add_memory(self.threads.number(thread), _ns(str(begin).encode()), numbers)
        elif event.get("ph") == "X" and event.get("dur") is not None:
            category = str(event.get("cat", "")).encode()
            texts = (_escape(name), thread, str(begin).encode(), str(event["dur"]).encode())
            wanted = {
                key: arguments[key] for key in ("Python id", "Python parent id", "Call stack") if key in arguments
            }
            self._add_span(category, *texts, json.dumps(wanted).encode(), 0)

    def _add_memory(self, thread: int, ns: int, numbers: dict[bytes, Any]) -> None:
        get = numbers.get
        self.memory.add(
            thread,
            ns,
            ns,
            int(get(b"Bytes", 0)),
            int(get(b"Addr", 0)),
            int(get(b"Device Type", 0)),
            int(get(b"Device Id", -1)),
            int(get(b"Total Allocated", NO_TOTAL)),
            int(get(b"Total Reserved", NO_TOTAL)),
        )


def _ns(microseconds: bytes) -> int:
    """Nanoseconds, exactly, from the digits of a number of microseconds."""
    value = float(microseconds)
    if value < _FLOAT_IS_EXACT:
        return round(value * 1000)
    whole, _, part = microseconds.partition(b".")
    return int(whole) * 1000 + int(part[:3].ljust(3, b"0"))


def _escape(word: str) -> bytes:
    return json.dumps(word)[1:-1].encode()


def _unescape(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        # a Windows path as kineto writes it
        return text
