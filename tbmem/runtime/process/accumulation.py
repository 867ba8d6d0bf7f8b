"""Recognizes training loops that call ``step()`` for each micro-batch instead of each optimizer step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from tbmem.model.sample import MemorySample

_CYCLES, _ALIKE = 6, 4
"""Of so many successive optimizer steps this many have as many calls between them; an epoch's rest may differ."""
_ENOUGH = 64
"""Optimizer steps after which a loop without accumulation is no longer observed."""


class AccumulationNotice:
    """Counts the samples between two optimizer steps, until they tell how ``step()`` is called.

    Samples of several devices count once. A loop in which no optimizer is known to step is not judged.
    """

    def __init__(self) -> None:
        self.is_done = False
        """Whether nothing more will be said."""
        self._device = ""
        self._calls = 0
        self._cycles = 0
        self._lengths: deque[int] = deque(maxlen=_CYCLES)

    def add(self, samples: Iterable[MemorySample]) -> str | None:
        """Add samples in order of steps; returns a sentence once, if ``step()`` is called for each micro-batch."""
        for sample in samples:
            self._device = self._device or sample.device
            if sample.updated is None or sample.device != self._device or self.is_done:
                continue
            self._calls += 1
            if sample.updated:
                self._close_cycle()
                calls = self._usual_calls()
                if calls > 1:
                    self.is_done = True
                    return _sentence(calls)
        return None

    def _close_cycle(self) -> None:
        # what precedes the first optimizer step may have begun before the monitor did
        if self._cycles:
            self._lengths.append(self._calls)
        self._calls = 0
        self._cycles += 1
        self.is_done = self._cycles > _ENOUGH

    def _usual_calls(self) -> int:
        if len(self._lengths) < _CYCLES:
            return 1
        ((calls, times),) = Counter(self._lengths).most_common(1)
        return calls if times >= _ALIKE else 1


def _sentence(calls: int) -> str:
    return (
        f"step() is called {calls} times per optimizer step, as for each micro-batch of gradient accumulation: step"
        " numbers, profiler windows and growth per step count these; call it once, after optimizer.step()"
    )
