"""Lets processes end that are forked after a recording, as by ``os.fork()`` and ``sys.exit()``.

torch's profiler (kineto) has a thread from its first recording on, and an exit handler of C++ that waits for it. In a
forked child that thread does not exist, and the child would wait for ever. Here it ends as with ``os._exit()``, as do
the children of ``multiprocessing``, but only when Python has ended: exit functions have run, files are flushed, and the
exit status is the child's. Exit handlers that C and C++ libraries have registered in the parent do not run.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any


@functools.cache
def let_children_end() -> None:
    """From now on, forked children skip the exit handlers of C++; to be called before the profiler is first used."""
    register = _find_exit_handlers()
    if register is not None and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=register)


def _find_exit_handlers() -> Callable[[], None] | None:
    """What registers ``_exit`` to be called first at the exit, with its status; ``None`` outside of glibc."""
    try:
        # PyDLL keeps the interpreter's lock: there is nobody in the child to give it to
        libc = ctypes.PyDLL(None)
        at_exit_with_status, at_exit = libc.on_exit, libc.__cxa_atexit
        exit_now, flush = (ctypes.cast(each, ctypes.c_void_p) for each in (libc._exit, libc.fflush))
    except (OSError, AttributeError, TypeError):
        return None
    arguments: tuple[Any, ...] = (ctypes.c_void_p, ctypes.c_void_p)
    at_exit_with_status.argtypes = arguments
    at_exit.argtypes = (*arguments, ctypes.c_void_p)

    def register() -> None:
        # the last that is registered is called first; what the child registers later, before both
        at_exit_with_status(exit_now, None)
        at_exit(flush, None, None)

    return register
