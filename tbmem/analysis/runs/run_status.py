"""Where a run stands: running, ended and how, or not to be known. Each screen reads it here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tbmem.units import format_duration

if TYPE_CHECKING:
    from tbmem.analysis.runs.run_report import RunState

_SILENT_SECONDS = 60.0
"""Time without a line after which a process that cannot be seen may have been killed."""
_NAMED = 8
"""Ranks that are named one by one."""


class Standing(str, Enum):
    """Where a run stands, those first that say most of a run of several ranks."""

    RUNNING = "running"
    STARTING = "starting"
    """No step has been logged yet."""
    UNKNOWN = "unknown"
    """Nothing was logged for a minute, and the process is not to be seen from here: on another machine, say."""
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    """Ended by an exception."""
    DIED = "died"
    """Its process is gone and left no end: it was killed, or crashed."""
    TERMINATED = "terminated"
    """Ended by a signal."""
    ENDED = "ended"
    """In order."""
    FILES = "files"
    """There is no log, only recordings."""

    @property
    def is_over(self) -> bool:
        """Whether nothing will be written any more."""
        return self not in (Standing.RUNNING, Standing.STARTING, Standing.UNKNOWN)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run, or one rank of it, stands."""

    standing: Standing
    text: str
    """For people: ``'ended by ValueError'``."""
    ended_by: str | None = None
    """The exception or the signal that ended it."""
    age: float | None = None
    """Seconds since the last line; ``None`` where none has a time."""
    ranks: tuple[str, ...] = ()
    """What is to be said of single ranks: ``'rank 1 died without an end: killed?'``."""

    @property
    def sentence(self) -> str:
        """All of it, its parts as in every line of tbmem: ``'running · rank 1 ended by ValueError'``."""
        return " · ".join((self.text, *self.ranks))

    def to_dict(self) -> dict[str, Any]:
        """What programs are told, in each answer under these names."""
        return {"status": self.standing.value, "status_text": self.sentence, "ended_by": self.ended_by}


def end_status(exception: str | None, out_of_memory: bool) -> RunStatus:
    """How a run ended that was there to say so."""
    if out_of_memory:
        by = f" ({exception})" if exception else ""
        return RunStatus(Standing.OUT_OF_MEMORY, f"ran out of memory{by}", exception)
    if exception:
        return RunStatus(Standing.FAILED, f"ended by {exception}", exception)
    return RunStatus(Standing.ENDED, "ended in order")


def rank_status(state: RunState, now: float) -> RunStatus:
    """Where one rank stands."""
    if state.end is not None:
        return end_status(state.end.get("exception"), state.end.get("out_of_memory") is True)
    if state.signal is not None:
        name = str(state.signal.get("name") or "a signal")
        return RunStatus(Standing.TERMINATED, f"ended by {name}", name)
    last = state.last_time if state.last_time is not None else state.header.get("started")
    age = max(now - last, 0.0) if isinstance(last, (int, float)) else None
    if state.is_alive is False:
        return RunStatus(Standing.DIED, "died without an end: killed?", age=age)
    is_silent = age is None or age > _SILENT_SECONDS
    nothing = "nothing was logged" if age is None else f"nothing for {format_duration(age)}"
    if is_silent and state.is_alive is None:
        return RunStatus(Standing.UNKNOWN, f"unknown: {nothing}", age=age)
    standing = Standing.RUNNING if state.has_begun else Standing.STARTING
    return RunStatus(standing, f"{standing.value}, {nothing}" if is_silent else standing.value, age=age)


def run_status(states: Sequence[RunState], now: float) -> RunStatus:
    """Where a run stands: as its ranks do, and where these differ as the one that says most."""
    if not states:
        return RunStatus(Standing.FILES, "recordings only")
    order = list(Standing)
    found = [rank_status(state, now) for state in states]
    first = min(found, key=lambda each: (order.index(each.standing), each.age or 0.0))
    others: dict[str, list[int]] = {}
    for state, each in zip(states, found, strict=True):
        is_other = each.standing is not first.standing if not first.standing.is_over else each.text != first.text
        if is_other and each.standing is not Standing.STARTING:
            others.setdefault(each.text, []).append(state.rank)
    ages = [each.age for each in found if each.age is not None]
    ranks = tuple(f"{_ranks(numbers)} {text}" for text, numbers in others.items())
    return RunStatus(first.standing, first.text, first.ended_by, min(ages, default=None), ranks)


def _ranks(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED])) + " …" * (len(numbers) > _NAMED)
    return f"rank{'s' * (len(numbers) > 1)} {named}"


def status_notes(states: Sequence[RunState], now: float, done: str = "judged") -> list[str]:
    """What a reader of figures must know: a rank without an end in order is judged as far as it came."""
    pairs = [(state, rank_status(state, now)) for state in states]
    return [
        f"rank {state.rank}: {status.text}; it is {done} up to step {state.step}"
        for state, status in pairs
        if status.standing is not Standing.ENDED
    ]
