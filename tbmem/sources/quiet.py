"""What torch's profiler disturbs or is disturbed by goes in; its log lines are held back, its threads have settled."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist

_ERRORS_ONLY = 2
"""c10's severity of errors: 0 info, 1 warning."""
_KINETO_VARIABLE = "KINETO_LOG_LEVEL"
_KINETO_NOTHING = "99"
_SETTLING = 0.005
"""Seconds in which threads of a process group let go of what a finished collective held: it takes microseconds."""


class QuietTorch:
    """Holds back the C++ warnings that a memory-profiled step prints.

    ``[W CPUAllocator.cpp] Memory block of unknown size was allocated before the profiling started`` comes at the
    first free of every window and has no switch in Python; c10's level is a plain exported integer.
    """

    def __init__(self) -> None:
        self._before: int | None = None

    def begin(self) -> None:
        """Only errors from now on."""
        level = _c10_level()
        if level is not None and self._before is None:
            self._before = level.value
            level.value = max(level.value, _ERRORS_ONLY)

    def end(self) -> None:
        """The level from before ``begin``."""
        level = _c10_level()
        if level is not None and self._before is not None:
            level.value = self._before
        self._before = None


@cache
def _c10_level() -> ctypes.c_int | None:
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libc10.so", "libc10.dylib", "c10.dll"):
        try:
            return ctypes.c_int.in_dll(ctypes.CDLL(str(folder / name)), "FLAGS_caffe2_log_level")
        except (OSError, ValueError):
            continue
    return None


@contextmanager
def quiet_kineto() -> Iterator[None]:
    """Let kineto, which reads its level once, at its first use, start without its status lines.

    The variable is gone again afterwards, so that child processes do not inherit it.
    """
    if _KINETO_VARIABLE in os.environ:
        yield
        return
    os.environ[_KINETO_VARIABLE] = _KINETO_NOTHING
    try:
        yield
    finally:
        os.environ.pop(_KINETO_VARIABLE, None)


def let_collectives_settle() -> None:
    """To be called right before a profiler with stacks is stopped; 5 ms where collectives run, nothing elsewhere.

    A collective keeps the thread-local state of its caller, hooks for saved tensors with it, and drops these Python
    objects in a thread of its own, which registers with Python for that moment. torch's tracer, when it stops, goes
    through a list of all such threads; one that vanishes meanwhile crashes the process (torch 2.13,
    ``PythonTracer::stop``; seen with DDP over gloo in one window of a hundred).
    """
    if dist.is_available() and dist.is_initialized():
        time.sleep(_SETTLING)
