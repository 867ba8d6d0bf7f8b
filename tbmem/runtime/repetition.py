"""What a piece of work that can be repeated keeps each time, and the lines that were seen to feed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from tbmem.model.evidence import Holder
from tbmem.model.oom import OomHolder
from tbmem.runtime.cell_meter import CellMeter
from tbmem.runtime.meter import MemoryMeter
from tbmem.runtime.process.guard import Guard
from tbmem.sources.retainers.reachability import Namespaces
from tbmem.sources.retainers.search import LOOKS, RetainerSearch

REPETITIONS = LOOKS + 1
"""Observations that show what grows, and a repetition in which lines are traced."""
_LOOKED_AT = range(2, 2 + 2 * LOOKS, 2)
_TRACED = _LOOKED_AT[-1]
"""Step after which lines are traced, until the next one: a test has at least eight."""


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


def kept_in_steps(run: Callable[[], bool], meter: MemoryMeter, named: Namespaces) -> tuple[Holder, ...]:
    """What grows in the steps of work that has a loop of its own, with the lines that feed it, the most first.

    Args:
        run: Does the work once more, which calls ``meter.step()``.
        meter: The work's.
        named: What has a name beside the program's variables, by the path of the file in which it has it.
    """
    guard, search = Guard(), RetainerSearch(named)
    found: list[Holder] = []
    step = 0

    def observe(frame: FrameType) -> None:
        nonlocal step
        step += 1
        if step in _LOOKED_AT:
            search.look(step, frame)
        if step == _TRACED:
            search.trace(frame)
        elif step == _TRACED + 1:
            search.untrace(frame)
            found.extend(search.result(frame)[0])

    meter.observer = lambda frame: guard.run("what is kept", observe, frame)
    try:
        run()
    finally:
        meter.observer = None
        search.close()
    return tuple(found)
