"""What a piece of work that can be repeated keeps each time, and the lines that were seen to feed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tbmem.model.oom import OomHolder
from tbmem.runtime.cell_meter import CellMeter
from tbmem.runtime.process.guard import Guard
from tbmem.sources.retainers.reachability import Namespaces
from tbmem.sources.retainers.search import LOOKS, RetainerSearch

REPETITIONS = LOOKS + 1
"""Observations that show what grows, and a repetition in which lines are traced."""


def kept_by(repeat: Callable[[], bool], named: Namespaces) -> tuple[OomHolder, ...]:
    """What holds more after ``REPETITIONS`` than before, in bytes in all, the most first.

    Lines are those during which it grew; where nothing can be traced (a debugger, a coverage tool), those that read as
    if they fed it.

    Args:
        repeat: Does the work once more; returns whether it could, without raising. Else no lines are traced.
        named: What has a name beside the program's variables, by the path of the file in which it has it.
    """
    guard = Guard()
    cell, search = CellMeter(guard, named), RetainerSearch(named)
    seen: dict[str, tuple[str, ...]] = {}

    def observe() -> None:
        for step in range(LOOKS):
            if not repeat():
                return
            search.look(step, None)
        search.trace(None)
        repeat()
        search.untrace()
        holders, _ = search.result(None)
        seen.update({holder.name: tuple(map(str, holder.lines)) for holder in holders})

    try:
        guard.run("what is kept", observe)
    finally:
        search.close()
    return tuple(replace(one, lines=seen.get(one.name) or one.lines) for one in cell.end().kept)
