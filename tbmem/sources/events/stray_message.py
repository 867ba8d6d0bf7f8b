"""Context manager that keeps a message of CPython from the terminal, which a damaged pickle causes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

_lock = threading.Lock()
_users = 0
_before = sys.excepthook


@contextmanager
def no_stray_message() -> Iterator[None]:
    """Leave out ``SystemError: deallocated bytearray object has exported buffers`` while entered.

    A pickle may ask for a bytearray that is larger than memory. CPython raises MemoryError as it should, but also
    reports, through ``sys.excepthook``, that it frees a bytearray which it has not filled in. May be entered by several
    threads at once; the last exit restores the hook.
    """
    global _users, _before
    with _lock:
        _users += 1
        if _users == 1:
            _before, sys.excepthook = sys.excepthook, _hook
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and sys.excepthook is _hook:
                sys.excepthook = _before


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if kind is not SystemError or "deallocated bytearray" not in str(error):
        _before(kind, error, traceback)
