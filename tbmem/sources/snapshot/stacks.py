"""Interned stacks of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

from tbmem.model.stacks import StackBuilder
from tbmem.sources.snapshot.plain_values import LONGEST_TEXT, check_frame, require_texts

FrameDicts = list[dict[str, Any]]
_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
"""A line of a traceback: of a compiled frame's original code, or of the forward pass."""
_MOST_LINES = 1 << 31
_LONGEST_NODE = 500  # characters of a name of torch.compile
_MOST_CANDIDATES = 16
"""Stacks with the same frames at some places that are compared with each further one."""


class SnapshotStacks(StackBuilder):
    """Interns the stacks of one snapshot.

    In a snapshot equal frames are one object, and events may share a list of frames: stacks are looked up by the
    identities of some frames. The snapshot must therefore outlive this object.
    """

    def __init__(self) -> None:
        super().__init__()
        self._frame_numbers: dict[int, tuple[int, ...]] = {}
        self._by_some_frames: dict[tuple[int, int, int], list[tuple[FrameDicts, int]]] = {}
        self._by_list: dict[int, int] = {}
        self._by_traceback: dict[int, int] = {}
        self._originals: dict[str, list[tuple[str, int, str]]] = {}

    def numbers(self, stacks: Iterable[FrameDicts | None]) -> list[int]:
        """Numbers of stacks, the innermost call first; -1 for one that was not recorded."""
        by_list, find = self._by_list, self._find
        numbers = []
        for frames in stacks:
            if not frames:
                numbers.append(-1)
                continue
            number = by_list.get(id(frames))
            if number is None:
                number = by_list[id(frames)] = find(frames)
            numbers.append(number)
        return numbers

    def of_traceback(self, lines: list[str]) -> int:
        """Number of a stack that is written as a traceback, the outermost call first."""
        number = self._by_traceback.get(id(lines))
        if number is None:
            require_texts(lines)
            if sum(map(len, lines)) > LONGEST_TEXT:
                raise ValueError("a traceback of the forward pass that is longer than any of torch's")
            found = [(file, int(line), name) for file, line, name in _LINE.findall("".join(lines))]
            number = self.stack(self.frame(*one) for one in reversed(found))
            self._by_traceback[id(lines)] = number
        return number

    def _find(self, frames: FrameDicts) -> int:
        length = len(frames)
        # the ends of different stacks are often equal
        key = (length, id(frames[length // 4]), id(frames[length // 2]))
        candidates = self._by_some_frames.setdefault(key, [])
        for candidate, number in candidates:
            if candidate == frames:
                return number
        number = self.stack(chain.from_iterable(map(self._numbers_of_frame, frames)))
        if len(candidates) < _MOST_CANDIDATES:
            candidates.append((frames, number))
        return number

    def _numbers_of_frame(self, frame: dict[str, Any]) -> tuple[int, ...]:
        """A frame's number; of one that torch.compile generated also those of the code it was generated from."""
        numbers = self._frame_numbers.get(id(frame))
        if numbers is None:
            file, line, function = frame.get("filename"), frame.get("line"), frame.get("name")
            if (
                len(frame) == 3
                and type(file) is str
                and type(line) is int
                and line < _MOST_LINES
                and type(function) is str
            ):
                numbers = (self.frame(file, line, function),)
            else:
                numbers = self._numbers_of_compiled(frame)
            self._frame_numbers[id(frame)] = numbers
        return numbers

    def _numbers_of_compiled(self, frame: dict[str, Any]) -> tuple[int, ...]:
        """The same for a frame with other keys, or with some of another type."""
        check_frame(frame)
        file, line, function = frame.get("filename", ""), frame.get("line", 0), str(frame.get("name", ""))
        if node := frame.get("fx_node_name"):
            target = str(frame.get("fx_node_target") or frame.get("fx_node_op", ""))
            function += f" (FX node {str(node)[:_LONGEST_NODE]}: {target[:_LONGEST_NODE]})"
        original = self._original(str(frame.get("fx_original_trace", "")))
        return tuple(self.frame(*one) for one in ((str(file), int(line), function), *original))

    def _original(self, trace: str) -> list[tuple[str, int, str]]:
        """File, line and function of the code that a compiled frame was generated from, the innermost first."""
        if trace not in self._originals:
            found = [(path, int(at), name) for path, at, name in _LINE.findall(trace)]
            self._originals[trace] = found[::-1]
        return self._originals[trace]
