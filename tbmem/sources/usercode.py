"""A file, a frame or a class goes in; whether it is the user's own, a library's or ours comes out."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from tbmem.sources import plain

_OURS = str(Path(__file__).resolve().parent.parent) + os.sep
_DEMO = _OURS + "demo" + os.sep
"""The demonstration's training is a user's like any other."""
_NOTEBOOK = ("<ipython-input", "<stdin>", "<doctest", "<console>")


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(key)}
    torch = sys.modules.get("torch")
    found |= {os.path.dirname(torch.__file__)} if torch is not None and torch.__file__ else set()
    return tuple(os.path.join(folder, "") for one in found for folder in {one, os.path.realpath(one)})


@functools.lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Whether somebody who trains wrote it: not the standard library's, not an installed package's, not ours.

    Args:
        filename: ``co_filename`` of a code object.
    """
    if filename.startswith("<"):
        return filename.startswith(_NOTEBOOK)
    path = os.path.abspath(filename)
    if path.startswith(_OURS):
        return path.startswith(_DEMO)
    parts = path.replace("\\", "/")
    return not ("/site-packages/" in parts or "/dist-packages/" in parts or path.startswith(_library_folders()))


def is_ours(filename: str) -> bool:
    """Whether the monitor itself is at work there."""
    path = os.path.abspath(filename)
    return path.startswith(_OURS) and not path.startswith(_DEMO)


def is_user_class(kind: type) -> bool:
    """Whether a class is defined in a user's file; judged by its methods, or else by its module."""
    if not kind.__flags__ & (1 << 9):  # made in C
        return False
    for entry in plain.class_attributes(kind).values():
        function = getattr(entry, "__func__", entry) if type(entry) in (staticmethod, classmethod) else entry
        if type(function) is FunctionType and not function.__code__.co_filename.startswith("<"):
            return is_user_file(function.__code__.co_filename)
    return is_user_module(plain.module_of(kind))


def is_user_module(name: str) -> bool:
    """Whether a module is a user's; one that cannot be found is, because libraries can."""
    module = sys.modules.get(name)
    if type(module) is not ModuleType:
        return module is None and name.split(".")[0] not in ("tbmem", "torch", "numpy", "builtins")
    filename = module.__dict__.get("__file__")
    if type(filename) is str:
        return is_user_file(filename)
    return name == "__main__"


def is_our_class(kind: type) -> bool:
    """Whether a class belongs to the monitor."""
    name = plain.module_of(kind)
    return name.partition(".")[0] == "tbmem" and not name.startswith("tbmem.demo")


def stack_of(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it, innermost first, our own left out."""
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


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
    unless the user holds it (``locals()``) or a debugger may be about to write it back.

    Args:
        frame: A frame that is not running at this moment.
        tidy: Whether the dict may be emptied: no trace or profile function is at work in the frame's thread.
    """
    found = frame.f_locals
    copy = dict(found)
    if tidy and has_fast_locals(frame) and type(found) is dict and sys.getrefcount(found) <= _ONLY_THE_FRAME:
        found.clear()
    return copy


def local_of(frame: FrameType, name: str) -> Any:
    """One variable of a frame, ``None`` where it is not set; nothing is left behind in the frame."""
    if not has_fast_locals(frame):
        return frame.f_globals.get(name)
    if sys.version_info >= (3, 13) or not nobody_traces():  # a trace function refreshes the dict and writes it back
        return frame.f_locals.get(name)
    return locals_of(frame).get(name)


_ONLY_THE_FRAME = 3
"""The frame's own reference, the variable and the argument of ``getrefcount``."""


def nobody_traces() -> bool:
    """Whether no trace or profile function is set in this thread."""
    return sys.gettrace() is None and sys.getprofile() is None


def forget() -> None:
    """Drop what was remembered about files."""
    is_user_file.cache_clear()
