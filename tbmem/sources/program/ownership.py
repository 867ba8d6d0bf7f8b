"""Ownership of running frames, classes and modules: the user's own, a library's or tbmem's."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

from tbmem.model.code_owner import Owner, owner_of
from tbmem.sources.program import introspection as plain


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(key)}
    torch = sys.modules.get("torch")
    folders |= {os.path.dirname(torch.__file__)} if torch is not None and torch.__file__ else set()
    prefixes = {os.path.join(path, "") for folder in folders for path in (folder, os.path.realpath(folder))}
    return tuple(prefix.replace("\\", "/") for prefix in sorted(prefixes))


@functools.lru_cache(maxsize=16384)
def is_user_file(filename: str) -> bool:
    """Whether it is the user's own: not the standard library's, not an installed package's, not tbmem's."""
    return _owner(filename) is Owner.USER


@functools.lru_cache(maxsize=16384)
def is_ours(filename: str) -> bool:
    """Whether a file is tbmem's own."""
    return _owner(filename) is Owner.TBMEM


def _owner(filename: str) -> Owner:
    path = filename if filename.startswith("<") else os.path.abspath(filename)
    return owner_of(path, _library_folders())


def is_user_class(kind: type) -> bool:
    """Whether a class is defined in a user's file; judged by its module, or else by its methods."""
    if not kind.__flags__ & (1 << 9):  # made in C
        return False
    files = method_files(kind) if plain.module_of(kind) not in sys.modules else []
    written = [filename for filename in files if not filename.startswith("<")]
    return is_user_file(written[0]) if written else _is_user_module(plain.module_of(kind))


def method_files(kind: type) -> list[str]:
    """The files in which the methods of a class itself are written, one for each."""
    entries = plain.class_attributes(kind).values()
    functions = [one.__func__ if type(one) in (staticmethod, classmethod) else one for one in entries]
    return [function.__code__.co_filename for function in functions if type(function) is FunctionType]


def _is_user_module(name: str) -> bool:
    """Whether a module is a user's; one that cannot be found is, because libraries can."""
    module = sys.modules.get(name)
    if type(module) is not ModuleType:
        return module is None and name.split(".")[0] not in ("tbmem", "torch", "numpy", "builtins")
    filename = module.__dict__.get("__file__")
    return is_user_file(filename) if type(filename) is str else name == "__main__"


def is_our_class(kind: type) -> bool:
    """Whether a class belongs to tbmem."""
    return is_our_module(plain.module_of(kind))


def is_shell_class(kind: type) -> bool:
    """Whether a class belongs to IPython, whose shell holds all variables of a notebook once more."""
    return plain.module_of(kind).partition(".")[0] in ("IPython", "ipykernel")


def is_our_module(name: str) -> bool:
    """Whether a module belongs to tbmem; the training of the demo counts as a user's."""
    return name.partition(".")[0] == "tbmem" and not name.startswith("tbmem.demo")


def stack_of(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it, innermost first, our own left out."""
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a running stack whose code the user wrote, innermost first."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def asking_line(frame: FrameType | None) -> str:
    """The user's innermost line of a running stack, ``'train.py:31 in forward()'``; empty where none is the user's."""
    return next((_location(each.f_code, each.f_lineno) for each in user_frames(frame)), "")


def raising_line(traceback: TracebackType | None) -> str:
    """The same of an exception: the last of the user's lines that it has passed."""
    steps = [(frame.f_code, line) for frame, line in walk_tb(traceback) if is_user_file(frame.f_code.co_filename)]
    return _location(*steps[-1]) if steps else ""


def innermost_frame(traceback: TracebackType | None) -> FrameType | None:
    """The innermost frame that an exception has passed; its variables are still there."""
    frames = [frame for frame, _ in walk_tb(traceback)]
    return frames[-1] if frames else None


def training_frame() -> FrameType | None:
    """The program's running frame: this thread's, or the main thread's where no user code has called this one."""
    frame: FrameType | None = sys._getframe(1)
    main = threading.main_thread().ident
    if main is None or main == threading.get_ident() or asking_line(frame):
        return frame
    return sys._current_frames().get(main)


def _location(code: CodeType, line: int) -> str:
    name = code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line}" if code.co_name == "<module>" else f"{name}:{line} in {code.co_name}()"


def frames_of_other_threads() -> list[FrameType]:
    """Frames of the other threads."""
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)  # this thread's own frame in a variable of its own would be a cycle
    return list(frames.values())


def qualified_name(code: CodeType) -> str:
    """A function's name with its class, as far as this Python knows it, without ``<locals>``."""
    return plain_name(getattr(code, "co_qualname", code.co_name))


def plain_name(name: str) -> str:
    """A qualified name without ``<locals>``."""
    return name.replace(".<locals>", "")


def has_fast_locals(frame: FrameType) -> bool:
    """Whether ``f_locals`` is a copy; in a module or a class body it is the namespace itself."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def locals_of(frame: FrameType, tidy: bool = True) -> dict[str, Any]:
    """A frame's variables by name, closure variables included.

    Up to Python 3.12 reading them leaves a dict in the frame that keeps every value alive. It is emptied again,
    unless the user holds it (``locals()``) or a trace or profile function may write it back (``tidy`` is false). The
    frame must not be running, and what else holds the dict (a list of all objects) must be gone before.
    """
    variables = frame.f_locals
    copy = dict(variables)
    if tidy and has_fast_locals(frame) and type(variables) is dict and sys.getrefcount(variables) <= _ONLY_THE_FRAME:
        variables.clear()
    return copy


def variables_left_in(frame: FrameType) -> list[dict[str, Any]]:
    """The dict that reading a frame's variables fills, in a list; none where the user holds it or where it is none."""
    variables = frame.f_locals
    is_left = has_fast_locals(frame) and type(variables) is dict and sys.getrefcount(variables) <= _ONLY_THE_FRAME
    return [variables] if is_left else []


def local_of(frame: FrameType, name: str) -> Any:
    """One variable of a frame, ``None`` where it is not set; nothing is left behind in the frame."""
    if not has_fast_locals(frame):
        return frame.f_globals.get(name)
    if sys.version_info >= (3, 13) or not nobody_traces():  # a trace function refreshes the dict and writes it back
        return frame.f_locals.get(name)
    return locals_of(frame).get(name)


_ONLY_THE_FRAME = 3  # the frame's own reference, the variable and the argument of ``getrefcount``


def nobody_traces() -> bool:
    """Whether no trace or profile function is set in this thread."""
    return sys.gettrace() is None and sys.getprofile() is None
