"""The exception that ends a run: what is none, and what it was where a run is stopped without being told of one."""

from __future__ import annotations

import sys

from tbmem.runtime.oom import is_out_of_memory

_ENDS_IN_ORDER = (StopIteration, GeneratorExit, SystemExit)
"""A loop over an iterator, a generator and a program that end so have not failed."""


def failure(error: BaseException | None) -> BaseException | None:
    """The exception, unless it is one by which programs end in order."""
    return None if isinstance(error, _ENDS_IN_ORDER) else error


class LastError:
    """Looks for an exception that is newer than itself; it keeps none."""

    def __init__(self) -> None:
        self._before = {id(sys.exc_info()[1]), id(getattr(sys, "last_value", None))}

    def find(self) -> BaseException | None:
        """The exception on its way through the caller, as in ``finally``; else the one that the interpreter printed.

        In an interactive session a cell or a line that failed does not end what ran before it, unless memory ran out.
        """
        passing, printed = sys.exc_info()[1], getattr(sys, "last_value", None)
        if passing is not None and id(passing) not in self._before:
            return failure(passing)
        if not isinstance(printed, BaseException) or id(printed) in self._before:
            return None
        is_interactive = hasattr(sys, "ps1")
        return printed if not is_interactive or is_out_of_memory(printed) else None
