"""Interned call stacks and names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tbmem.errors import FileFormatError
from tbmem.model.columns import I32, I64


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
    """Call stacks, the innermost call first.

    Stack ``s`` has the frames ``frame[offset[s]:offset[s + 1]]``, which index ``frames``.
    """

    frames: tuple[Frame, ...] = ()
    frame: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    offset: I64 = field(default_factory=lambda: np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.offset) - 1

    def of(self, stack: int) -> tuple[Frame, ...]:
        """Frames of a stack; none for -1, 'not recorded'."""
        if stack < 0:
            return ()
        return tuple(self.frames[number] for number in self.frame[self.offset[stack] : self.offset[stack + 1]].tolist())

    def check(self) -> None:
        """Raise FileFormatError if an offset or an index lies outside of its table."""
        offsets_fit = len(self.offset) > 0 and self.offset[0] == 0 and self.offset[-1] == len(self.frame)
        if not offsets_fit or np.any(np.diff(self.offset) < 0):
            raise FileFormatError("its stacks do not fit its frames")
        if len(self.frame) and not 0 <= int(self.frame.min()) <= int(self.frame.max()) < len(self.frames):
            raise FileFormatError("a stack's frame points outside of its table")


class StackBuilder:
    """Interns stacks: equal ones get the same number."""

    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def frame(self, file: str, line: int, function: str) -> int:
        """Number of a frame."""
        return self._frames.setdefault(Frame(file, line, function), len(self._frames))

    def stack(self, frames: Iterable[int]) -> int:
        """Number of the stack with these frames, the innermost call first; -1 for an empty one."""
        key = tuple(frames)
        return self._stacks.setdefault(key, len(self._stacks)) if key else -1

    def table(self) -> StackTable:
        """All stacks."""
        lengths = np.fromiter(map(len, self._stacks), np.int64, len(self._stacks))
        offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        flat = np.fromiter((number for stack in self._stacks for number in stack), np.int32, int(offset[-1]))
        return StackTable(frames=tuple(self._frames), frame=flat, offset=offset)


class Names:
    """Interns names: equal ones get the same number, the empty one -1."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": -1}

    def number(self, name: str) -> int:
        """Number of a name."""
        return self._numbers.setdefault(name, len(self._numbers) - 1)

    def table(self) -> tuple[str, ...]:
        """All names, each at its number."""
        return tuple(self._numbers)[1:]
