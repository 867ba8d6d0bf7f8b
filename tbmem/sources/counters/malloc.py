"""Bytes that malloc has handed out and holds from the system."""

from __future__ import annotations

import ctypes
import functools
import sys
import time
from collections.abc import Callable

from tbmem.model.sample import NOTHING, DeviceReading
from tbmem.sources.counters.malloc_counters import MallocCounters, find_counters

_SHARE_OF_TIME = 0.003
"""Share of the run's time that readings may take: malloc walks all its free chunks to count them. That takes 2 µs in a
young heap, 10 µs during a training run, when no chunk is in a cache, milliseconds in a heap with a hundred
thousand holes."""
_SHARE_OF_A_STEP, _EARLY_SHARE = 250e-6, 0.02
"""Seconds per step, or share of the time, that readings may take instead at the beginning, where a reading of every
step counts: one takes 0.1 to 0.2 ms inside Lightning or the Hugging Face Trainer, and a spike of one step would else
fall between two readings ..."""
_CREDIT, _READINGS = 0.02, 1000
"""... until they have taken so many seconds in all, or are so many: what comes with one costs more than itself ..."""
_DEAR_CREDIT, _ON_CREDIT, _NOT_DEAR = 0.24, 120, 10e-3
"""... or so many, while there are no more than so many readings of at most so many seconds: after these a leak has
shown, also on a slow machine, and where a graph that is kept makes a reading take milliseconds, the last one is a dozen
steps old in a run of some hundred, not a hundred."""
INTERVAL = 0.02
"""Seconds between two readings after that, however cheap they are, as between two of the resident peak: a sample of
both takes 0.1 to 0.15 ms during a training run, which is 2 % of a step of 6 ms."""
_SHORT_SHARE, _SHORT_CREDIT = 0.01, 0.1
"""Share of the time after that, until readings that are not dear have taken so many seconds in all: in a run of some
seconds whose leak begins in the middle, half a dozen readings of 0.5 ms would else be all that shows it."""
_NOT_DEAR_MEANWHILE = 3e-3
"""Seconds that a reading at the end of a step may take for another thread to make some within one. Those take a tenth
of it where they follow each other closely, as the counters are in the caches; ``LookSchedule`` limits their number."""
_UNLIMITED = sys.maxsize

_NO_MORE = NOTHING[2:]
_new_reading = tuple.__new__
"""Makes a named tuple from a plain one in half the time that its own constructor takes."""


class MallocHeap:
    """Reads malloc's counters (``None`` where it has none), less often where a reading is expensive.

    Args:
        counters: What malloc has handed out and holds.
        clock: Seconds that pass.
        worked: Seconds of a processor that this thread has used.
        interval: Seconds between two readings after the first ones, at least.
    """

    def __init__(
        self,
        counters: MallocCounters | None,
        clock: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] = time.thread_time,
        *,
        interval: float = INTERVAL,
    ) -> None:
        self._counters = counters
        self._interval = interval
        # what a reading takes is processor time: a machine that is busy with something else does not make it dearer
        self._clock, self._worked = clock, worked
        self._not_before = self._spent = 0.0
        self._skips_left = self._readings = 0
        self._allocated: int | None = None
        self._last_costs = (0.0, 0.0)
        self.rest = 0.0  # seconds after the last reading for which no other is due; 0 where each step may have one

    @classmethod
    def of_this_process(cls, interval: float = INTERVAL, *, rationed: bool = True) -> MallocHeap:
        """The heap of the running process, unusable where its malloc has no counters (mimalloc, musl)."""
        counters = find_counters()
        return cls(counters, interval=interval) if rationed else cls(counters, lambda: 0.0, lambda: 0.0)

    @property
    def usable(self) -> bool:
        """Whether malloc has counters."""
        return self._counters is not None

    def read(self) -> DeviceReading:
        """Bytes handed out and held, on glibc ``uordblks + hblkhd`` and ``arena + hblkhd`` of mallinfo2(3).

        Nothing where the figures do not exist, or the last reading was so expensive that the next one is not due yet.
        """
        clock = self._clock
        began = clock()
        if self._counters is None:
            return NOTHING
        if began < self._not_before and self._skips_left > 0:
            self._skips_left -= 1
            return NOTHING
        worked = self._worked()
        figures = self._counters()
        cost = self._worked() - worked
        # one or two slow readings may be caused by the machine, three in a row by the heap
        before, earlier = self._last_costs
        lower = min(cost, before, earlier)
        self._last_costs = cost, before
        self._allocated = figures[0]
        self._spent += lower
        self._readings += 1
        if self._has_credit(lower):
            self._skips_left, pause = int(lower / _SHARE_OF_A_STEP), lower / _EARLY_SHARE
        else:
            is_short = self._spent < _SHORT_CREDIT and lower <= _NOT_DEAR
            pause = lower / (_SHORT_SHARE if is_short else _SHARE_OF_TIME)
            self._skips_left, self.rest = _UNLIMITED, max(pause, self._interval)
        self._not_before = began + max(pause, self.rest)
        return _new_reading(DeviceReading, (*figures, *_NO_MORE))

    def _has_credit(self, cost: float) -> bool:
        """Whether readings of such a cost may still come as often as at the beginning."""
        if self._spent < _CREDIT:
            return self._readings < _READINGS
        return self._readings < _ON_CREDIT and self._spent < _DEAR_CREDIT and cost <= _NOT_DEAR

    def meanwhile(self) -> tuple[int, int] | None:
        """Bytes handed out now and at the last reading, for another thread.

        ``None`` where a reading is dear: malloc locks its heap meanwhile, and the program would wait.
        """
        before = self._allocated
        if self._counters is None or before is None or min(self._last_costs) > _NOT_DEAR_MEANWHILE:
            return None
        return self._counters()[0], before


@functools.cache
def find_trim() -> Callable[[int], int] | None:
    """The function ``malloc_trim`` of glibc, where there is one."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    return trim
