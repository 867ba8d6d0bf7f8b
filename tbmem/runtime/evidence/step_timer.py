"""A timer that each step starts again, so that another thread wakes only when a step takes long."""

from __future__ import annotations

import ctypes
import math
import os
import select
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_NON_BLOCKING, _CLOSED_ON_EXEC = 0o4000, 0o2000000  # TFD_NONBLOCK, TFD_CLOEXEC
LONGEST = 0.9
"""Seconds of the longest limit: it is one number of nanoseconds below 1 s, so that no thread sees half of a new one."""
_NANOSECONDS = 1e9


class StepTimer:
    """A timer of the kernel (timerfd_create(2)): to start it again takes a microsecond, and no thread wakes for it.

    Elsewhere than on Linux it never expires.
    """

    def __init__(self) -> None:
        self._timer = _Timer.open()
        self._ended = threading.Event()
        self.begin_step: Callable[[], object] = _do_nothing
        """Start the timer again, if it has a limit; called by the training thread when a step begins."""

    def set_limit(self, seconds: float | None) -> None:
        """Let the timer expire when so long has passed since ``begin_step``, from the next one on; ``None``: never."""
        if self._timer is None:
            return
        if seconds is None or seconds > LONGEST:
            self.begin_step = _do_nothing  # one that runs already may expire once more
            return
        self._timer.limit.nanoseconds = int(seconds * _NANOSECONDS)
        self.begin_step = self._timer.restart
        if self.has_ended:  # meanwhile, in the training thread
            self.begin_step = _do_nothing

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the timer expires, or the end; returns whether the running step has taken long."""
        if self._timer is None:
            self._ended.wait(seconds)
            return False
        return self._timer.wait(seconds) and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._ended.is_set()

    def end(self) -> None:
        """End a ``wait`` of another thread at once."""
        self._ended.set()
        self.begin_step = _do_nothing
        if self._timer is not None:
            self._timer.expire()

    def close(self) -> None:
        """Close the timer, after the thread that waits has ended."""
        # forgotten first: a second call, after an exception of the program, would close a file of its own
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.close()


class _Limit(ctypes.Structure):
    """``struct itimerspec``: no interval, and when to expire."""

    _fields_ = [(name, ctypes.c_long) for name in ("every", "every_nanoseconds", "seconds", "nanoseconds")]


class _Timer:
    """A descriptor that becomes readable when its time has come."""

    def __init__(self, descriptor: int, set_time: Callable[..., int]) -> None:
        self._descriptor, self._set_time = descriptor, set_time
        self.limit = _Limit()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.restart: Callable[[], object] = partial(set_time, descriptor, 0, ctypes.addressof(self.limit), None)

    @classmethod
    def open(cls) -> _Timer | None:
        """A timer, where the system has such."""
        try:
            library: Any = ctypes.PyDLL(None)  # both calls return at once, so that the interpreter stays locked
            create, set_time = library.timerfd_create, library.timerfd_settime
        except (OSError, AttributeError, TypeError):
            return None
        set_time.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        descriptor = create(time.CLOCK_MONOTONIC, _NON_BLOCKING | _CLOSED_ON_EXEC)
        return None if descriptor < 0 else cls(descriptor, set_time)

    def wait(self, seconds: float) -> bool:
        has_expired = bool(self._poll.poll(math.ceil(seconds * 1000)))
        if has_expired:
            try:
                os.read(self._descriptor, 8)  # the number of times; it expires no more until it is started again
            except BlockingIOError:
                return False  # it was started again meanwhile
        return has_expired

    def expire(self) -> None:
        at_once = _Limit(nanoseconds=1)
        self._set_time(self._descriptor, 0, ctypes.addressof(at_once), None)

    def close(self) -> None:
        os.close(self._descriptor)


def _do_nothing() -> None:
    pass
