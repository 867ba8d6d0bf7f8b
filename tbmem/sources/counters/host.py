"""Memory of this process and its workers, the memory left on the host, and peak counters shared by several readers."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable

import psutil

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

from tbmem.model.oom import Limit
from tbmem.sources.counters.child_processes import PAGE, Children
from tbmem.sources.counters.malloc import INTERVAL
from tbmem.sources.counters.memory_limits import host_limits
from tbmem.sources.counters.own_memory import OwnMemory, own_memory

Peaks = tuple[int, ...]
"""One or more peaks that are reset together, in bytes."""


class SharedPeak:
    """One resetting counter, shared by all monitors of a process: each would else miss what came before a reset."""

    def __init__(self, reset: Callable[[], object]) -> None:
        self._reset = reset
        self._missed: dict[object, Peaks] = {}

    def join(self, reader: object) -> SharedPeak:
        """Add a reader."""
        self._missed[reader] = ()
        return self

    def leave(self, reader: object) -> None:
        """Remove a reader."""
        self._missed.pop(reader, None)

    def take(self, reader: object, reached: Peaks, *, reset: bool = True) -> Peaks:
        """The peaks since this reader's last call; the counter starts anew (``reset``) unless it is at its level."""
        if len(self._missed) == 1 and not self._missed[reader]:
            if reset:
                self._reset()
            return reached
        for other, missed in self._missed.items():
            self._missed[other] = _larger(reached, missed)
        reached, self._missed[reader] = _larger(reached, self._missed[reader]), ()
        if reset:
            self._reset()
        return reached


def _larger(left: Peaks, right: Peaks) -> Peaks:
    return tuple(map(max, left, right)) if right else left


_RESET_PEAK = b"5"  # written to ``/proc/self/clear_refs``, resets the peak resident size, proc_pid_clear_refs(5)
_SELF = resource.RUSAGE_SELF if resource is not None else 0
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in which the system counts its peak, getrusage(2)
_PEAKS_ON_CREDIT = 500
"""Readings that may come sooner than ``HostMemory.interval`` after the last: the first few hundred steps have their own
peaks, however short they are. Each is a call or two of the kernel: 6 µs on warm caches, 20 to 60 in a training run on a
virtual machine."""
_FLOOR_MARGIN = 4 << 20


