"""State of torch's profiler in this process: whether one may start or stop, open ranges, log lines, other profilers."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import profiler as torch_profiler
from torch.autograd.profiler import record_function

from tbmem.sources.program import tracked_objects

_Method = Callable[..., Any]
_ERRORS_ONLY = 2
"""c10's severity of errors: 0 info, 1 warning."""
_KINETO_LEVEL = "KINETO_LOG_LEVEL"
_SETTLING = 0.005
"""Seconds in which threads of a process group release what a finished collective held: it takes microseconds."""
_LONGEST_WAIT = 5.0
"""Seconds that another thread's profiler waits for the step to end; a program that waits for that thread goes on."""
_HOOKED = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")


def in_backward() -> bool:
    """Whether this thread is inside of a backward pass, where no recording may begin or stop.

    Only the engine can end its ranges, and at its end it removes callbacks that were added meanwhile, a profiler's too
    (torch 2.13, ``ThreadLocalStateGuard``): to stop that one crashes the process.
    """
    return bool(torch._C._current_graph_task_id() != -1)


def graph_nodes() -> int:
    """Autograd nodes that this thread has made so far: about the number of differentiable operators."""
    return int(torch._C._autograd._get_sequence_nr())


def prepared_profiles() -> bool:
    """Whether the program has a profile of torch in its warm-up: torch crashes when another one starts meanwhile."""
    profiles = tracked_objects.instances(torch_profiler.profile)
    return any(getattr(each, "entered", False) and each.kineto_results is None for each in profiles)


class OpenRanges:
    """Ends the ranges that are open when a recording stops, in place of the program, which does it too late.

    The end of a range is written through a pointer to its record (torch 2.13, ``KinetoObserverContext``). When the
    recording it began in is gone, that memory belongs to somebody else, and the process crashes some time later. Every
    optimizer's step is such a range, and ``tbmem run`` sees steps from within it.
    """

    def __init__(self) -> None:
        self._open: dict[int, record_function] = {}
        self._ended: dict[int, record_function] = {}
        self._torchs: tuple[_Method, _Method] | None = None
        self._ours: tuple[_Method, _Method] | None = None

    def begin(self) -> None:
        """Note from now on which ranges this thread has open."""
        if self._torchs is not None:
            return
        thread = threading.get_ident()
        enter: _Method = record_function.__enter__
        leave: _Method = record_function.__exit__
        self._torchs = enter, leave

        def noted_enter(opened: record_function) -> Any:
            result = enter(opened)
            if self._torchs is not None and threading.get_ident() == thread:
                self._open[id(opened)] = opened
            return result

        def noted_exit(opened: record_function, *error: Any) -> None:
            self._open.pop(id(opened), None)
            if self._ended.pop(id(opened), None) is None:
                leave(opened, *error)

        self._ours = noted_enter, noted_exit
        record_function.__enter__, record_function.__exit__ = self._ours  # type: ignore[method-assign]

    def end_open(self) -> None:
        """The recording is about to stop: so do the ranges that began in it. Their own end then does nothing."""
        while self._torchs is not None and self._open:
            key, opened = self._open.popitem()
            self._ended[key] = opened
            self._torchs[1](opened, None, None, None)

    def end(self) -> None:
        """Note no longer; ranges that are open still are the program's again."""
        if self._torchs is not None and (record_function.__enter__, record_function.__exit__) == self._ours:
            record_function.__enter__, record_function.__exit__ = self._torchs  # type: ignore[method-assign]
        self._torchs = self._ours = None
        self._open.clear()


