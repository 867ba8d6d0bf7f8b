"""Children: memory of all processes below a process, and what of it they share with nobody."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SHARE_OF_TIME = 0.01
"""Share of the time that reading private memory may take: the kernel walks all pages of a process for it, ten
milliseconds for a few GiB."""
_CREDIT = 0.02
"""Seconds of such reading at once, after a pause or at the start, so that a short run sees something."""


class ChildrenReading(NamedTuple):
    """What the processes below this one hold, in bytes."""

    resident: int
    """Their resident memory; what several of them share is counted several times."""
    private: int | None
    """What each of them shares with nobody; ``None`` if the system does not tell it, or not yet, for all of them."""


class Children:
    """The processes below one process.

    Resident memory is read of all at each call, private memory of as many as the time that it may take allows: of new
    ones first, then of those that have waited longest.
    """

    def __init__(self, pid: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._pid = pid or os.getpid()
        self._clock = clock
        self._credit = _CREDIT
        self._credited_at = clock()
        self._private: dict[int, int | None] = {}
        """By process, the one whose figure is oldest first."""

    def read(self) -> ChildrenReading:
        """What they hold now."""
        alive = find_children(self._pid)
        resident = sum(map(resident_bytes, alive))
        known = self._private = {pid: size for pid, size in self._private.items() if pid in alive}
        now = self._clock()
        self._credit = min(self._credit + (now - self._credited_at) * _SHARE_OF_TIME, _CREDIT)
        self._credited_at = now
        for pid in [*(pid for pid in alive if pid not in known), *known]:
            if self._credit <= 0:
                break
            self._update(pid)
        sizes = [known.get(pid) for pid in alive]
        told = [size for size in sizes if size is not None]
        return ChildrenReading(resident, sum(told) if len(told) == len(alive) else None)

    def _update(self, pid: int) -> None:
        began = self._clock()
        self._private.pop(pid, None)
        self._private[pid] = private_bytes(pid)
        self._credit -= self._clock() - began


def find_children(pid: int) -> list[int]:
    """All processes below ``pid``, children of children included."""
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        # no Linux, or one without such lists: look at every process there is, which takes a millisecond
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    found = _own_children(pid)
    for child in found:
        # the list grows while it is walked
        found += _own_children(child)
    return found


def _own_children(pid: int) -> list[int]:
    """Children that any thread of ``pid`` has started; none if it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if it has ended."""
    try:
        if psutil.LINUX:  # ten times cheaper than psutil's own, and there are many workers
            return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):
        return 0


def private_bytes(pid: int) -> int | None:
    """Memory that a process shares with nobody; 0 if it has ended, ``None`` if nobody may know.

    What a forked child has in common with its parent is not in it until one of them writes to it.
    """
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.NoSuchProcess:
        return 0
    except (psutil.Error, OSError, AttributeError):
        return None
