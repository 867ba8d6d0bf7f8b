"""When to look at the memory of a running step: now and then, and often while the step is high or long."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

INTERVAL = 0.02
"""Seconds between two looks: as long as between two readings of the peak itself. A look takes 20 µs, and 0.1 to 0.3 ms
beside a training loop that uses the caches for itself."""
_SHARE = 0.002
"""Share of a processor that looks may take: where they are dearer than 40 µs they are further apart."""
_SMOOTH = 0.1  # weight of the last one in the mean cost of one
PAUSE = 0.25
"""Seconds between two times at which the thread wakes while a profiler window is open, whose trace would show its
calls."""
_DENSE, _PART = 0.001, 0.02
"""Seconds between two looks at a step that is high or long, which tell how much it allocates, or the part of what the
step has lasted so far: an evaluation of seconds is hardly looked at more often than anything else."""
_CREDIT, _DENSE_SHARE = 0.2, 0.001
"""Seconds of a processor that these may take, and the share that they may take beyond."""
_LONG = 1.5
"""Times as long as steps usually take, from which on a step is long: one that needs more memory mostly takes longer,
and may be over before an ordinary look at it is due."""
_MEASURED, _MEASURED_STEPS = 0.05, 8  # seconds, or steps, over which the duration of steps is measured at least
SAMPLES, _SOON, _LATER = 8, 0.05, 5.0
"""Steps that are looked at from their beginning to their end, whatever they need, which tells what is usual; seconds
between two of them, and between two more after these."""
_AT_ONCE = 1e-9  # limit of a step that is looked at from its beginning on
_START_SECONDS, _START_SHARE, _MOST_TOGETHER = 25e-6, 0.002, 8
"""Seconds that it takes to start the timer in a training step, whose data fills the caches, and the share of the time
that this may take in a long run: of shorter steps some are timed together, but no more than so many ..."""
_TIMED_STEPS = 1000
"""... after so many that were timed one by one, as a run of some hundred steps may show each pattern only once."""
FEWEST, _USUAL = 4, 64
"""Steps that tell at least, and at most, what is usual."""
HALF, MOST = 0.5, 0.9
"""Shares of the steps that are no higher than one whose lines are noted, and than one that is looked at more often:
evaluations, which last longer than training steps, may be more than a tenth of the steps that a look falls into."""


class LastNumbers:
    """Heights or durations of the last steps, in order."""

    def __init__(self) -> None:
        self._last: deque[float] = deque()
        self._ordered: list[float] = []

    def add(self, number: float) -> None:
        """Add one; the oldest of more than 64 is forgotten."""
        self._last.append(number)
        insort(self._ordered, number)
        if len(self._last) > _USUAL:
            del self._ordered[bisect_left(self._ordered, self._last.popleft())]

    def __len__(self) -> int:
        return len(self._ordered)

    def that(self, share: float, without: float | None = None) -> float:
        """The number that such a share of them does not exceed, ``without`` one of them if given; 0 without any."""
        ordered = self._ordered
        if without in ordered:
            ordered = list(ordered)
            ordered.remove(without)
        return ordered[int(share * len(ordered))] if ordered else 0


class _Pace:
    """How long steps take, as seen from outside."""

    def __init__(self) -> None:
        self._durations = LastNumbers()
        self.step, self._began = 0, 0.0
        self._since = (0, 0.0)  # step and time since when the duration is measured

    def lasted(self, step: int, now: float) -> float:
        """Seconds for which the running step has been seen."""
        if step != self.step:
            first, began = self._since
            is_measured = now - began >= _MEASURED or step - first >= _MEASURED_STEPS
            if first and is_measured:
                self._durations.add((now - began) / (step - first))
            if not first or is_measured:
                self._since = step, now
            self.step, self._began = step, now
        return now - self._began

    @property
    def usual(self) -> float | None:
        """Seconds that half of the steps take at most; ``None`` before that is known."""
        return self._durations.that(HALF) if len(self._durations) >= FEWEST else None


class LookSchedule:
    """Says when to look, and whether quickly.

    Args:
        clock: Seconds that pass.
        worked: Seconds of a processor that the thread has used which looks, and which makes this object.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._worked = clock, worked
        self._pace = _Pace()
        self._began, self._used = clock(), worked()
        self._cost = self._spent_densely = 0.0
        self._noted = 0  # the last step that was high or long
        self._first = 0  # the first step that was looked at
        self._sampled, self._samples, self._next_sample = 0, 0, 0.0
        self.is_dense = False
        """Whether looks follow each other closely, so that each is to be cheap."""
        self.wait = INTERVAL
        """Seconds until the next look, if no step takes long meanwhile."""

    @property
    def limit(self) -> float | None:
        """Seconds after which a step that begins is looked at often; ``None``: not before an ordinary look at it.

        It is the time of ``steps_together``, of which one has taken long.
        """
        if not self._has_credit():
            return None
        if self._is_sample_due():
            return _AT_ONCE
        usual = self._pace.usual
        return None if usual is None else (self.steps_together - 1 + _LONG) * usual

    @property
    def steps_together(self) -> int:
        """Steps for all of which the timer is started once, when the first of them begins."""
        usual = self._pace.usual
        is_early = self._pace.step - self._first < _TIMED_STEPS
        if not usual or is_early or self._is_sample_due():
            return 1
        return min(math.ceil(_START_SECONDS / (_START_SHARE * usual)), _MOST_TOGETHER)

    def begin_look(self, step: int, limit: float | None) -> None:
        """A look at a step follows, which has passed the ``limit`` that was set if one is given."""
        now = self._clock()
        self._first = self._first or step
        if limit is not None:
            self._noted = step
        if limit == _AT_ONCE and step != self._pace.step:
            self._sampled, self._samples = step, self._samples + 1
            self._next_sample = now + (_SOON if self._samples < SAMPLES else _LATER)
        lasted, usual = self._pace.lasted(step, now), self._pace.usual
        is_noted = step == self._noted or (usual is not None and lasted > _LONG * usual)
        self.is_dense = is_noted and self._has_credit()
        self.wait = max(_DENSE, _PART * lasted)

    def is_whole(self, step: int) -> bool:
        """Whether a step is looked at from its beginning to its end."""
        return step == self._sampled

    def end_look(self, step: int, *, is_high: bool) -> None:
        """The look has shown that the step is higher than steps usually are, or not."""
        before, self._used = self._used, self._worked()
        cost = self._used - before
        if self.is_dense:
            self._spent_densely += cost
        else:
            self._cost += _SMOOTH * (cost - self._cost)
        if is_high:
            self._noted = step
        if not (is_high or self.is_dense) or not self._has_credit():
            self.wait = max(INTERVAL, self._cost / _SHARE)

    def _is_sample_due(self) -> bool:
        return self._clock() >= self._next_sample

    def _has_credit(self) -> bool:
        return self._spent_densely < _CREDIT + _DENSE_SHARE * (self._clock() - self._began)
