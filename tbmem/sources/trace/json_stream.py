"""Streams the events of a torch.profiler trace as decoded records, in batches.

A trace is ``{..., "traceEvents": [{...}, {...}, ...], ...}`` and may be larger than memory. In a file written by torch
each event begins on a new line with the same indent, and no string contains a line break: such a file is split there
and decoded in chunks. A file without line breaks is parsed event by event.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections.abc import Iterator
from typing import IO, Any

import msgspec
from msgspec import field

from tbmem.errors import FileFormatError
from tbmem.units import format_bytes


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """Arguments of an event that concern memory and Python; ``None`` where missing."""

    bytes: int | None = field(name="Bytes", default=None)
    address: int | None = field(name="Addr", default=None)
    type: int | None = field(name="Device Type", default=None)
    index: int | None = field(name="Device Id", default=None)
    allocated: int | None = field(name="Total Allocated", default=None)
    reserved: int | None = field(name="Total Reserved", default=None)
    id: int | None = field(name="Python id", default=None)
    parent: int | None = field(name="Python parent id", default=None)
    called_from: str | None = field(name="CallFrom", default=None)
    """File and line from which a Python function was called (torch 2.14)."""
    call_stack: str | None = field(name="Call stack", default=None)
    dims: msgspec.Raw = field(name="Input Dims", default=msgspec.Raw())
    """Shapes of an operator's inputs as JSON, decoded where they are needed; empty if missing."""
    types: msgspec.Raw = field(name="Input type", default=msgspec.Raw())


NO_ARGUMENTS = Arguments()


class Event(msgspec.Struct, gc=False):
    """One event; other keys are ignored."""

    name: str = ""
    cat: str | None = None
    tid: int | str | float | None = None
    ts: float | None = None
    """Microseconds."""
    dur: float | None = None
    args: Arguments | None = NO_ARGUMENTS


_CHUNK = 1 << 20
_LONGEST_HEAD = 16 << 20
"""Bytes before the events: torch writes some thousand, of the devices and the run."""
_LONGEST_EVENT = 64 << 20
_LONGEST_TAIL = 256 << 20
"""Bytes after the events: torch writes a few keys there, tbmem the lines of calls, some bytes for each."""
_START = re.compile(rb'"traceEvents"\s*:\s*\[(\s*)')
_BARE = re.compile(rb"\s*\[(\s*)\{")
_BETWEEN = re.compile(r"[\s,]*")
_BACKSLASH = re.compile(rb'(\\["\\])|\\')
_ARGUMENT = re.compile(rb'"[A-Z][A-Za-z ]*":\s*(?:-?\d+|"[^"\\]*")')
_BATCH = msgspec.json.Decoder(list[Event], strict=False)
_RAW = ("Input Dims", "Input type")
_LENIENT = json.JSONDecoder(strict=False)


