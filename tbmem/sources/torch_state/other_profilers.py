"""Lets a profiler of torch that the program starts itself begin: a recording of tbmem's ends before it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.autograd import profiler as torch_profiler

from tbmem.sources.torch_state.profiler_state import in_backward

_Function = Callable[..., Any]

_LONGEST_WAIT = 5.0
"""Seconds that another thread's profiler waits for the step to end: most steps are shorter, and a program that waits
for that thread meanwhile goes on after them."""
_NAMES = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")


class OtherProfilers:
    """Stands before torch's own functions while tbmem records, so that the program's profiler finds none at work.

    A process has one profiler. Whoever prepares a second one cancels the first, without a word; to stop or to write
    the first then crashes the process (torch 2.13, kineto's ``prepareTrace``; seen as a segmentation fault in
    ``export_chrome_trace``). So a recording ends when the program calls for a profiler, and before torch hears of it.
    A recording can be ended in its own thread only, and not inside of a backward pass: a profiler of another thread
    waits for the end of the step, and one for which no end comes records nothing, and is told so by its empty results.

    Args:
        give_way: Ends the recording, and with it calls ``end``; called in the thread that records.
        refused: Called where the program's profiler records nothing.
    """

    def __init__(self, give_way: Callable[[], object], refused: Callable[[], object] = lambda: None) -> None:
        self._give_way = give_way
        self._tell_refused = refused
        self._thread = self._pid = 0
        self._is_own = False
        self._ended = threading.Event()
        self._ended.set()
        self._refused: set[int] = set()
        self._torchs: tuple[_Function, ...] = ()
        self._ours: tuple[_Function, ...] = ()
        self._is_in_place = False
        self.are_waiting = False
        """Whether a profiler of another thread waits for the recording to end."""

    def begin(self) -> None:
        """The recording belongs to this thread; whoever wants a profiler from now on gets it after ``give_way``."""
        self._thread, self._pid = threading.get_ident(), os.getpid()
        self._ended.clear()
        self.are_waiting = False
        if not self._is_in_place:
            self._is_in_place = True
            self._torchs = _functions()
            self._ours = (self._prepare, self._enable, self._disable)
            _set(self._ours)

    def end(self) -> None:
        """The recording has ended; may come at any moment and more than once."""
        self._ended.set()
        self._take_away()

    @contextmanager
    def own(self) -> Iterator[None]:
        """What this thread calls inside of the block are tbmem's own calls."""
        self._is_own = True
        try:
            yield
        finally:
            self._is_own = False

    def _prepare(self, *args: Any, **kwargs: Any) -> Any:
        return self._torchs[0](*args, **kwargs) if self._may_pass() else None

    def _enable(self, *args: Any, **kwargs: Any) -> Any:
        is_refused = threading.get_ident() in self._refused
        return self._torchs[1](*args, **kwargs) if not is_refused and self._may_pass() else None

    def _disable(self, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() not in self._refused:
            return self._torchs[2](*args, **kwargs)
        self._refused.discard(threading.get_ident())
        self._take_away()
        return _NoResults()

    def _may_pass(self) -> bool:
        """Whether torch may hear of the call: the recording has ended, or it is the recording's own."""
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
        self._tell_refused()
        return False

    def _take_away(self) -> None:
        if self._is_in_place and self._ended.is_set() and not self._refused and _functions() == self._ours:
            self._is_in_place = False
            _set(self._torchs)
            self._ours = ()  # bound methods of this object: a reference cycle


class _NoResults:
    """The results of a profiler that has recorded nothing, as torch's Python code asks for them."""

    def events(self) -> list[Any]:
        return []

    def experimental_event_tree(self) -> list[Any]:
        return []

    def trace_start_ns(self) -> int:
        return 0

    def save(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}\n', encoding="utf-8")


def _functions() -> tuple[_Function, ...]:
    return tuple(getattr(torch_profiler, name) for name in _NAMES)


def _set(functions: tuple[_Function, ...]) -> None:
    for name, function in zip(_NAMES, functions, strict=True):
        setattr(torch_profiler, name, function)
