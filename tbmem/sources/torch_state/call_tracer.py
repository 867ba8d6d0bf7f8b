"""Profile functions: torch's tracer of Python calls is one, and so are cProfile, ``sys.setprofile`` and others.

A thread has one profile function. When a recording with stacks begins, torch sets its own in every thread, and takes it
away at the end: a profiler of the program's would have ended without notice. So a recording has no stacks where the
program has a profile function already, and is over where the program sets one meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch

from tbmem.interruption import SuppressedErrors
from tbmem.untraced import apart, is_torchs_tracer

Result = TypeVar("Result")

_WORD = struct.calcsize("P")
_WORDS = 48  # of a thread's state that are searched; it has some 60
_BETWEEN = 2  # words from the function to its object
_MOST_THREADS = 10_000
_MEMORY = "/proc/self/mem"


def program_profiles() -> bool:
    """Whether the program has a profile function, in any of its threads; to be asked while torch's tracer is off."""
    if sys.getprofile() is not None:
        return True
    layout = _layout()
    if layout is None:
        return threading.getprofile() is not None
    return _has_functions(layout)


def traces_this_thread() -> bool:
    """Whether torch's tracer is this thread's profile function."""
    return is_torchs_tracer(_getprofile())


def end_tracing() -> None:
    """Remove torch's tracer from this thread; a profile function of the program's stays."""
    if traces_this_thread():
        sys.setprofile(None)


class CallTracer:
    """torch's tracer while a recording with stacks is on: hidden from the program, and out of its profilers' way.

    It is hidden from ``sys.getprofile``: tools that give back what was set before them (memray, and many a ``finally``)
    would set torch's object as a function, and the program's next call would raise ``TypeError: 'TraceContext' object
    is not callable``. If one was set before, Python reports the end of ``sys.setprofile`` itself to the new
    one: ``profile`` then raises ``AssertionError: Bad return``. Of a ``partial`` no end is reported.

    Args:
        own: A profile function of tbmem's, which is hidden likewise.
    """

    def __init__(self, own: object = None) -> None:
        self._own = own
        self._before: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self._set: Callable[..., Any] = partial(_setprofile)

    def begin(self) -> None:
        """The recording has begun, in this thread; on an older torch nothing is hidden."""
        if self._before is None and _CAN_HIDE:
            self._before = sys.getprofile, sys.setprofile
            sys.getprofile, sys.setprofile = self._visible, self._set

    @property
    def is_cut(self) -> bool:
        """Whether the program has set a profile function in this thread meanwhile: stacks are wrong from there on."""
        return self._before is not None and not traces_this_thread()

    def stop(self, disable: Callable[[], Result]) -> Result:
        """Call ``disable``, which ends the recording; a profile function that the program has set meanwhile stays.

        torch removes the function of each thread, whatever it is (torch 2.13; 2.9 looks first). That of this thread is
        removed and set again here, in one frame: tools that follow calls and returns (memray, viztracer) would wait
        for the return of calls that they saw begin. One in C without an object (memray) takes its absence for its end;
        it begins again as in a new thread. One that another thread has set by itself is lost.
        """
        kept = _own_function() if self._before is not None and self.is_cut else None
        if kept is not None:
            _c_setprofile(None, None)
        try:
            return disable()
        finally:
            if kept is not None and kept.argument is None and threading.getprofile() is not None:
                _setprofile(threading.getprofile())
            elif kept is not None:
                _c_setprofile(kept.address, None if kept.argument is None else id(kept.argument))
            self.end()

    def end(self) -> None:
        """The recording has ended: both functions are Python's own; what another tool has put there stays."""
        if self._before is not None and sys.getprofile == self._visible:
            sys.getprofile = self._before[0]
        if self._before is not None and sys.setprofile is self._set:
            sys.setprofile = self._before[1]
        self._before = None

    def _visible(self) -> Any:
        found = self._before[0]() if self._before is not None else _getprofile()
        return None if is_torchs_tracer(found) or found == self._own else found


_getprofile, _setprofile = sys.getprofile, sys.setprofile
_c_setprofile: Any = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(("PyEval_SetProfile", ctypes.pythonapi))
_CAN_HIDE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9)
"""torch 2.6 ends with an assertion of its own ("Python replay stack is empty") where these functions are replaced."""


class _Layout(NamedTuple):
    """Where the state of a thread has the next thread's, its profile function and that one's object (in bytes)."""

    next: int
    function: int
    object: int


class _ProfileFunction(NamedTuple):
    """The profile function of this thread (``Py_tracefunc``), and the object that it is called with."""

    address: int
    argument: Any


def _own_function() -> _ProfileFunction | None:
    """This thread's; ``None`` without one, or where the system does not tell. No other thread changes it."""
    layout, state = _layout(), _of_python("PyThreadState_Get")
    if layout is None:
        return None
    with suppress(OSError), open(_MEMORY, "rb", buffering=0) as memory:
        address = _word(memory, state + layout.function)
        if address:
            return _ProfileFunction(address, _getprofile())  # the object, also where it is no function
    return None


def _has_functions(layout: _Layout) -> bool:
    """Whether any thread has one.

    Memory is read by the kernel: a thread that ends meanwhile is no crash. Nothing that was read is followed but the
    list of threads.
    """
    with suppress(OSError), open(_MEMORY, "rb", buffering=0) as memory:
        state = _of_python("PyInterpreterState_ThreadHead", _of_python("PyInterpreterState_Get"))
        for _ in range(_MOST_THREADS):
            if not state:
                return False
            if _word(memory, state + layout.function):
                return True
            state = _word(memory, state + layout.next)
    return False


def _of_python(name: str, *addresses: int) -> int:
    """Call a function of Python's C interface that takes addresses and returns one."""
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p] * len(addresses)
    return function(*addresses) or 0


def _word(memory: Any, address: int) -> int:
    """A word of this process' memory; 0 where there is none."""
    with suppress(OSError):
        data = os.pread(memory.fileno(), _WORD, address)
        if len(data) == _WORD:
            return int(struct.unpack("P", data)[0])
    return 0


@cache
def _layout() -> _Layout | None:
    """Found in a thread of its own, whose profile function nobody needs; ``None`` where memory cannot be read so."""

    def look() -> _Layout | None:
        found = None

        def profile(frame: FrameType, event: str, argument: object) -> None:
            """Do nothing."""

        state = _of_python("PyThreadState_Get")
        following = _of_python("PyThreadState_Next", state)
        sys.setprofile(profile)
        with suppress(Exception), open(_MEMORY, "rb", buffering=0) as memory:
            words = [_word(memory, state + number * _WORD) for number in range(_WORDS)]
            # function and trace function, then the object of each (CPython 3.10 to 3.14)
            place = words.index(id(profile))
            if following and place >= _BETWEEN and words[place - _BETWEEN]:
                found = _Layout(words.index(following) * _WORD, (place - _BETWEEN) * _WORD, place * _WORD)
        sys.setprofile(None)
        return found

    with SuppressedErrors():
        return apart(look)
    return None
