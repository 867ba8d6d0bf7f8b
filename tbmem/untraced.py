"""Imports of tbmem's own in a thread of their own, where nothing of the program's reaches them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

_TORCHS = "TraceContext"  # the type of what torch sets beside its profile function (torch 2.13, ``PythonTracer``)


def is_torchs_tracer(function: object) -> bool:
    """Whether a profile function, as ``sys.getprofile`` returns it, is torch's tracer of Python calls."""
    return type(function).__name__ == _TORCHS


def untraced(imports: Callable[[], R]) -> R:
    """Call a function that imports modules, in a thread of its own where torch's tracer follows this one.

    torch keeps the address of each code object that it sees called, and reads its name when the recording ends. That of
    a module is freed once it is imported: the program's trace would name whatever lies there by then, and need not even
    be JSON. A thread that begins during a recording is not followed.
    """
    return apart(imports) if is_torchs_tracer(sys.getprofile()) else imports()


def apart(imports: Callable[[], R]) -> R:
    """Call a function that imports modules in the middle of a step, in a thread of its own.

    Signal handlers run in the main thread only. What one raises in the middle of an import may be swallowed there:
    importlib takes a TimeoutError, which is an OSError, for a file that does not exist. While this thread waits it
    reaches the program, and the import is completed.
    """
    results: list[R] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(imports())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="tbmem imports", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
