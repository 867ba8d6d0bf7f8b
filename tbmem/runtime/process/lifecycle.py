"""Process id, rank, and start, stop and ``with`` block of MemoryCallback, MemoryMonitor and MemoryProfiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from tbmem.errors import UsageError
from tbmem.runtime.process.guard import Guard
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory

Own = TypeVar("Own", bound="Lifecycle")


class Process:
    """This process; ``Process.number`` is ``os.getpid()`` without a system call, updated in a forked child."""

    number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setattr(Process, "number", os.getpid()))


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank of this process in a job."""

    rank: int = 0
    world_size: int = 1


def find_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """Rank and world size from torch.distributed if initialised, else from RANK and WORLD_SIZE; 0 of 1 by default."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return Rank(dist.get_rank(), dist.get_world_size())
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError):
        return Rank()
    return Rank(rank, size) if 0 <= rank < size else Rank()


def failure(error: BaseException | None) -> BaseException | None:
    """The exception, or ``None`` if it ends an iterator, a generator or a program without a failure."""
    return None if isinstance(error, (StopIteration, GeneratorExit, SystemExit)) else error


class LastError:
    """Finds an exception raised since its creation, without holding a reference to any."""

    def __init__(self) -> None:
        self._before = {id(sys.exc_info()[1]), id(getattr(sys, "last_value", None))}

    def find(self) -> BaseException | None:
        """The exception being handled; else the one printed, in an interactive session only if memory ran out."""
        passing, printed = sys.exc_info()[1], getattr(sys, "last_value", None)
        if passing is not None and id(passing) not in self._before:
            return failure(passing)
        if not isinstance(printed, BaseException) or id(printed) in self._before:
            return None
        return printed if not hasattr(sys, "ps1") or is_out_of_memory(printed) else None


class Lifecycle:
    """An object that is started and stopped once, in one process; it is inactive in forked children."""

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard or Guard()
        self._resources = ExitStack()
        self._pid: int | None = None
        self._ended = False
        self._last_error = LastError()

    def __enter__(self: Own) -> Own:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._stop(failure(error))

    def start(self) -> None:
        """Start before the first training step."""
        raise NotImplementedError

    def stop(self, error: BaseException | None = None) -> None:
        """End the run: evaluate and write what is pending, close all files, switch everything off.

        ``error`` is the exception that ended the loop, by default the one being handled, as in ``finally``, or at exit
        the one that the interpreter has printed.
        """
        self._stop(error if error is not None else self._last_error.find())

    def _stop(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        if self._pid is not None:
            raise UsageError(f"this {type(self).__name__} was started before: make a new one for each run")
        self._pid = Process.number
        self._last_error = LastError()

    @property
    def _is_running(self) -> bool:
        return self._pid == Process.number and not self._ended
