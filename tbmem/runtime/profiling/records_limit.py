"""Ends a recording that has become too large, also in the middle of a step."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType

from tbmem.runtime.process.lifecycle import Process
from tbmem.sources.program.ownership import is_ours, is_user_file
from tbmem.sources.torch_state.profiler_state import in_backward

_INTERVAL = 0.1
"""Seconds between two questions, which the recording of a longer step shows as calls."""
_JOIN_SECONDS = 1.0
_ADD_PENDING_CALL = getattr(ctypes.pythonapi, "Py_AddPendingCall", None)


class _PendingCall:
    """What Python calls between two instructions of the main thread.

    It is called as ``PyObject_IsTrue``, so that what it raises (Control-C) is raised in the program.

    Only one at a time: a second one during the first makes Python 3.11 repeat an instruction for ever. There a traced
    function begins with running pending calls until there are none (``DO_TRACING`` in ceval.c), and within one none
    is run. So ``function`` becomes ``None`` where Python does nothing more than return to C.
    """

    def __init__(self) -> None:
        self.function: Callable[[], None] | None = None

    def ask(self, function: Callable[[], None]) -> None:
        """Have a function called, unless one still is."""
        if self.function is None and _ADD_PENDING_CALL is not None:
            self.function = function
            _ADD_PENDING_CALL(ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p), ctypes.py_object(self))

    def __bool__(self) -> bool:
        try:
            if self.function is not None:
                self.function()
        finally:
            self.function = None
        return False


_pending_call = _PendingCall()
"""Python may call it after the recording has ended: so it belongs to this module."""


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
        self._is_exceeded = False
        self._pid = Process.number
        self._thread = threading.Thread(target=self._work, name="tbmem records", daemon=True)

    @property
    def is_exceeded(self) -> bool:
        """Whether the recording is, or was, too large; in the recording's thread."""
        self._is_exceeded = self._is_exceeded or (not self._ended.is_set() and self._exceeds())
        return self._is_exceeded

    def start(self) -> None:
        """Start asking."""
        is_ours(__file__)  # what it looks up once is not looked up under the recording's tracer
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
            _pending_call.ask(self._in_main_thread)

    def _in_main_thread(self) -> None:
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
