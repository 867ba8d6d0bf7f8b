"""Ends a recording that has become too large, also in the middle of a step."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType

from tbmem.runtime.process.lifecycle import Process
from tbmem.sources.program.ownership import is_ours, is_user_file
from tbmem.sources.torch_state.profiler_state import in_backward

_INTERVAL = 0.1
"""Seconds between two questions, which the recording of a longer step shows as calls."""
_JOIN_SECONDS = 1.0
_ADD_PENDING_CALL = getattr(ctypes.pythonapi, "Py_AddPendingCall", None)
_asked: deque[Callable[[], None]] = deque()


def _run_asked(_: object) -> int:
    while _asked:
        _asked.popleft()()
    return 0


_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_asked)
"""What Python calls, and may call after the recording has ended: so it belongs to this module."""


class RecordsLimit:
    """Asks in the main thread, ten times a second, whether a recording has become too large, and ends it there.

    Only the recording's own thread knows and can do so, and it may stay in one step for minutes: Python runs a pending
    call there between two instructions, as it does signal handlers (``Py_AddPendingCall``). Where that is not the
    program's own code, or inside of a backward pass, it waits for the next time.

    Args:
        exceeds: Returns whether the recording is too large.
        end: Ends the recording, and with it calls ``stop``.
    """

    def __init__(self, exceeds: Callable[[], bool], end: Callable[[], object]) -> None:
        self._exceeds, self._end = exceeds, end
        self._ended = threading.Event()
        self._is_exceeded = self._is_waiting = False
        self._pid = Process.number
        self._thread = threading.Thread(target=self._work, name="tbmem records", daemon=True)

    @property
    def is_exceeded(self) -> bool:
        """Whether the recording is, or was, too large; in the recording's thread."""
        self._is_exceeded = self._is_exceeded or (not self._ended.is_set() and self._exceeds())
        return self._is_exceeded

    def start(self) -> None:
        """Start asking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop asking; ``end`` is not called any more."""
        self._ended.set()
        if self._thread.ident is not None and self._pid == Process.number:
            self._thread.join(_JOIN_SECONDS)

    def _work(self) -> None:
        while not self._ended.wait(_INTERVAL):
            if sys.getprofile() is not None:
                sys.setprofile(None)  # torch's profiler has set its function in all threads, see BackgroundWriter
            if not self._is_waiting and _ADD_PENDING_CALL is not None:
                self._is_waiting = True
                _asked.append(self._in_main_thread)
                _ADD_PENDING_CALL(_CALL, None)

    def _in_main_thread(self) -> None:
        self._is_waiting = False
        is_free = not self._ended.is_set() and not in_backward() and _runs_the_program(sys._getframe(2))
        if is_free and self.is_exceeded:
            self._end()


def _runs_the_program(frame: FrameType | None) -> bool:
    """Whether a running stack is the program's down to its innermost own line: tbmem's own work is not interrupted."""
    while frame is not None and not is_ours(frame.f_code.co_filename):
        if is_user_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
