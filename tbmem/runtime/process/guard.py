"""Logs an error inside tbmem once and switches the failed part off."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tbmem.errors import described
from tbmem.interruption import raise_interruption
from tbmem.present.lines import get_logger

WRITING = "writing to the run folder"
"""The part of all files: a full disk affects all of them."""

P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """Keeps errors of tbmem's parts out of the training loop; ``problems`` appears in the run's summary.

    Three kinds of exceptions leave a part that is run:

    - An exception of the program that only happens to arrive there: from a signal handler, a trace function,
      ``PyThreadState_SetAsyncExc``, or one that is no ``Exception``. It is raised, since the program waits for it, and
      the part stays on. ``tbmem.interruption`` says how it is recognized.
    - RecursionError and MemoryError: the program is near its limit, which says nothing about the part. This call is
      passed over, and the part stays on. Nothing is called in answer: another call may have no room either.
    - Any other: an error of the part, which is logged and switches the part off.
    """

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.passed_over = 0
        """Calls that were passed over near the recursion limit, or without memory."""
        self._problems: list[str] = []

    @property
    def problems(self) -> list[str]:
        """What is off and why, and how often something was passed over."""
        if not self.passed_over:
            return list(self._problems)
        times = "once" if self.passed_over == 1 else f"{self.passed_over} times"
        return [*self._problems, f"passed over {times}: the program was near the recursion limit, or out of memory"]

    def run(self, part: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a part and return its result, or ``None`` if the part has failed, now or earlier."""
        if part in self.failed:
            return None
        try:
            return call(*args, **kwargs)
        except (RecursionError, MemoryError):
            self.passed_over += 1
            return None
        except Exception as error:
            self.fail(part, error)
            return None

    def fail(self, part: str, error: BaseException) -> None:
        """Switch ``part`` off and log the error; raise an exception of the program, and pass over a limit's."""
        raise_interruption(error)
        if isinstance(error, (RecursionError, MemoryError)):
            self.passed_over += 1
        else:
            self.switch_off(part, error)

    def switch_off(self, part: str, error: BaseException) -> None:
        """Switch ``part`` off and log the error, whatever it is: for threads of tbmem's own."""
        if part not in self.failed:
            self.failed.add(part)
            self.note(f"{part} is off: {described(error)}", "; training goes on")
            get_logger().debug("%s failed", part, exc_info=error)

    def note(self, problem: str, more: str = "") -> None:
        """Log a problem, and more about it, and keep it for the run's summary."""
        self._problems.append(problem)
        get_logger().warning("%s%s", problem, more)
