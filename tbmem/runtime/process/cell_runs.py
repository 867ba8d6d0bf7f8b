"""Ends the run that an earlier execution of a notebook's cell has left open."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import ClassVar
from weakref import WeakKeyDictionary

from tbmem.sources.program.ownership import stack_of


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a run was started: the cell's code, its execution in the session, and the run's folder and name."""

    cell: str
    execution: int
    run: tuple[str, str | None]

    def replaces(self, earlier: _Origin) -> bool:
        """Whether this is the same cell or run as in an earlier execution."""
        return self.execution != earlier.execution and (self.cell == earlier.cell or self.run == earlier.run)


class CellRuns:
    """The runs that cells have started: IPython keeps what a cell returns, so that none ends by being deleted."""

    _open: ClassVar[WeakKeyDictionary[object, _Origin]] = WeakKeyDictionary()

    @classmethod
    def begin(cls, run: object, logdir: str, name: str | None, end: Callable[[object], None]) -> None:
        """A run begins: call ``end`` with each that it takes the place of. Outside of a cell nothing happens."""
        cell = _cell(sys._getframe(1))
        if cell is None:
            return
        shell = cell.f_globals["get_ipython"]()
        origin = _Origin(cell.f_code.co_filename, getattr(shell, "execution_count", 0), (logdir, name))
        for earlier in [one for one, its in cls._open.items() if one is not run and origin.replaces(its)]:
            cls._open.pop(earlier, None)
            end(earlier)
        cls._open[run] = origin


def _cell(frame: FrameType | None) -> FrameType | None:
    """The frame of the cell that runs, if one does."""
    for each in stack_of(frame):
        if each.f_code.co_name == "<module>" and callable(each.f_globals.get("get_ipython")):
            return each
    return None
