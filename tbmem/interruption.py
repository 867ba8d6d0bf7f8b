"""Distinguishes exceptions of the program that arrive inside of tbmem's code from tbmem's own errors."""

from __future__ import annotations

import dis
import functools
import os
import queue
import signal
from collections.abc import Callable, Iterator
from itertools import dropwhile
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_RAISING = {dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in dis.opmap}
_RAISED_BARE = (StopIteration, StopAsyncIteration, MemoryError, RecursionError, AssertionError, queue.Empty, queue.Full)
"""Exceptions that C functions raise without arguments."""


def interruption_in(error: BaseException) -> BaseException | None:
    """The exception that was delivered into running code from outside: ``error``, or one that was handled before it.

    Such are ``KeyboardInterrupt``, ``SystemExit`` and all that is no ``Exception``; what a signal handler (a timeout by
    SIGALRM) or a trace function (a debugger that quits) has raised; and what ``PyThreadState_SetAsyncExc`` has set.
    Python gives a handler the frame that it interrupts: the traceback then has a frame, not of tbmem, which was called
    with the frame before it, or whose code is an installed handler's. An exception that was set has no frame of its
    own; it has no arguments, and arises at an instruction that does not raise.
    """
    seen: set[int] = set()
    called: set[FrameType] = set()  # tbmem's frames, and those of what it had called; not of the program around it
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        frames = [entry.tb_frame for entry in _entries(each.__traceback__)]
        called.update(dropwhile(lambda frame: not _is_ours(frame.f_code), frames))
        was_handled_within = not called.isdisjoint(frames)
        if (each is error or was_handled_within) and (not isinstance(each, Exception) or _is_from_outside(each)):
            return each
        each = each.__cause__ or each.__context__
    return None


def raise_interruption(error: BaseException) -> None:
    """Raise the exception of the program that ``error`` is, or hides; return if it is an error of this code."""
    interruption = interruption_in(error)
    if interruption is not None:
        raise interruption


class SuppressedErrors:
    """Suppresses errors of the code within, as ``contextlib.suppress`` does; an exception of the program passes."""

    def __enter__(self) -> None:
        """Nothing begins."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Whether the error ends here."""
        return isinstance(error, Exception) and interruption_in(error) is None


def completed(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that may be repeated: again if the program's exception interrupts it, which is raised then."""
    try:
        return call(*args, **kwargs)
    except BaseException as error:
        if interruption_in(error) is not None:
            call(*args, **kwargs)
        raise


def _is_from_outside(error: BaseException) -> bool:
    before: FrameType | None = None
    last: TracebackType | None = None
    for last in _entries(error.__traceback__):
        frame = last.tb_frame
        is_called = before is not None and not _is_ours(frame.f_code)
        if is_called and (_was_given(frame, before) or frame.f_code in _handlers()):
            return True
        before = frame
    return last is not None and not error.args and not isinstance(error, _RAISED_BARE) and not _raises(last)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OURS)


def _was_given(frame: FrameType, interrupted: FrameType | None) -> bool:
    """Whether a function was called with the frame that it was called from."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    values = frame.f_locals
    frames = [one for one in (interrupted, frame.f_back) if one is not None]  # not alike at the call of a function
    for name in code.co_varnames[:count]:
        value = values.get(name)
        given = value if type(value) is tuple else (value,)
        if any(each is one for each in given for one in frames):
            return True
    return False


def _raises(entry: TracebackType) -> bool:
    """Whether the instruction at which an exception arose is a ``raise``."""
    return entry.tb_frame.f_code.co_code[entry.tb_lasti] in _RAISING


def _handlers() -> set[CodeType]:
    """The code of all signal handlers in Python."""
    found = map(_code_of, map(signal.getsignal, signal.valid_signals()))
    return {code for code in found if code is not None}


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    for inner in (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__")):
        code = getattr(inner, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
