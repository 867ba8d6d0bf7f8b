"""Places in the program whose allocations survive their step, from births and frees step by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tbmem.model.evidence import CodeLine, Site

MOST_SITES = 32
"""More are of no use to anybody."""

_ENOUGH_STEPS = 4
"""Sizes of fewer steps rise by chance."""
_SMALLEST_SHARE = 1e-3
"""An allocation below this share of its step's bytes tells nothing about sizes."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """What is known of a line on which Python calls an operator (``a * b``) and nobody is told the line.

    Args:
        operator: The operator that ran, ``aten::mul``.
        inside: Some line of the function.
        before: Line of the call before it in the same run of the function; 0 where there is none.
        after: Line of the call after it; 0 where there is none. In a loop it may stand above ``before``.
        nth: How many such operators ran between the call before and this one.
    """

    operator: str
    inside: int
    before: int = 0
    after: int = 0
    nth: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One of the user's functions on the stack.

    Args:
        file: Full path.
        line: Line that it had come to; 0 where only ``call`` can tell.
        function: Its plain name.
        call: What is known where the line is not.
    """

    file: str
    line: int
    function: str
    call: OperatorCall | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the program something is allocated.

    Args:
        frames: The user's functions, innermost first.
        operator: The operator that allocates.
        in_backward: Whether autograd runs it.
    """

    frames: tuple[Frame, ...] = ()
    operator: str = ""
    in_backward: bool = False


class Birth(NamedTuple):
    """Memory that was allocated in a step and outlived it."""

    size: int
    place: Place


class _Alive(NamedTuple):
    step: int
    birth: Birth


class Generations:
    """Who of each watched step is still alive."""

    def __init__(self) -> None:
        self.steps = 0
        """Watched steps so far."""
        self._alive: dict[int, _Alive] = {}
        self._outlived: defaultdict[Place, dict[int, int]] = defaultdict(dict)

    def step(self, births: Mapping[int, Birth]) -> None:
        """A watched step has ended."""
        for address, birth in births.items():
            self._alive[address] = _Alive(self.steps, birth)
            by_step = self._outlived[birth.place]
            by_step[self.steps] = by_step.get(self.steps, 0) + birth.size
        self.steps += 1

    def free(self, address: int) -> None:
        """Memory was freed, or its address given to something else; unknown addresses are older than the watch."""
        self._alive.pop(address, None)

    def sites(self, line_of: Callable[[Frame], CodeLine]) -> tuple[Site, ...]:
        """The places whose births survive, or become larger from step to step.

        Returns:
            Most generations first, then most bytes; at most ``MOST_SITES``.
        """
        survivors = self._survivors()
        growing = {place for place, by_step in self._outlived.items() if rises(self._series(by_step))}
        places = sorted({*survivors, *growing}, key=lambda place: _rank(survivors.get(place, {})))
        sites: dict[tuple[object, ...], _Found] = {}
        for place in places[: 4 * MOST_SITES]:
            stack = tuple(line_of(frame) for frame in place.frames)
            found = sites.setdefault((stack, place.operator, place.in_backward), _Found(stack, place))
            found.growing |= place in growing
            for step, size in survivors.get(place, {}).items():
                found.survived[step] = found.survived.get(step, 0) + size
        ranked = sorted(sites.values(), key=lambda found: _rank(found.survived))
        return tuple(found.site(max(self.steps - 1, 0)) for found in ranked[:MOST_SITES])

    def largest_growing(self) -> list[int]:
        """Bytes per step of the place that grows most among those whose births outlive their step; else zeros."""
        series = [self._series(by_step) for by_step in self._outlived.values()]
        return max((one for one in series if rises(one)), key=lambda one: one[-1] - one[0], default=[0] * self.steps)

    def outliving(self) -> list[list[int]]:
        """Bytes per step of each place of which something outlives every step."""
        return [self._series(by_step) for by_step in self._outlived.values() if len(by_step) == self.steps]

    def _survivors(self) -> dict[Place, dict[int, int]]:
        """Surviving bytes by place and step of birth; what was born last has had no time to die."""
        found: defaultdict[Place, dict[int, int]] = defaultdict(dict)
        for step, (size, place) in self._alive.values():
            if step < self.steps - 1:
                found[place][step] = found[place].get(step, 0) + size
        return dict(found)

    def _series(self, by_step: Mapping[int, int]) -> list[int]:
        return [by_step.get(step, 0) for step in range(self.steps)]


@dataclass(slots=True)
class _Found:
    stack: tuple[CodeLine, ...]
    place: Place
    growing: bool = False
    survived: dict[int, int] = field(default_factory=dict)

    def site(self, steps: int) -> Site:
        return Site(
            stack=self.stack,
            operator=self.place.operator,
            in_backward=self.place.in_backward,
            generations=len(self.survived),
            steps=steps,
            bytes_per_step=sum(self.survived.values()) / max(steps, 1),
            growing=self.growing,
        )


def _rank(survived: Mapping[int, int]) -> tuple[int, int]:
    return -len(survived), -sum(survived.values())


class Sizes:
    """How large was what each watched step allocated and freed again."""

    def __init__(self) -> None:
        self._smallest = 0.0
        self._steps: list[list[int]] = []

    def step(self, sizes: Iterable[int]) -> None:
        """A watched step has ended."""
        found = list(sizes)
        if not self._steps:
            self._smallest = sum(found) * _SMALLEST_SHARE
        self._steps.append(sorted((size for size in found if size >= self._smallest), reverse=True))

    def grow(self, outliving: Sequence[Sequence[int]] = ()) -> float:
        """Share, by bytes, of the recurring allocations that got larger from step to step.

        The largest of a step is compared with the largest of the next, the second with the second, and so on; of what
        outlives its step, each place with itself. Under a curriculum all of them rise. The one that rises most is left
        out if there are others: a tensor that grows for ever (``torch.cat``), or is read as a whole in each step, is
        no curriculum, however large.

        Returns:
            0 to 1.
        """
        series = [*zip(*self._steps, strict=False), *outliving]  # as many ranks as the step with the fewest has
        rising = [one for one in series if rises(one)]
        if not rising:
            return 0.0
        most = max(rising, key=lambda one: one[-1] - one[0])
        rest = sum(map(sum, series)) - sum(most)
        return (sum(map(sum, rising)) - sum(most)) / rest if rest else 1.0


def rises(series: Sequence[int]) -> bool:
    """Whether a series never falls and rises at every second step or more often."""
    pairs = list(zip(series, series[1:], strict=False))
    if len(series) < _ENOUGH_STEPS or any(after < before for before, after in pairs):
        return False
    return 2 * sum(after > before for before, after in pairs) >= len(pairs)
