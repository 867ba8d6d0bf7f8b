"""Context of one search for holders: sources, names, the scale, and the candidates found so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources.program.ownership import user_frames
from tbmem.sources.program.syntax import Handle, SourceCode
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.naming import Name, Namer
from tbmem.sources.retainers.object_counts import Series
from tbmem.sources.retainers.probes import Probe
from tbmem.sources.retainers.reachability import Place, Scope, Walk
from tbmem.sources.retainers.retained_size import Elsewhere, Scale

MEASURED = 6
"""Elements that are weighed."""
OLDER = 3
"""Elements that are put on the scale before: what they share with the others costs nothing more."""
_EACH = 0.06
_ALL = 0.3
"""Seconds for weighing one holder, and all."""


@dataclass
class Candidate:
    """A holder, without its lines yet. Holds no object of the user's."""

    key: Hashable
    holder: Holder
    handle: Handle = field(default_factory=Handle)
    read: Callable[[], Iterable[CodeLine]] = tuple
    """Looks for the lines in the source."""
    only_read: bool = False
    """The line that matters is not the one during which it grew: a cached function's ``def``."""
    bound_is_read: bool = False
    """Its bound stands in the source: it holds for the lines that are known there only."""
    must_be_cumulative: bool = False
    """A tensor that grows is a holder only when the new value is made of the old one."""


class Bench:
    """What was found so far, and the tools for finding more; lives for the length of one call."""

    def __init__(self, sources: SourceCode, born: set[tuple[int, int]], frame: FrameType | None) -> None:
        """Nothing is found yet.

        Args:
            sources: Files that were read so far.
            born: Tensors that were there at the first look, by address of object and data.
            frame: The user's loop.
        """
        self.sources = sources
        self.namer = Namer(sources)
        self.files = _files(frame)
        self.found: list[Candidate] = []
        self.probes: dict[Hashable, Probe] = {}
        self.explained: set[type] = set()
        """Types of what was found in holders."""
        self.notes: list[str] = []
        self.elsewhere: Elsewhere | None = None
        self._born = born
        self._ends = time.thread_time() + _ALL

    def scale(self, with_born: bool = True) -> Scale:
        """A new scale, with what is left of the time."""
        left = max(self._ends - time.thread_time(), 0.005)
        return Scale(min(_EACH, left), self.elsewhere, self._born if with_born else ())

    def holder(self, place: Place, name: Name, series: Series, *, bytes_per_element: int, contents: Contents) -> Holder:
        """A holder for what stands at a place; its last size is the number of its elements."""
        return Holder(
            kind=naming.kind_of(place),
            name=naming.full_name(name, naming.noun(place)),
            type=naming.type_name(place),
            length=series.points[-1][1],
            per_step=series.per_step,
            contents=contents,
            bytes_per_element=bytes_per_element,
            grows_since=series.since,
        )

    def add_files(self, names: Iterable[str]) -> None:
        """More files to search for lines in, when those on the stack have none."""
        self.files = tuple(dict.fromkeys((*self.files, *names)))

    def keep(self, candidate: Candidate, probe: Probe | None = None) -> None:
        """Note a candidate, and what to watch for its line."""
        self.found.append(candidate)
        if probe is not None:
            self.probes[candidate.key] = probe

    def sorted(self) -> list[Candidate]:
        """Most bytes per step first; holders of one name together."""
        return sorted(_merged(self.found), key=lambda one: -one.holder.bytes_per_step)


def not_under(walk: Walk, grown: set[int]) -> list[Any]:
    """What the loop reaches without passing through something that grows."""
    under = set(grown)
    found = []
    for place in walk.found.values():
        owner = place.owner
        if owner.is_aside if isinstance(owner, Scope) else id(owner.value) in under:
            under.add(id(place.value))
        elif id(place.value) not in under:
            found.append(place.value)
    return found


def _files(frame: FrameType | None) -> tuple[str, ...]:
    """Users' files on the stack, innermost first."""
    return tuple(dict.fromkeys(one.f_code.co_filename for one in user_frames(frame)))


def _merged(found: list[Candidate]) -> list[Candidate]:
    """Holders of one name together: the lists of twelve trackers are one line for the user."""
    by_name: dict[tuple[str, HolderKind], Candidate] = {}
    for one in found:
        before = by_name.setdefault((one.holder.name, one.holder.kind), one)
        if before is not one:
            a, b = before.holder, one.holder
            rate = a.per_step + b.per_step
            each = round((a.bytes_per_step + b.bytes_per_step) / rate) if rate else a.bytes_per_element
            before.holder = replace(a, per_step=rate, length=a.length + b.length, bytes_per_element=each)
    return list(by_name.values())
