"""The lines of the user's code that led to a running operator, as numbers of a table."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.stacks import Frame

DEEPEST = 8
"""Lines that are kept of one stack."""
_WORKLOAD = Path(__file__).parents[1] / "workload"
_SHOWN = tuple(str(_WORKLOAD / name) for name in ("decoder.py", "workload.py", "train_step.py"))
"""The built-in model, its loss and the step are shown like a user's."""


class UserLines:
    """Stacks of lines that are neither torch's, Python's own nor tbmem's; each different one once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Frame, ...], int] = {}
        self._is_users: dict[str, bool] = {}

    def here(self) -> int:
        """Number of the stack that is running; -1 where none of its lines is the user's."""
        lines = self._lines(sys._getframe(1), DEEPEST)
        if not lines:
            return -1
        return self._numbers.setdefault(tuple(lines), len(self._numbers))

    def line(self) -> str:
        """The innermost of the user's own lines that are running as ``file.py:12``; empty where there is none."""
        for frame in self._lines(sys._getframe(1), 1):
            return "" if frame.file in _SHOWN else f"{Path(frame.file).name}:{frame.line}"
        return ""

    def table(self) -> tuple[tuple[Frame, ...], ...]:
        """All stacks, each at its number."""
        return tuple(self._numbers)

    def _lines(self, frame: FrameType | None, most: int) -> list[Frame]:
        lines: list[Frame] = []
        known = self._is_users
        while frame is not None and len(lines) < most:
            code = frame.f_code
            name = code.co_filename
            wanted = known.get(name)
            if wanted is None:
                wanted = known[name] = is_users(name)
            if wanted:
                lines.append(Frame(name, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return lines


def is_users(file: str) -> bool:
    """Whether a line of a file is shown: of an installed package's too, for a model may be one's."""
    return file in _SHOWN or owner_of(file) in (Owner.USER, Owner.INSTALLED)
