"""A call stack, or an exception's, goes in; the line of the user's that asked for memory comes out."""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType, TracebackType

from tbmem.sources.usercode import is_user_file


def asking_line(frame: FrameType | None) -> str:
    """The innermost line of a running stack that the user wrote: ``'train.py:31 in forward()'``.

    Args:
        frame: The innermost.

    Returns:
        Empty where no line is the user's.
    """
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return _place(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return ""


def raising_line(traceback: TracebackType | None) -> str:
    """The same of an exception: the last of the user's lines that it has passed."""
    found = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_user_file(code.co_filename):
            found = _place(code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def innermost_frame(traceback: TracebackType | None) -> FrameType | None:
    """The innermost frame that an exception has passed; its variables are still there."""
    frame = None
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
    return frame


def training_frame() -> FrameType | None:
    """Where the program stands: this thread's frame, or the main thread's where no Python has called this one."""
    own: FrameType | None = sys._getframe(1)
    main = threading.main_thread().ident
    if threading.get_ident() == main or main is None:
        return own
    if asking_line(own):
        return own
    return sys._current_frames().get(main)


def _place(code: CodeType, line: int) -> str:
    name = code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line}" if code.co_name == "<module>" else f"{name}:{line} in {code.co_name}()"
