"""Start, stop and ``with`` block that MemoryCallback, MemoryMonitor and MemoryProfiler share: Lifecycle."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TypeVar

from tbmem.errors import UsageError
from tbmem.runtime.process.identity import Process
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory

Own = TypeVar("Own", bound="Lifecycle")
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


class Lifecycle:
    """What is started once, in one process, and stopped once: there it runs, and not in a forked child."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._ended = False
        self._last_error = LastError()

    def __enter__(self: Own) -> Own:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop(failure(error))

    def start(self) -> None:
        """The first training step begins."""
        raise NotImplementedError

    def _stop(self, error: BaseException | None) -> None:
        """The run has ended, by ``error`` if by one."""
        raise NotImplementedError

    def _begin(self) -> None:
        """This process begins.

        Raises:
            UsageError: It has begun before.
        """
        if self._pid is not None:
            name = type(self).__name__
            raise UsageError(f"this {name} was started before: make a new one for each run")
        self._pid = os.getpid()
        self._last_error = LastError()

    @property
    def _is_running(self) -> bool:
        """Started, not stopped, and not in a forked child, where nothing is ours to touch."""
        return self._pid == Process.number and not self._ended
