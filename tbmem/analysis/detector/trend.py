"""Floors that climbed go in; a Rise, which is followed from then on, comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tbmem.analysis.detector.floors import LowWaterMark

_FLAT = 0.02
"""Share of the growth by which a floor may lie above the first one and still be before the rise."""
_OUTGROWN = 2.0
"""Factor by which explained growth must have gone on, in bytes and in steps, to be suspected again."""
_PACE = 0.5
"""Share of its former pace at which growth that nobody could explain must have gone on to be suspected again."""
_LATE = 1.05
"""The same for growth of which it is known when it will end, in steps."""


class TrendState(Enum):
    """What is made of a rise."""

    SUSPECTED = "suspected"
    """Nobody has looked yet."""
    OPEN = "open"
    """Somebody has looked and could not tell."""
    EXPLAINED = "explained"
    """It is the workload's own doing."""
    LEAK = "leak"


@dataclass(slots=True)
class Trend:
    """A stretch of steps in which the floor of the memory rose again and again, and may go on rising."""

    first: LowWaterMark
    """The last one before it began."""
    last: LowWaterMark
    """The one at which it last went on."""
    scale: int
    """Scale of the blocks whose floors climbed, and on which it is followed."""
    blocks: int
    """How many of them."""
    state: TrendState = TrendState.SUSPECTED
    reported: float = 0.0
    """Growth in bytes when it was last reported."""
    lasting: bool = False
    """It stays a leak even when it does not go on."""
    outgrown_at: tuple[float, float] = (0.0, 0.0)
    """Level in bytes and step from which on it is explained no more."""
    left_at: tuple[float, int] = (0.0, 0)
    """Level in bytes and judged step when somebody looked and could not tell."""

    @classmethod
    def over(cls, marks: Sequence[LowWaterMark], scale: int) -> Trend:
        """The rise that these floors show."""
        growth = marks[-1].level - marks[0].level
        first = marks[0]
        for mark in marks:
            if mark.level - marks[0].level > _FLAT * growth:
                break
            first = mark
        return cls(first, marks[-1], scale, len(marks))

    @property
    def first_step(self) -> int:
        """Where it began."""
        return self.first.step

    @property
    def last_step(self) -> int:
        """When it last went on."""
        return self.last.step

    @property
    def last_tick(self) -> int:
        """Judged steps when it last went on."""
        return self.last.tick

    @property
    def base(self) -> float:
        """Level before it began, in bytes."""
        return self.first.level

    @property
    def level(self) -> float:
        """Level when it last went on, in bytes."""
        return self.last.level

    @property
    def growth(self) -> float:
        """Growth in bytes."""
        return self.level - self.base

    @property
    def ticks(self) -> int:
        """Judged steps that it has lasted."""
        return self.last_tick - self.first.tick

    def join(self, other: Trend) -> None:
        """Take in that the same growth was seen over more steps."""
        if other.base < self.base and other.first_step < self.first_step:
            self.first = other.first
        if other.level > self.level:
            self.last = other.last
        self.scale, self.blocks = other.scale, other.blocks

    def explain(self, ends_at: int | None) -> None:
        """It is the workload's own doing until it goes on far beyond what explains it.

        Args:
            ends_at: Step at which it must end, if that is known.
        """
        self.state = TrendState.EXPLAINED
        lasted = self.last_step - self.first_step
        if ends_at is None:
            self.outgrown_at = (self.base + _OUTGROWN * self.growth, self.first_step + _OUTGROWN * lasted)
        else:
            self.outgrown_at = (self.level, self.first_step + _LATE * max(ends_at - self.first_step, lasted))

    def leave_open(self) -> None:
        """Somebody has looked and could not tell."""
        if self.state is TrendState.SUSPECTED:
            self.state, self.left_at = TrendState.OPEN, (self.level, self.last_tick)

    @property
    def keeps_its_pace(self) -> bool:
        """Whether it has gone on since somebody looked as it did before; a ramp that ended wavers on at its height."""
        level, tick = self.left_at
        before = (level - self.base) / max(tick - self.first.tick, 1)
        return self.level - level >= _PACE * before * (self.last_tick - tick)

    @property
    def is_outgrown(self) -> bool:
        """Whether it has gone on beyond what explained it."""
        level, step = self.outgrown_at
        return self.level > level and self.last_step > step
