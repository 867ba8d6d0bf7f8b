"""The peak of each step goes in; single steps far above the usual, and lasting changes of level, come out."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

WINDOW = 64
"""Steps that define what is usual."""
RETURN_WITHIN = 5
"""Steps after which a jump that has not come down again is the new level."""
_SIGMAS = 8.0
_MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation of a normal distribution."""
_RECORD = 1.03
"""A spike must pass the highest peak so far by 3 %: what comes again (validation, checkpoints) is reported once."""
_FEW = 8
"""With fewer steps than this to compare with, a jump must be ``_FEW_PERCENT`` high."""
_FEW_PERCENT = 25.0
_NEARLY = 0.5
"""Share of the smallest spike from which on median and deviation are worked out at once."""
_ORDER_EVERY = 8
"""Steps after which median and deviation are worked out anew; a window of 64 hardly changes in between."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A step, or a few, whose peak left the usual range."""

    first_step: int
    last_step: int
    peak: int
    """Highest level in bytes."""
    usual: int
    """Median of the steps before in bytes."""
    lasting: bool
    """Memory stayed there: a change of level, not a spike."""


class SpikeTest:
    """Tells spikes from changes of level, step by step.

    Args:
        spike_percent: Smallest height above the usual peak in per cent of it.
        min_spike: Smallest height in bytes.
    """

    def __init__(self, *, spike_percent: float, min_spike: int) -> None:
        self._share = spike_percent / 100
        self._min_spike = min_spike
        self._recent: deque[int] = deque(maxlen=WINDOW)
        self._since_ordered = 0
        self._usual: int | None = None
        self._threshold = self._worth_a_look = math.inf
        self._record = 0
        self._pending: list[tuple[int, int]] = []

    def update(self, step: int, peak: int) -> Jump | None:
        """Take in the peak of ``step``.

        Returns:
            A jump, once it is clear whether memory came down again.
        """
        if peak > self._worth_a_look:
            self._order()
        usual = self._usual
        high = usual is not None and peak > self._threshold
        if usual is not None and self._pending:
            if not high:
                jump = self._resolve(usual, lasting=False)
                self._learn(peak)
                return jump
            self._pending.append((step, peak))
            if len(self._pending) > RETURN_WITHIN:
                return self._resolve(usual, lasting=True)
        elif high and peak > self._record * _RECORD:
            self._pending.append((step, peak))
        else:
            self._learn(peak)
        return None

    def close(self) -> Jump | None:
        """The jump that was still open when the run ended: it was the last thing seen, so it is a spike."""
        usual = self._usual
        return self._resolve(usual, lasting=False) if self._pending and usual is not None else None

    def rebase(self) -> None:
        """Forget what was usual: something outside the training has changed the level."""
        self._recent.clear()
        self._usual = None
        self._threshold = self._worth_a_look = math.inf
        self._pending.clear()

    @property
    def pending(self) -> Jump | None:
        """A jump of which it is not yet known whether it will last."""
        usual = self._usual
        return self._jump(usual, lasting=False) if self._pending and usual is not None else None

    def _learn(self, peak: int) -> None:
        self._recent.append(peak)
        if peak > self._record:
            self._record = peak
        self._since_ordered += 1
        if self._since_ordered >= _ORDER_EVERY or len(self._recent) < 2 * _FEW:
            self._order()

    def _order(self) -> None:
        """Work out what is usual and what is high from the last steps."""
        self._since_ordered = 0
        ordered = sorted(self._recent)
        usual = self._usual = ordered[len(ordered) // 2]
        if len(ordered) < _FEW:
            height = _FEW_PERCENT / 100 * usual
        else:
            deviations = sorted(abs(value - usual) for value in ordered)
            height = _SIGMAS * _MAD_TO_SIGMA * deviations[len(deviations) // 2]
        lowest = usual + max(self._share * usual, self._min_spike)
        self._threshold = max(usual + height, lowest)
        self._worth_a_look = usual + _NEARLY * (lowest - usual)

    def _jump(self, usual: int, *, lasting: bool) -> Jump:
        steps = [step for step, _ in self._pending]
        return Jump(steps[0], steps[-1], max(peak for _, peak in self._pending), usual, lasting)

    def _resolve(self, usual: int, *, lasting: bool) -> Jump:
        jump = self._jump(usual, lasting=lasting)
        levels = [peak for _, peak in self._pending]
        self._pending.clear()
        self._record = max(self._record, jump.peak)
        if lasting:
            self.rebase()
            for level in levels:
                self._learn(level)
        return jump
