"""Interned stacks of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbmem.model.stacks import StackBuilder, StackTable

FrameDicts = list[dict[str, Any]]


class SnapshotStacks:
    """Interns the stacks of one snapshot.

    In a snapshot equal frames are one object, stacks are lists of them, and a list may serve several events: stacks are
    found by the identities of some frames and compared frame by frame, by identity where they are equal. That is
    sound only as long as the snapshot lives, so an object of this class must not outlive it.
    """

    def __init__(self) -> None:
        self._builder = StackBuilder()
        self._frame_numbers: dict[int, int] = {}
        self._by_some_frames: dict[tuple[int, int, int], list[tuple[FrameDicts, int]]] = {}
        self._by_list: dict[int, int] = {}

    def numbers(self, stacks: Iterable[FrameDicts | None]) -> list[int]:
        """Numbers of stacks, the innermost call first; -1 for one that was not recorded."""
        by_list, find = self._by_list, self._find
        found = []
        for frames in stacks:
            if not frames:
                found.append(-1)
                continue
            number = by_list.get(id(frames))
            if number is None:
                number = by_list[id(frames)] = find(frames)
            found.append(number)
        return found

    def _find(self, frames: FrameDicts) -> int:
        length = len(frames)
        # the ends of stacks are alike: what tells them apart is in between
        key = (length, id(frames[length // 4]), id(frames[length // 2]))
        alike = self._by_some_frames.get(key)
        if alike is None:
            alike = self._by_some_frames[key] = []
        for other, number in alike:
            if other == frames:
                return number
        number = self._builder.stack(map(self._frame, frames))
        alike.append((frames, number))
        return number

    def table(self) -> StackTable:
        """All stacks so far."""
        return self._builder.table()

    def _frame(self, frame: dict[str, Any]) -> int:
        number = self._frame_numbers.get(id(frame))
        if number is None:
            number = self._builder.frame(
                str(frame.get("filename", "")), int(frame.get("line", 0)), str(frame.get("name", ""))
            )
            self._frame_numbers[id(frame)] = number
        return number