class QuietTorch:
    """Holds back what torch prints where memory is profiled: C++ warnings of a step, and kineto's status lines.

    ``[W CPUAllocator.cpp] Memory block of unknown size was allocated before the profiling started`` comes at the
    first free of every window and has no switch in Python; c10's level is a plain exported integer.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._has_set_kineto = False

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
        self._restore_kineto()

    @contextmanager
    def starting_kineto(self) -> Iterator[None]:
        """Let kineto, which reads its level once, at its first use, start without its status lines.

        The variable is gone again afterwards, so that child processes do not inherit it; after an exception of the
        program that came right here, with ``end``.
        """
        try:
            if _KINETO_LEVEL not in os.environ:
                self._has_set_kineto = True
                os.environ[_KINETO_LEVEL] = "99"
            yield
        finally:
            self._restore_kineto()

    def _restore_kineto(self) -> None:
        if self._has_set_kineto:
            os.environ.pop(_KINETO_LEVEL, None)
            self._has_set_kineto = False


@cache
def _c10_level() -> ctypes.c_int | None:
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libc10.so", "libc10.dylib", "c10.dll"):
        with suppress(OSError, ValueError):
            return ctypes.c_int.in_dll(ctypes.CDLL(str(folder / name)), "FLAGS_caffe2_log_level")
    return None


def import_ahead() -> None:
    """Import what torch's profiler imports at the first ``record_function``: never while its tracer runs.

    The tracer reads the names of code objects when the recording ends. Those of an import are freed by then, and the
    trace gets whatever lies there instead, which may not even be JSON (torch 2.13).
    """
    find = getattr(torch_profiler, "_maybe_cupti_monitor", None)
    if find is not None:
        find()


def let_collectives_settle() -> None:
    """To be called right before a profiler with stacks is stopped; 5 ms where collectives run, nothing elsewhere.

    A collective keeps hooks for saved tensors of its caller and drops these Python objects in a thread of its own,
    which registers with Python for that moment. torch's tracer, when it stops, goes through all such threads; one that
    vanishes meanwhile crashes the process (torch 2.13, ``PythonTracer::stop``; seen with DDP over gloo in one window
    of a hundred).
    """
    if dist.is_available() and dist.is_initialized():
        time.sleep(_SETTLING)


class OtherProfilers:
    """Wraps torch's own functions while tbmem records, so that the program's profiler finds no other one running.

    A process has one profiler. Preparing a second one silently cancels the first, and to stop or to write the first
    then crashes the process (torch 2.13, kineto's ``prepareTrace``). So a recording ends when the program calls for a
    profiler, before torch gets the call. That is possible in the recording's own thread only, and not inside of a
    backward pass: a profiler of another thread waits for the end of the step, and one that waits in vain records
    nothing, and gets empty results.

    Args:
        give_way: Ends the recording, and with it calls ``end``; called in the thread that records.
        refused: Called where the program's profiler records nothing.
    """

    def __init__(self, give_way: Callable[[], object], refused: Callable[[], object] = lambda: None) -> None:
        self._give_way = give_way
        self._on_refused = refused
        self._thread = self._pid = 0
        self._is_own = False
        self._ended = threading.Event()
        self._ended.set()
        self._refused: set[int] = set()
        self._originals: tuple[_Method, ...] = ()
        self._wrappers: tuple[_Method, ...] = ()
        self.are_waiting = False
        """Whether a profiler of another thread waits for the recording to end."""

    def begin(self) -> None:
        """The recording belongs to this thread; whoever wants a profiler from now on gets it after ``give_way``."""
        self._thread, self._pid = threading.get_ident(), os.getpid()
        self._ended.clear()
        self.are_waiting = False
        if not self._wrappers:
            self._originals = _torch_functions()
            self._wrappers = (self._prepare, self._enable, self._disable)
            _replace(self._wrappers)

    def end(self) -> None:
        """The recording has ended; may come at any moment and more than once."""
        self._ended.set()
        self._restore()

    @contextmanager
    def own(self) -> Iterator[None]:
        """What this thread calls inside of the block are tbmem's own calls."""
        self._is_own = True
        try:
            yield
        finally:
            self._is_own = False

    def _prepare(self, *args: Any, **kwargs: Any) -> Any:
        return self._originals[0](*args, **kwargs) if self._is_allowed() else None

    def _enable(self, *args: Any, **kwargs: Any) -> Any:
        is_refused = threading.get_ident() in self._refused
        return self._originals[1](*args, **kwargs) if not is_refused and self._is_allowed() else None

    def _disable(self, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() not in self._refused:
            return self._originals[2](*args, **kwargs)
        self._refused.discard(threading.get_ident())
        self._restore()
        return _NoResults()

    def _is_allowed(self) -> bool:
        """Whether torch may get the call: the recording has ended, or it is the recording's own."""
        thread = threading.get_ident()
        is_own = self._is_own and thread == self._thread
        if self._ended.is_set() or is_own or self._pid != os.getpid():
            return True
        if thread != self._thread:
            self.are_waiting = True
            self._ended.wait(_LONGEST_WAIT)
        elif not in_backward():
            self._give_way()
        if self._ended.is_set():
            return True
        self._refused.add(thread)
        self._on_refused()
        return False

    def _restore(self) -> None:
        if self._wrappers and self._ended.is_set() and not self._refused and _torch_functions() == self._wrappers:
            _replace(self._originals)
            self._wrappers = ()  # bound methods of this object: a reference cycle


class _NoResults:
    """The results of a profiler that has recorded nothing, as torch's Python code reads them."""

    def events(self) -> list[Any]:
        return []

    def experimental_event_tree(self) -> list[Any]:
        return []

    def trace_start_ns(self) -> int:
        return 0

    def save(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}\n', encoding="utf-8")


def _torch_functions() -> tuple[_Method, ...]:
    return tuple(getattr(torch_profiler, name) for name in _HOOKED)


def _replace(functions: tuple[_Method, ...]) -> None:
    for name, function in zip(_HOOKED, functions, strict=True):
        setattr(torch_profiler, name, function)
