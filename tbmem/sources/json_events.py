"""A trace file as a stream of bytes goes in; its events come out in batches, and what stands around them.

A trace is ``{..., "traceEvents": [{...}, {...}, ...], ...}`` and may be larger than memory. As torch writes it, each
event begins on a line of its own at one depth, and no string holds a line's end: such a file is cut at these places
and only the events that matter are parsed further. A file without lines is parsed event by event.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from tbmem.errors import FileFormatError

Batch = list[bytes] | list[dict[str, Any]]
"""Some events in order: the text between their outer braces, or parsed objects."""

_CHUNK = 1 << 20
_START = re.compile(rb'"traceEvents"\s*:\s*\[(\s*)')
_BARE = re.compile(rb"\s*\[(\s*)\{")
_BETWEEN = re.compile(r"[\s,]*")
_LONE_BACKSLASH = re.compile(rb'\\(?!["\\/bfnrtu])')


class JsonEvents:
    """The events of one file; ``about`` is complete when the last one has been taken.

    Args:
        file: The unpacked text.
        place: Its name, for messages.
    """

    def __init__(self, file: IO[bytes], place: str) -> None:
        self.about: dict[str, Any] = {}
        self.count = 0
        self._file, self._place = file, place

    def __iter__(self) -> Iterator[Batch]:
        rest, indent = self._begin()
        if rest.lstrip().startswith(b"]"):
            self._finish(rest.lstrip()[1:])
            return
        for batch in self._by_lines(rest, indent) if b"\n" in indent else self._one_by_one(rest):
            self.count += len(batch)
            yield batch

    def _begin(self) -> tuple[bytes, bytes]:
        """Read what stands before the events.

        Returns:
            What has been read of the events, and the white space before each.
        """
        text = b""
        while chunk := self._file.read(_CHUNK):
            text += chunk
            if found := _START.search(text):
                if found.end() == len(text):
                    continue
                self.about |= _object(text[: found.start()].rstrip().rstrip(b",") + b"}")
                return text[found.end() :], found[1]
            if bare := _BARE.match(text):
                return text[bare.end(1) :], bare[1]
        if text.rstrip().endswith((b"}", b"]")):
            raise FileFormatError(f'{self._place}: no trace of torch.profiler: it has no "traceEvents"')
        raise FileFormatError(f"{self._place}: not JSON, or cut off before its first event: write the trace again")

    def _by_lines(self, rest: bytes, indent: bytes) -> Iterator[Batch]:
        between = b"},\n" + indent.rpartition(b"\n")[2] + b"{"
        rest = rest[1:]
        while chunk := self._file.read(_CHUNK):
            *bodies, rest = (rest + chunk).split(between)
            yield from _single(bodies)
        *bodies, rest = rest.split(between)
        yield from _single(bodies)
        last, after = _objects(b"{" + rest)
        if not last or not after.startswith("]"):
            raise self._cut_off()
        yield last
        self._finish(after[1:].encode())

    def _one_by_one(self, rest: bytes) -> Iterator[Batch]:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        text = decode(rest)
        while True:
            events, text = _objects(text)
            yield events
            if text.startswith("]"):
                break
            chunk = self._file.read(_CHUNK)
            if not chunk:
                raise self._cut_off()
            text += decode(chunk)
        self._finish(text[1:].encode())

    def _finish(self, after: bytes) -> None:
        """Read what stands after the events; torch writes the clock's zero there."""
        after += self._file.read()
        tail = after.strip()
        if tail and not tail.endswith(b"}"):
            raise self._cut_off()
        if len(tail) > 1:
            self.about |= _object(b"{" + tail.lstrip(b","))

    def _cut_off(self) -> FileFormatError:
        return FileFormatError(
            f"{self._place}: the JSON is cut off or damaged after {self.count} events: copy or write the trace again"
        )


_DECODER = json.JSONDecoder(strict=False)
_MARK = b'"ph":'
"""Stands in each event once."""


def _single(bodies: list[bytes]) -> Iterator[Batch]:
    """The same events, those that were not cut apart now cut apart."""
    joined = {place for place, body in enumerate(bodies) if body.count(_MARK) > 1}
    yield [body for place, body in enumerate(bodies) if place not in joined] if joined else bodies
    for place in sorted(joined):
        yield _objects(b"{" + bodies[place] + b"}")[0]


def _objects(text: bytes | str) -> tuple[list[dict[str, Any]], str]:
    """The whole objects that a text begins with, and what stands behind them."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    at, found = _after_space(plain, 0), []
    while plain.startswith("{", at):
        try:
            event, at = _DECODER.raw_decode(plain, at)
        except ValueError:
            break
        found.append(event)
        at = _after_space(plain, at)
    return found, plain[at:]


def _after_space(text: str, at: int) -> int:
    space = _BETWEEN.match(text, at)
    return space.end() if space else at


def parse_body(body: bytes) -> dict[str, Any]:
    """Parse the text between an event's braces; an empty dict if it is no JSON."""
    return _object(b"{" + body + b"}")


def _object(text: bytes) -> dict[str, Any]:
    """Parse an object; kineto leaves backslashes of Windows paths as they are."""
    for attempt in (text, _LONE_BACKSLASH.sub(rb"\\\\", text)):
        try:
            value = _DECODER.decode(attempt.decode(errors="replace"))
        except ValueError:
            continue
        return value if isinstance(value, dict) else {}
    return {}
