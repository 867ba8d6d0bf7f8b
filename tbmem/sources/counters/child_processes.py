"""Memory of all descendants of a process, resident and private."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SHARE_OF_TIME = 0.002
"""Share of the time that reading private memory may take: the kernel walks all pages of a process for it, which takes
ten milliseconds for a few GiB."""
_ANY_SIGNAL = 0x4000_0000 if sys.platform == "linux" else 0
"""``__WALL`` of wait(2): children that end with another signal than SIGCHLD as well."""
_CREDIT = 0.02
"""Seconds that such reading may take at once at the start or after a pause, for a figure in short runs too."""


class Children:
    """The descendants of a process.

    Each call reads the resident memory of all, and the private memory of as many as the time budget allows: of new
    processes first, then of those with the oldest figures.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cost: Callable[[], float] = time.thread_time
    ) -> None:
        self._pid = os.getpid()
        self._clock = clock
        self._cost = cost  # processor time: a busy machine makes no reading dearer
        self._credit, self._credited_at = _CREDIT, clock()
        self._private: dict[int, _PrivateMemory] = {}  # by process id, the oldest figure first

    def read(self) -> tuple[int, int | None]:
        """Sums of resident memory (shared pages count for each process) and of private memory, if known of all.

        What a child's resident memory has grown by since its private memory was read is taken for private.
        """
        resident = {pid: resident_bytes(pid) for pid in find_children(self._pid)}
        private = self._private = {pid: figure for pid, figure in self._private.items() if pid in resident}
        now = self._clock()
        self._credit = min(self._credit + (now - self._credited_at) * _SHARE_OF_TIME, _CREDIT)
        self._credited_at = now
        for pid in [*(pid for pid in resident if pid not in private), *private]:
            if self._credit <= 0:
                break
            began = self._cost()
            private.pop(pid, None)
            private[pid] = _PrivateMemory(private_bytes(pid), resident[pid])
            self._credit -= self._cost() - began
        sizes = [private[pid].now(size) for pid, size in resident.items() if pid in private]
        known = [size for size in sizes if size is not None]
        return sum(resident.values()), sum(known) if len(known) == len(resident) else None


class _PrivateMemory(NamedTuple):
    """Private memory of a process, and its resident memory when that was read, in bytes."""

    private: int | None
    resident: int

    def now(self, resident: int) -> int | None:
        """The private memory at a later resident memory."""
        return None if self.private is None else self.private + max(resident - self.resident, 0)


def find_children(pid: int) -> list[int]:
    """All descendants of a process."""
    if pid == os.getpid() and _has_none():
        return []
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        # no Linux, or one without such lists: psutil looks at every process, which takes a millisecond
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    descendants = _children(pid)
    for child in descendants:  # the list grows during the loop
        descendants += _children(child)
    return descendants


def _has_none() -> bool:
    """Whether this process has no children: one call of the kernel, where their lists are a file for each thread."""
    if not hasattr(os, "waitid"):
        return False
    try:
        # those that have ended are left to the program
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _ANY_SIGNAL)
    except ChildProcessError:
        return True
    return False


def _children(pid: int) -> list[int]:
    """Children of all threads of a process; none if it has ended."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return children


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if it has ended."""
    try:
        if psutil.LINUX:  # ten times cheaper than psutil
            return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):
        return 0


def private_bytes(pid: int) -> int | None:
    """Memory that only this process has, after a fork what was written; 0 if it has ended, ``None`` if refused."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.NoSuchProcess:
        return 0
    except (psutil.Error, OSError, AttributeError):
        return None
