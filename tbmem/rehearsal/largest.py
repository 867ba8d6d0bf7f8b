"""Finds the largest value of one argument of a program with which it fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tbmem.errors import UsageError
from tbmem.model.rehearsal import Largest, Rehearsal, Trial

_PLACE = "{}"
_FACTOR = 4
"""From a value to the next while memory has not grown."""
_MARGIN = 0.98
"""Of a predicted value: peaks grow in steps of the allocator's segments."""


class Range(NamedTuple):
    """An argument and the values to try: ``batch_size=1..256``."""

    name: str
    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Range:
        """Read ``NAME=LOW..HIGH``; UsageError if it is something else."""
        match = re.fullmatch(r"([\w.-]+)=(\d+)\.\.(\d+)", text)
        if match is None or int(match[2]) > int(match[3]) or int(match[2]) < 1:
            raise UsageError(f"--largest {text}: write an argument and its range, such as batch_size=1..256")
        return cls(match[1], int(match[2]), int(match[3]))


def substituted(words: Sequence[str], name: str, value: int) -> list[str]:
    """The words with the argument's value.

    In place of ``{}``; else of the value of ``--name``, ``--name=``, ``name=`` or ``-name``, where ``_`` and ``-`` are
    the same; else added as ``--name value``.
    """
    if any(_PLACE in word for word in words):
        return [word.replace(_PLACE, str(value)) for word in words]
    option = re.compile(rf"(-{{0,2}}{re.sub('[-_]', '[-_]', name)})(=.*)?")
    result = list(words)
    for position, word in enumerate(words):
        match = option.fullmatch(word)
        if match is None or position == 0:
            continue
        if match[2] is not None:
            result[position] = f"{match[1]}={value}"
            return result
        if position + 1 < len(words) and word.startswith("-"):
            result[position + 1] = str(value)
            return result
    raise UsageError(
        f"--largest {name}: the program's arguments do not name it; write --{name} {_PLACE} where its value belongs"
    )


def find_largest(words: Sequence[str], wanted: Range, rehearse: Callable[[list[str]], Rehearsal]) -> Iterator[Largest]:
    """Search; yields after each trial, the last time with the answer.

    Two values that fit predict the next one, since most memory grows in a straight line; what is predicted is tried.

    Raises:
        UsageError: The program's arguments do not name the argument, or it fails by itself.
    """
    trials: dict[int, Trial] = {}
    results: dict[int, Rehearsal] = {}
    best, above = 0, wanted.high + 1  # the largest that fits, the smallest that does not
    value = wanted.low
    while best + 1 < above:
        result = rehearse(substituted(words, wanted.name, value))
        device = result.worst[1]
        room = device.capacity - device.outside
        trials[value] = Trial(value=value, fits=result.fits, reserved=device.reserved, room=room)
        if result.fits:
            best, results[value] = value, result
        else:
            above = value
            if value == wanted.low:
                break
        if best + 1 < above:
            value = _next(trials, best, above)
        yield _state(wanted, trials, results, best)


def _state(wanted: Range, trials: dict[int, Trial], results: dict[int, Rehearsal], best: int) -> Largest:
    return Largest(
        name=wanted.name,
        value=best or None,
        is_bounded=best + 1 in trials or best < wanted.high,
        trials=tuple(trials.values()),
        result=results.get(best),
    )


def _next(trials: dict[int, Trial], best: int, above: int) -> int:
    """The value to try between the largest that fits and the smallest that does not."""
    fitting = sorted((trial for trial in trials.values() if trial.fits), key=lambda trial: trial.value)
    one, other = fitting[0], fitting[-1]
    growth = (other.reserved - one.reserved) / max(other.value - one.value, 1)
    if growth <= 0:
        return (best + above) // 2 if above in trials else min(_FACTOR * best, above - 1)
    predicted = best + int(_MARGIN * (other.room - other.reserved) / growth)
    if best < predicted < above:
        return predicted
    # where the prediction is known to be wrong, half the way; next to the largest, the one above it
    return best + 1 if predicted <= best else (best + above) // 2
