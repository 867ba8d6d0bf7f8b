"""Finds the largest value of one argument of a program with which it fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tbmem.errors import UsageError
from tbmem.model.rehearsal import Largest, Rehearsal, Trial

_PLACE = "{}"
_FACTOR = 4
"""From a value to the next while memory has not grown."""
_PREDICTIONS = 8
"""Trials after which the range is halved: memory does not grow in a straight line then."""
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
    the same; else with the option that the script's text names so.

    Raises:
        UsageError: There is none of them.
    """
    if any(_PLACE in word for word in words):
        return [word.replace(_PLACE, str(value)) for word in words]
    spelling = "[-_]".join(re.escape(part) for part in re.split("[-_]", name))
    option = re.compile(rf"(-{{0,2}}{spelling})(=.*)?")
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
    own = re.search(rf"""["'](--?{spelling})["']""", _script_of(words))
    if own is None:
        raise UsageError(
            f"--largest {name}: the program's arguments do not name it; write --{name} {_PLACE} where its value belongs"
        )
    return [*words, own[1], str(value)]


def _script_of(words: Sequence[str]) -> str:
    """The text of the first script that a command line names; empty if there is none."""
    path = next((Path(word) for word in words if word.endswith(".py")), None)
    return path.read_text(encoding="utf-8", errors="replace") if path is not None and path.is_file() else ""


def find_largest(words: Sequence[str], wanted: Range, rehearse: Callable[[list[str]], Rehearsal]) -> Iterator[Largest]:
    """Search; yields after each trial, the last time with the answer.

    Two values that fit predict the next one, since most memory grows in a straight line; what is predicted is tried.
    The answer is a value that fits, and the one above it does not or is out of the range.

    Raises:
        UsageError: The program's arguments do not name the argument, or it fails by itself.
    """
    trials: dict[int, Trial] = {}
    best, above = 0, wanted.high + 1  # the largest that fits, the smallest that does not
    value = wanted.low
    while best + 1 < above:
        result = rehearse(substituted(words, wanted.name, value))
        device = result.worst[1]
        trials[value] = Trial(value=value, fits=result.fits, reserved=device.reserved, room=device.room)
        if result.fits:
            best = value
        elif value == wanted.low:
            above = 1  # it is over
        else:
            above = value
        yield Largest(
            name=wanted.name, value=best or None, is_bounded=above in trials, trials=tuple(trials.values()), result=None
        )
        if best + 1 < above:
            value = _next(trials, best, above)


def _next(trials: dict[int, Trial], best: int, above: int) -> int:
    """The value to try between the largest that fits and the smallest that does not."""
    half = (best + above) // 2
    fitting = sorted((trial for trial in trials.values() if trial.fits), key=lambda trial: trial.value)
    one, other = fitting[0], fitting[-1]
    growth = (other.reserved - one.reserved) / max(other.value - one.value, 1)
    if len(trials) > _PREDICTIONS:
        return half
    if growth <= 0:
        return half if above in trials else min(_FACTOR * best, above - 1)
    predicted = best + int(_MARGIN * (other.room - other.reserved) / growth)
    if best < predicted < above:
        return predicted
    if above not in trials:
        return above - 1 if predicted >= above else best + 1
    # where the prediction is known to be wrong, half the way; next to the largest, the one above it
    return best + 1 if predicted <= best else half