class JsonEvents:
    """The events of an uncompressed file; ``about``, the keys beside them, is complete after the last event."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self.about: dict[str, Any] = {}
        self.count = 0
        self._file, self._path = file, path

    def __iter__(self) -> Iterator[list[Event]]:
        rest, indent = self._begin()
        has_lines = b"\n" in indent and rest.startswith(b"{")
        for batch in self._by_lines(rest, indent) if has_lines else self._one_by_one(rest):
            self.count += len(batch)
            yield batch

    def _begin(self) -> tuple[bytes, bytes]:
        """Read up to the events; return the text read beyond, and the white space before each event."""
        text = b""
        while len(text) < _LONGEST_HEAD and (chunk := self._file.read(_CHUNK)):
            text += chunk
            if start := _START.search(text):
                if start.end() == len(text):
                    continue
                self.about |= _object(text[: start.start()].rstrip().rstrip(b",") + b"}")
                return text[start.end() :], start[1]
            if bare := _BARE.match(text):
                return text[bare.end(1) :], bare[1]
        if len(text) >= _LONGEST_HEAD:
            much = format_bytes(_LONGEST_HEAD)
            raise FileFormatError(f'{self._path}: no trace of torch.profiler: no "traceEvents" in its first {much}')
        if text.rstrip().endswith((b"}", b"]")):
            raise FileFormatError(f'{self._path}: no trace of torch.profiler: it has no "traceEvents"')
        raise FileFormatError(f"{self._path}: not JSON, or cut off before its first event: write the trace again")

    def _by_lines(self, rest: bytes, indent: bytes) -> Iterator[list[Event]]:
        between = b"},\n" + indent.rpartition(b"\n")[2] + b"{"
        chunk = rest
        while chunk:
            # a longer event needs a longer chunk, as each one is searched with all of what came before it
            chunk = self._file.read(max(_CHUNK, len(rest)))
            rest += chunk
            cut = rest.rfind(between)
            if cut >= 0:
                yield _decoded(rest[: cut + 1], between)
                rest = rest[cut + len(between) - 1 :]
        yield from self._one_by_one(rest)

    def _one_by_one(self, rest: bytes) -> Iterator[list[Event]]:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        text = decode(rest)
        while True:
            events, text = _leading_events(text)
            yield events
            if text.startswith("]"):
                break
            chunk = self._file.read(max(_CHUNK, len(text)))
            if not chunk or len(text) > _LONGEST_EVENT:
                raise self._cut_off()
            text += decode(chunk)
        self._finish(text[1:].encode())

    def _finish(self, after: bytes) -> None:
        """Read the keys after the events: torch writes the clock's zero there."""
        tail = (after + self._file.read(_LONGEST_TAIL)).strip()
        if tail and not tail.endswith(b"}"):
            raise self._cut_off()
        if len(tail) > 1:
            self.about |= _object(b"{" + tail.lstrip(b","))

    def _cut_off(self) -> FileFormatError:
        return FileFormatError(
            f"{self._path}: the JSON is cut off or damaged after {self.count} events: copy or write the trace again"
        )


def _decoded(text: bytes, between: bytes) -> list[Event]:
    """All events of a text; one by one where one of them is damaged."""
    try:
        return _BATCH.decode(b"[" + text + b"]")
    except ValueError:
        if between not in text:
            return _repaired(text)
        return [event for body in text[1:-1].split(between) for event in _decoded(b"{" + body + b"}", between)]


def _repaired(text: bytes) -> list[Event]:
    """The event of a text that is not valid JSON, if need be with its readable arguments only."""
    head, _, arguments = text.partition(b'"args"')
    readable = b'"args": {' + b", ".join(_ARGUMENT.findall(arguments)) + b"}}"
    for attempt in (text, head + readable):
        with contextlib.suppress(ValueError):
            return _converted(_parsed(b"[" + attempt + b"]"))
    return []


def _converted(values: list[Any]) -> list[Event]:
    """Events of parsed values, without arguments of other types; other values are left out."""
    events = []
    for value in values:
        arguments = value.get("args") if isinstance(value, dict) else None
        if isinstance(arguments, dict):
            arguments |= {name: msgspec.Raw(json.dumps(arguments[name]).encode()) for name in _RAW if name in arguments}
        for attempt in (value, {**value, "args": None}) if isinstance(value, dict) else ():
            with contextlib.suppress(msgspec.ValidationError):
                events.append(msgspec.convert(attempt, Event, strict=False))
                break
    return events


def _leading_events(text: str) -> tuple[list[Event], str]:
    """The complete objects at the beginning of a text, and the text after them."""
    at, values = _after_space(text, 0), []
    while text.startswith("{", at):
        try:
            value, at = _LENIENT.raw_decode(text, at)
        except ValueError:
            break
        values.append(value)
        at = _after_space(text, at)
    return _converted(values), text[at:]


def _after_space(text: str, at: int) -> int:
    space = _BETWEEN.match(text, at)
    return space.end() if space else at


def _parsed(text: bytes) -> Any:
    """A JSON value; control characters, NaN and lone backslashes (Windows paths of kineto) are accepted."""
    with contextlib.suppress(ValueError):
        return msgspec.json.decode(text)
    with contextlib.suppress(ValueError):
        return _LENIENT.decode(text.decode(errors="replace"))
    doubled = _BACKSLASH.sub(lambda match: match[1] or rb"\\", text)
    return _LENIENT.decode(doubled.decode(errors="replace"))


def _object(text: bytes) -> dict[str, Any]:
    """Parse an object; an empty one if it is something else."""
    with contextlib.suppress(ValueError):
        value = _parsed(text)
        if isinstance(value, dict):
            return value
    return {}