class HostMemory:
    """The host's part of a sample in bytes: cheap figures at every step, expensive ones when they are refreshed.

    ``resident`` and ``private`` (without file and shared pages, though a child may still have the same ones) are those
    of the last ``read``; ``limit`` (the nearest of the machine's end, the control group's and the process's own),
    ``total`` (what may be resident: a limit of addresses leaves less) and ``available`` of the last ``refresh``;
    ``workers_*`` of the last ``refresh_workers``. ``heap`` is what malloc has handed out, where a caller has read it.
    ``interval``: seconds between two readings in a long loop of shorter steps.
    """

    def __init__(
        self,
        *,
        reset_peaks: bool = True,
        workers: bool = True,
        interval: float = INTERVAL,
        own: OwnMemory = own_memory,
    ) -> None:
        self._own = own
        self.interval = interval
        self._process = psutil.Process()
        self._children = Children() if workers else None
        self.resident = self._run_peak = 0
        self.private: int | None = None
        self._rss_read_at = self.read_at = self.read_again_at = -math.inf
        self._on_credit = _PEAKS_ON_CREDIT
        self._statm = _open("/proc/self/statm", os.O_RDONLY)
        peak = _shared_peak(os.getpid()) if reset_peaks else None
        self._peak = peak.join(self) if peak is not None else None
        self._read_peak = _peak_source(os.getpid()) if peak is not None else _peak_of_the_process
        self._usage = resource.getrusage if self._read_peak is _peak_from_rusage and resource is not None else None
        self.peak_rss()  # discards the peak before
        self.workers_rss: int | None = None
        self.workers_private: int | None = None
        self.heap: int | None = None
        self.refresh()
        self.refresh_workers()

    def rss(self) -> int:
        """Resident memory of this process in bytes."""
        resident, self.private = self._resident_and_private()
        return resident

    def rss_meanwhile(self) -> int:
        """The same for another thread, between two readings of the training's own, which it leaves as they are."""
        return self._resident_and_private()[0]

    def _resident_and_private(self) -> tuple[int, int | None]:
        if self._statm is None:
            return int(self._process.memory_info().rss), None
        _, resident, shared, *_ = os.pread(self._statm, 128, 0).split()
        return int(resident) * PAGE, (int(resident) - int(shared)) * PAGE

    def read(self, now: float) -> int | None:
        """Update ``resident`` and ``private``; returns the peak since the last reading, ``None`` if unknown.

        In a long loop of very short steps the resident size is read every ``interval`` of Unix time ``now``, the peak
        when ``read_again_at`` has come: the kernel keeps it meanwhile, so none is lost.
        """
        interval = self.interval
        if 0 <= now - self.read_at < interval and self._on_credit:
            self._on_credit -= 1
        self.read_at, self.read_again_at = now, -math.inf if self._on_credit else now + interval
        fresh = not 0 <= now - self._rss_read_at < interval
        if fresh:
            self.resident, self._rss_read_at = self.rss(), now
        # inlined: in loops of very short steps every call counts
        usage = self._usage
        reached = usage(_SELF).ru_maxrss * _MAXRSS_UNIT if usage is not None else self._read_peak()
        if self._peak is None:
            # never reset, it is this step's peak only where it has risen
            before, self._run_peak = self._run_peak, max(reached, self._run_peak)
            return reached if reached > before else None
        # no reset is needed where the level equals the peak, unless it has fallen in the last few milliseconds
        peak = self._peak.take(self, (reached,), reset=reached > self.resident)[0]
        if peak < self.resident:
            # the kernel keeps separate counters, and the peak may lag by some pages
            if fresh:
                return self.resident
            self.resident = peak
        return peak

    def counters(self, peak: int | None) -> tuple[int | None, ...]:
        """The last fields of ``MemorySample``, from ``host_rss`` on, with the ``peak`` that ``read`` returned."""
        workers, private = self.workers_rss, self.workers_private
        return self.resident, peak, self.available, workers, self.private, private, self.heap, self._own.bytes

    def peak_rss(self) -> int | None:
        """Largest resident memory since the last reading in bytes; ``None`` where it is unknown."""
        self._rss_read_at = -math.inf
        peak = self.read(0.0)
        self.read_again_at = self._rss_read_at = -math.inf
        return peak

    def refresh(self) -> None:
        """Read the total and available memory, which takes a fraction of a millisecond."""
        limits = host_limits()
        self.limit: Limit = limits[0]
        totals = (self.rss_meanwhile() + each.free if each.counts_addresses else each.total for each in limits)
        self.total, self.available = min(totals), self.limit.free

    def refresh_workers(self) -> None:
        """Read the memory of all child processes, which may take some milliseconds."""
        if self._children is not None:
            self.workers_rss, self.workers_private = self._children.read()

    def close(self) -> None:
        """Close the file descriptors."""
        # forgotten first: if an exception of the program came in between, a second call would close a file of its own
        statm, self._statm = self._statm, None
        if statm is not None:
            os.close(statm)
        if self._peak is not None:
            self._peak.leave(self)
            self._peak = None


def _open(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None


@functools.cache
def _shared_peak(pid: int) -> SharedPeak | None:
    """The peak counter of process ``pid``; ``None`` where it cannot be reset.

    Each process has its own: a descriptor kept over a fork would reset the parent's counter.
    """
    descriptor = _open(f"/proc/{pid}/clear_refs", os.O_WRONLY)
    if descriptor is None:
        return None
    try:
        os.write(descriptor, _RESET_PEAK)
        _peak_from_status()
    except (OSError, ValueError):
        os.close(descriptor)
        return None
    return SharedPeak(functools.partial(os.pwrite, descriptor, _RESET_PEAK, 0))


@functools.cache
def _peak_source(pid: int) -> Callable[[], int]:
    """The cheapest source of the peak that is correct in process ``pid``."""
    floor = _peak_from_rusage()
    return _peak_from_rusage if floor <= psutil.Process(pid).memory_info().rss + _FLOOR_MARGIN else _peak_from_status


def _peak_from_rusage() -> int:
    """Ten times cheaper than the status file, but never below the peak of the process that started this one."""
    return resource.getrusage(_SELF).ru_maxrss * _MAXRSS_UNIT


def _peak_of_the_process() -> int:
    """The peak since the process began, 0 where it is unknown."""
    return _peak_from_rusage() if resource is not None else 0


def _peak_from_status() -> int:
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    raise ValueError("/proc/self/status has no VmHWM")
