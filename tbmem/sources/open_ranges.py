"""The program's ``record_function`` ranges go in; each ends with the recording it began in, none writes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import record_function

_Method = Callable[..., Any]


def in_backward() -> bool:
    """Whether this thread is inside of a backward pass, where no recording may begin or stop.

    Its ranges are open, and nobody but the engine can end them; and it takes callbacks away at its end that were
    added meanwhile, a profiler's too (torch 2.13, ``ThreadLocalStateGuard``): to stop that one crashes the process.
    """
    return bool(torch._C._current_graph_task_id() != -1)


class OpenRanges:
    """Ends the ranges that are open when a recording stops, in place of the program, which does it too late.

    A range keeps a pointer to its record. When the recording it began in is gone and another one has begun, its end
    is written through that pointer into memory that now belongs to somebody else (torch 2.13,
    ``KinetoObserverContext``), and the process crashes some time later. Every optimizer's step is such a range, and
    ``tbmem run`` sees steps from within it; a program may also have one of its own round a whole step.
    """

    def __init__(self) -> None:
        self._open: dict[int, record_function] = {}
        self._ended: dict[int, record_function] = {}
        self._thread = 0
        self._torchs: tuple[_Method, _Method] | None = None
        self._ours: tuple[_Method, _Method] | None = None

    def begin(self) -> None:
        """Note from now on which ranges this thread has open."""
        if self._torchs is not None:
            return
        self._thread = threading.get_ident()
        enter: _Method = record_function.__enter__
        leave: _Method = record_function.__exit__
        self._torchs = enter, leave

        def noted_enter(opened: record_function) -> Any:
            result = enter(opened)
            if self._torchs is not None and threading.get_ident() == self._thread:
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
        if self._torchs is None:
            return
        for key, opened in reversed(list(self._open.items())):
            del self._open[key]
            self._ended[key] = opened
            self._torchs[1](opened, None, None, None)

    def end(self) -> None:
        """Note no longer; ranges that are open still are the program's again."""
        if self._torchs is None:
            return
        if (record_function.__enter__, record_function.__exit__) == self._ours:
            record_function.__enter__, record_function.__exit__ = self._torchs  # type: ignore[method-assign]
        self._torchs = self._ours = None
        self._open.clear()
