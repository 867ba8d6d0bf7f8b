"""Context of one search for retainers: sources, names, sizes, and the candidates found so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch

from tbmem.interruption import raise_interruption
from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import user_frames
from tbmem.sources.program.syntax import Handle, SourceCode
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.naming import Name
from tbmem.sources.retainers.object_counts import Series
from tbmem.sources.retainers.probes import Probe
from tbmem.sources.retainers.reachability import Reference, RootScope, Traversal
from tbmem.sources.retainers.retained_size import BaselineObjects, RetainedSize, elements_of, entry_bytes

MEASURED = 6  # elements that are measured
OLDER = 3  # elements that are measured before: what they share with the others costs nothing more
_SECONDS = (0.06, 0.3)  # processor time for measuring one holder, and all
CHANGED = "A container changed while it was weighed."


LineSearch = Callable[[], Iterable[CodeLine]]  # looks for lines in the source


@dataclass
class Candidate:
    """A holder, without its lines yet. Holds no object of the user's."""

    key: Hashable
    holder: Holder
    handle: Handle = field(default_factory=Handle)
    read: LineSearch = tuple
    only_read: bool = False  # the relevant line is not the one during which it grew: a cached function's ``def``
    bound_is_read: bool = False  # its bound is written in the source: it holds only for the lines that are known there
    must_be_cumulative: bool = False  # a tensor that grows is a holder only when the new value is made of the old one


class SearchContext:
    """What was found so far, and the tools for finding more; lives for the length of one call."""

    def __init__(self, sources: SourceCode, initial: set[tuple[int, int]], frame: FrameType | None) -> None:
        self.sources = sources
        self.files = tuple(dict.fromkeys(each.f_code.co_filename for each in user_frames(frame)))
        """The user's files to search for lines in; those on the stack are first, innermost first."""
        self.probes: dict[Hashable, Probe] = {}
        self.explained: set[type] = set()  # types of what was found in holders
        self.notes: list[str] = []
        self.baseline: BaselineObjects | None = None
        self._candidates: list[Candidate] = []
        self._initial = initial  # tensors of the first observation, by address of object and data
        self._deadline: float | None = None  # from the first measurement on: what comes before has limits of its own

    def retained_size(self, with_initial: bool = True) -> RetainedSize:
        """A new measurement, within what is left of the time."""
        now = time.thread_time()
        if self._deadline is None:
            self._deadline = now + _SECONDS[1]
        seconds = max(self._deadline - now, 0.005)
        return RetainedSize(min(_SECONDS[0], seconds), self.baseline, self._initial if with_initial else ())

    def element_size(self, container: Any, series: Series) -> tuple[int, Contents]:
        """Bytes that one of the newest elements of a container retains, and what they hold."""
        is_ordered = set not in plain.mro(type(container))
        retained = self.retained_size(with_initial=is_ordered)
        retained.seen.add(id(container))
        recent = min(math.ceil(series.per_step), 16)  # the loop's own variables may still hold these
        new = max(min(MEASURED, series.growth - recent), 1)
        try:
            elements = elements_of(container, new + recent + OLDER)
        except RuntimeError as error:
            raise_interruption(error)
            self.notes.append(CHANGED)
            return 0, Contents.OBJECTS
        if len(elements) > recent + 1 and is_ordered:
            del elements[len(elements) - recent :]
        for parts in elements[:-new]:
            retained.measure_all(parts)
        sizes: list[tuple[int, bool]] = []
        for parts in elements[-new:]:
            before = retained.initial_met
            size = retained.measure_all(parts)
            if sizes and retained.is_late:
                break
            sizes.append((size, retained.initial_met > before))
        self.explained |= retained.types
        # a few elements with an initial tensor in them are a new tensor at an old one's address
        of_new = [size for size, is_initial in sizes if not is_initial]
        chosen = of_new if 2 * len(of_new) > len(sizes) else [size for size, _ in sizes]
        return sum(chosen) // max(len(chosen), 1) + entry_bytes(container), retained.contents()

    def element_type(self, container: Any) -> str:
        """Name of the type of the newest elements (of a dict its values); empty for tensors, and where they differ."""
        if type(container) is plain.LruCache:
            return ""
        try:
            kinds = {type(parts[-1]) for parts in elements_of(container, MEASURED)}
        except RuntimeError as error:  # another thread has changed it
            raise_interruption(error)
            return ""
        kind = kinds.pop() if len(kinds) == 1 else torch.Tensor
        return "" if torch.Tensor in plain.mro(kind) else kind.__name__

    def name(self, reference: Reference) -> Name:
        """What a reference is called."""
        return naming.name_of(reference, self.sources)

    def add(self, candidate: Candidate, probe: Probe | None = None) -> None:
        """Note a candidate, and what to watch for its line."""
        self._candidates.append(candidate)
        if probe is not None:
            self.probes[candidate.key] = probe

    def sorted(self) -> list[Candidate]:
        """Most bytes per step first; holders of one name merged: the lists of twelve trackers are one line."""
        by_name: dict[tuple[str, HolderKind], Candidate] = {}
        for candidate in self._candidates:
            first = by_name.setdefault((candidate.holder.name, candidate.holder.kind), candidate)
            if first is not candidate:
                a, b = first.holder, candidate.holder
                rate = a.per_step + b.per_step
                size = round((a.bytes_per_step + b.bytes_per_step) / rate) if rate else a.bytes_per_element
                first.holder = replace(a, per_step=rate, length=a.length + b.length, bytes_per_element=size)
        return sorted(by_name.values(), key=lambda candidate: -candidate.holder.bytes_per_step)


def mean_of_new(sizes: list[int]) -> int:
    """Mean of the sizes that were measured after the ``OLDER`` ones, or of all where there are no more."""
    new = sizes[OLDER:] or sizes
    return sum(new) // max(len(new), 1)


def not_under(traversal: Traversal, growing: set[int]) -> list[Any]:
    """What the loop reaches without passing through something that grows (by ``id``)."""
    under = set(growing)
    for reference in traversal.references.values():
        owner = reference.owner
        if owner.is_aside if isinstance(owner, RootScope) else id(owner.value) in under:
            under.add(id(reference.value))
    return [reference.value for key, reference in traversal.references.items() if key not in under]
