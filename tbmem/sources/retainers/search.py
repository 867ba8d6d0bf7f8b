"""Search for the containers, variables and objects that grow with the steps of a training run, with lines.

A few observations some steps apart show what grows; one or two traced steps show the line. Nothing of the user's is
held between two calls; while lines are traced, only as long as the user holds it too.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Hashable, Iterable
from dataclasses import replace
from types import FrameType

import torch

from tbmem.model.evidence import CodeLine, Holder, LineSource
from tbmem.sources.gc_pause import gc_paused
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import frames_of_other_threads, qualified_name, user_frames
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.program.tracked_objects import can_list
from tbmem.sources.retainers.callables import add_closures, add_exit_callbacks
from tbmem.sources.retainers.candidates import Candidate, SearchContext, not_under
from tbmem.sources.retainers.containers import add_container, add_filling, grown_containers, with_grown_inside
from tbmem.sources.retainers.instances import add_classes, add_contexts, add_leaves, noted_classes
from tbmem.sources.retainers.line_tracer import LineTracer
from tbmem.sources.retainers.object_counts import ObjectCounts, ObjectTable
from tbmem.sources.retainers.probes import SizeProbe
from tbmem.sources.retainers.reachability import Namespaces, Traversal
from tbmem.sources.retainers.retained_size import BaselineObjects, address_of
from tbmem.sources.retainers.variables import VariableHistories, add_graphs, add_value, grown_values

LOOKS = 3  # observations that are needed before anything can be said to grow
_MAX_TRACED = 8
_MAX_REPORTED = 12
_MAX_LINES = 3
_MAX_TENSORS = 20_000
_NO_LIST = "This Python runs without its global lock: objects are not listed, holders without a name are not found."


class RetainerSearch:
    """Finds what retains more and more memory; to be called from the training thread, between its steps.

    Args:
        named: What has a name beside the program's variables.
    """

    def __init__(self, named: Namespaces | None = None) -> None:
        self._named = named
        self._counts = ObjectCounts()
        self._histories = VariableHistories()
        self._sources = SourceCode()
        self._initial: set[tuple[int, int]] = set()
        self._candidates: list[Candidate] | None = None
        self._notes: list[str] = []
        self._tracer: LineTracer | None = None
        self._seen: dict[Hashable, tuple[CodeLine, ...]] = {}
        self._other_threads_run = False

    def look(self, step: int, frame: FrameType | None) -> None:
        """Note how large everything is; to be called three or four times, some steps apart."""
        with torch._C.DisableTorchFunction(), gc_paused():
            objects = ObjectTable()
            if not self._counts.looks:
                self._initial = {(id(tensor), address_of(tensor)) for tensor in objects.tensors()[:_MAX_TENSORS]}
            self._counts.look(step, objects)
            generators = objects.generators()
            del objects  # it holds the dicts that reading a frame's variables leaves behind, and empties
            traversal = Traversal(20_000, 0.04, frame, generators, self._named)
            self._histories.look(step, traversal.references.values())
        self._candidates = None
        plain.forget()

    def trace(self, frame: FrameType | None) -> bool:
        """Begin to trace which lines make grow what has grown; ``False`` for nothing, or where somebody is tracing."""
        if self._tracer is not None or self._counts.looks < LOOKS:
            return False
        context = self._find(frame)
        keys = [each.key for each in self._candidates or () if each.key in context.probes and not each.only_read]
        if not keys:
            return False
        tracer = LineTracer({key: context.probes[key] for key in keys[:_MAX_TRACED]})
        # code of the user's in another thread cannot be traced with ``sys.settrace``
        self._other_threads_run = any(True for top in frames_of_other_threads() for _ in user_frames(top))
        if not tracer.start(frame):
            tracer.stop(None)
            self._notes.append("A debugger or a coverage tool is active: lines are read from the source.")
            return False
        self._tracer = tracer
        return True

    def goes_on_tracing(self, frame: FrameType | None) -> bool:
        """Whether something is traced of which no line was seen yet; to be called after each traced step."""
        return self._tracer is not None and self._tracer.is_unfinished(frame)

    def untrace(self, frame: FrameType | None = None) -> None:
        """Stop tracing, at any time and again."""
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        tracer.stop(frame if frame is not None else sys._getframe(1))
        for key in tracer.probes:
            lines = [
                self._sources.code_line(code.co_filename, line, qualified_name(code))
                for code, line in tracer.lines(key)[:_MAX_LINES]
            ]
            if lines:
                self._seen[key] = tuple(dict.fromkeys(lines))
        if tracer.overflowed:
            self._notes.append("The watched steps have more lines than are followed: some were read from the source.")
        self._note_emptied(tracer)

    def _note_emptied(self, tracer: LineTracer) -> None:
        """Mark containers that were emptied while they were traced; take the length of the others."""
        candidates, self._candidates = self._candidates or (), []
        for candidate in candidates:
            probe = tracer.probes.get(candidate.key)
            if isinstance(probe, SizeProbe):
                if probe.is_gone:
                    continue
                is_emptied = candidate.holder.is_emptied or probe.was_emptied or probe.last < probe.first
                length = max(candidate.holder.length, probe.last)
                candidate.holder = replace(candidate.holder, length=length, is_emptied=is_emptied)
            self._candidates.append(candidate)

    def result(self, frame: FrameType | None) -> tuple[tuple[Holder, ...], tuple[str, ...]]:
        """Holders, most bytes per step first, and notes on what could not be seen."""
        if self._candidates is None:
            if self._counts.looks < LOOKS:
                return (), ("Fewer than three observations were made: growth cannot be determined.",)
            self._find(frame)
        holders = [self._finished(each) for each in (self._candidates or ())[: 2 * _MAX_REPORTED]]
        return tuple(each for each in holders if each is not None)[:_MAX_REPORTED], tuple(dict.fromkeys(self._notes))

    def _finished(self, candidate: Candidate) -> Holder | None:
        """A candidate with its lines; ``None`` for a tensor whose new value turns out not to be made of the old one."""
        seen = self._seen.get(candidate.key, ())
        use_read = not seen or candidate.only_read
        read = tuple(dict.fromkeys(candidate.read())) if use_read or self._other_threads_run else ()
        use_read = use_read or (bool(read) and not set(seen) & set(read))
        lines = read if use_read else seen
        if candidate.must_be_cumulative:
            lines = tuple(line for line in lines if self._sources.is_cumulative(line, candidate.handle))
            if not lines:
                return None
        is_bounded = not candidate.bound_is_read or _positions(seen) <= _positions(candidate.read())
        return replace(
            candidate.holder,
            lines=lines[:_MAX_LINES],
            known_by=LineSource.READ if use_read else LineSource.SEEN,
            bound=candidate.holder.bound if is_bounded else None,
        )

    def close(self) -> None:
        """Stop tracing and forget everything."""
        self.untrace(sys._getframe(1))
        self.__init__(self._named)  # type: ignore[misc]
        plain.forget()

    def _find(self, frame: FrameType | None) -> SearchContext:
        collects = gc.isenabled()
        with torch._C.DisableTorchFunction(), gc_paused():
            context = SearchContext(self._sources, self._initial, frame)
            objects = ObjectTable()  # the only one: where many modules are loaded, each costs as much as all the rest
            traversal = Traversal(60_000, 0.25, frame, objects.generators(), self._named)
            context.files = tuple(dict.fromkeys((*context.files, *traversal.user_files())))
            if not can_list():
                context.notes.append(_NO_LIST)
            if not traversal.complete:
                context.notes.append("There are more objects than were examined: some names may be missing.")
            self._fill(context, objects, traversal)
            add_closures(context, self._counts, objects, traversal)
            add_exit_callbacks(context, self._counts, objects, traversal, self._initial)
            classes = noted_classes(context, self._counts, objects, traversal)
            del objects, traversal
            add_classes(context, classes, collects)
        self._candidates = context.sorted()
        self._notes = context.notes
        plain.forget()
        return context

    def _fill(self, context: SearchContext, objects: ObjectTable, traversal: Traversal) -> None:
        containers = grown_containers(self._counts, objects, traversal)
        containers, filling = with_grown_inside(containers, self._histories, traversal)
        values = grown_values(self._histories, traversal, {id(reference.value) for reference, _ in containers})
        context.baseline = BaselineObjects(
            not_under(traversal, {id(reference.value) for reference, _ in (*containers, *filling, *values)})
        )
        for reference, series in containers:
            add_container(context, reference, series, is_emptied=self._histories.is_refilled(reference))
        for reference, series in filling:
            add_filling(context, reference, series)
        for reference, history in values:
            add_value(context, reference, history)
        add_graphs(context, self._histories, traversal)
        add_contexts(context, self._counts, objects)
        add_leaves(context, self._counts, objects, traversal)


def _positions(lines: Iterable[CodeLine]) -> set[tuple[str, int]]:
    return {(line.file, line.line) for line in lines}
