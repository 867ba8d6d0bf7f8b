"""The source line that a call stack is attributed to: the innermost line of the user's code."""

from __future__ import annotations

import re

import numpy as np

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.columns import I32, I64
from tbmem.model.stacks import Frame, StackTable

_NATIVE = (re.compile(r"Backward\d*::apply|autograd::generated::"), re.compile(r"at::_ops::\w+::call"))
"""Preferred C++ frames, for backward, which has no Python frames."""
_FILE = re.compile(r"(.+):\d+ |.*\((.+)\)$")
DEEPEST = 60
"""Maximum number of frames of a reported stack."""


class SourceLines:
    """Source lines of the stacks of a table."""

    def __init__(self, stacks: StackTable) -> None:
        self._stacks = stacks
        # -1 also for the stack of number -1
        self._frame = np.append(_preferred_frames(stacks), -1)

    def line(self, stack: int) -> str:
        """``'model/attention.py:41 forward'``; empty for -1."""
        frame = int(self._frame[stack])
        return short(self._stacks.frames[frame]) if frame >= 0 else ""

    def codes(self, stack: I32) -> I64:
        """Number of the frame that ``line`` names, by row; -1 for none."""
        return self._frame[stack]

    def of_frame(self, frame: int) -> str:
        """Text of ``line`` for a frame."""
        return short(self._stacks.frames[frame])

    def frames(self, stack: int) -> tuple[str, ...]:
        """The stack's frames as text, the innermost first."""
        return tuple(str(frame) for frame in self._stacks.of(stack)[:DEEPEST])


def short(frame: Frame) -> str:
    """A frame with the end of its path, and its line if known; of a C++ function only its name."""
    if "::" in frame.function:
        return frame.function.partition("(")[0] or frame.function
    path = end_of_path(frame.file)
    location = f"{path}:{frame.line}" if frame.line else path.strip("?")
    return f"{location} {frame.function}".lstrip()


def end_of_path(file: str) -> str:
    """The file's name and its folder."""
    return "/".join(file.replace("\\", "/").split("/")[-2:])


def is_own(frame: Frame) -> bool:
    """Whether a frame is neither torch's, nor an installed package's, nor C++."""
    return owner_of(frame.file) is Owner.USER


def is_own_text(text: str) -> bool:
    """``is_own`` of a frame as text."""
    found = _FILE.match(text)
    return found is not None and owner_of(found[1] or found[2]) is Owner.USER


def _rank(frame: Frame) -> int:
    """The frame's owner; of C++ frames autograd nodes come first, then operators."""
    owner = int(owner_of(frame.file))
    if owner == Owner.NATIVE:
        owner += next((number for number, words in enumerate(_NATIVE) if words.search(frame.function)), len(_NATIVE))
    return owner


def _preferred_frames(stacks: StackTable) -> I64:
    """Number of each stack's preferred frame, the innermost of equals; -1 for an empty stack."""
    numbers = np.full(len(stacks), -1, np.int64)
    filled = np.flatnonzero(np.diff(stacks.offset) > 0)
    if len(filled):
        rank = np.array([_rank(frame) for frame in stacks.frames], np.int64)[stacks.frame]
        keys = rank * len(stacks.frame) + np.arange(len(stacks.frame))
        numbers[filled] = stacks.frame[np.minimum.reduceat(keys, stacks.offset[filled]) % len(stacks.frame)]
    return numbers
