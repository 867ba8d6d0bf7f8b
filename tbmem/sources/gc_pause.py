"""Context manager that pauses Python's automatic garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable automatic collections inside; a disabled collector stays disabled.

    Creating many objects triggers collections that find no garbage among them. They take time, and they free the
    program's garbage earlier than without tbmem.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
