"""Imports, and other short work of tbmem's, in a thread of its own, where nothing of the program's reaches it."""

from __future__ import annotations

import _thread
import sys
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


def apart(work: Callable[[], R]) -> R:
    """Call a function in the middle of a step, such as one that imports modules, in a thread of its own.

    Signal handlers run in the main thread only. What one raises in the middle of an import may be swallowed there:
    importlib takes a TimeoutError, which is an OSError, for a file that does not exist. While this thread waits it
    reaches the program, and the work is completed.

    It is no ``threading.Thread``: the end of such an object runs a callback of ``threading``'s in whatever thread drops
    it, where Python itself swallows what a handler raises, and so does the beginning of one.
    """
    results: list[R] = []
    errors: list[BaseException] = []
    is_working = _thread.allocate_lock()
    is_working.acquire()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            is_working.release()

    _thread.start_new_thread(run, ())
    is_working.acquire()
    if errors:
        raise errors[0]
    return results[0]
