"""Interned call stacks and names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from tbmem.errors import FileFormatError
from tbmem.model.columns import I32, I64

_Key = TypeVar("_Key", bound=Hashable)


class Frame(NamedTuple):
    """One frame of a call stack."""

    file: str
    """Path in the recording process; empty or ``'??'`` for code without source."""
    line: int
    """0 where unknown."""
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}" if self.line else f"{self.function} ({self.file or '??'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTable:
    """Call stacks, the innermost call first; ``s`` has ``frame[offset[s]:offset[s + 1]]``, into ``frames``."""

    frames: tuple[Frame, ...] = ()
    frame: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    offset: I64 = field(default_factory=lambda: np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.offset) - 1

    def of(self, stack: int) -> tuple[Frame, ...]:
        """Frames of a stack; none for -1, 'not recorded'."""
        numbers = self.frame[self.offset[stack] : self.offset[stack + 1]] if stack >= 0 else self.frame[:0]
        return tuple(self.frames[number] for number in numbers.tolist())

    def check(self) -> None:
        """Raise FileFormatError if an offset or an index lies outside of its table."""
        offsets_fit = len(self.offset) > 0 and self.offset[0] == 0 and self.offset[-1] == len(self.frame)
        if not offsets_fit or np.any(np.diff(self.offset) < 0):
            raise FileFormatError("its stacks do not fit its frames")
        if len(self.frame) and not 0 <= int(self.frame.min()) <= int(self.frame.max()) < len(self.frames):
            raise FileFormatError("a stack's frame points outside of its table")


class Numbering(dict[_Key, int]):
    """Numbers of keys in the order of their first use."""

    def __missing__(self, key: _Key) -> int:
        number = self[key] = len(self)
        return number


class Names(Numbering[str]):
    """Numbers of names in the order of their first use; the empty one has -1."""

    def __missing__(self, key: str) -> int:
        return super().__missing__(key) if key else -1


class StackBuilder:
    """Interns stacks: equal ones get the same number."""

    def __init__(self) -> None:
        self._frames, self._stacks = Numbering[Frame](), Numbering[tuple[int, ...]]()

    def frame(self, file: str, line: int, function: str) -> int:
        """Number of a frame."""
        return self._frames[Frame(file, line, function)]

    def stack(self, frames: Iterable[int]) -> int:
        """Number of the stack with these frames, the innermost call first; -1 for an empty one."""
        key = tuple(frames)
        return self._stacks[key] if key else -1

    def table(self) -> StackTable:
        """All stacks."""
        lengths = np.fromiter(map(len, self._stacks), np.int64, len(self._stacks))
        offset = np.append(0, np.cumsum(lengths))
        flat = np.fromiter(chain.from_iterable(self._stacks), np.int32, int(offset[-1]))
        return StackTable(frames=tuple(self._frames), frame=flat, offset=offset)
