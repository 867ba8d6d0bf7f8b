"""Search for the containers, variables and objects that grow with the steps of a running training, with lines.

A few looks some steps apart tell what grows; a step or two under watch tell the line. Nothing of the user's is held
between two calls, except while the watch is on, and then only as long as the user holds it too.
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
from tbmem.sources.program import ownership as usercode
from tbmem.sources.program.ownership import frames_of_other_threads, user_frames
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.retainers.candidates import Bench, Candidate, not_under
from tbmem.sources.retainers.containers import (
    add_container,
    add_filling,
    grown_containers,
    grown_inside,
    without_those_below,
)
from tbmem.sources.retainers.instances import Instances, add_contexts, add_leaves
from tbmem.sources.retainers.line_tracer import LineWatch
from tbmem.sources.retainers.object_counts import Census, Objects
from tbmem.sources.retainers.probes import SizeProbe
from tbmem.sources.retainers.reachability import Walk
from tbmem.sources.retainers.retained_size import Elsewhere, address_of
from tbmem.sources.retainers.variable_history import Slots
from tbmem.sources.retainers.variables import add_graphs, add_value, grown_values

LOOKS = 3
"""Looks that are needed before anything can be said to grow."""
_WATCHED = 8
_REPORTED = 12
_LINES = 3
_TENSORS = 20_000


class HolderHunt:
    """Finds what holds more and more; to be called from the training's thread, between its steps."""

    def __init__(self) -> None:
        self._census = Census()
        self._slots = Slots()
        self._sources = SourceCode()
        self._born: set[tuple[int, int]] = set()
        self._candidates: list[Candidate] | None = None
        self._notes: list[str] = []
        self._watch: LineWatch | None = None
        self._sizes: dict[Hashable, SizeProbe] = {}
        self._seen: dict[Hashable, tuple[CodeLine, ...]] = {}
        self._others_run = False

    def look(self, step: int, frame: FrameType | None) -> None:
        """Note how large everything is; to be called three or four times, some steps apart."""
        with torch._C.DisableTorchFunction(), gc_paused():
            objects = Objects()
            if not self._census.looks:
                self._born = {(id(one), address_of(one)) for one in objects.tensors()[:_TENSORS]}
            self._census.look(step, objects)
            generators = objects.generators()
            del objects  # it holds the dicts that reading a frame's variables leaves behind, and empties
            walk = Walk(20_000, 0.04)
            walk.from_frames(frame, generators)
            self._slots.look(step, walk.found.values())
        self._candidates = None
        plain.forget()

    def trace(self, frame: FrameType | None) -> bool:
        """Pick what has grown and begin to watch which lines make it grow.

        Returns:
            ``False`` where there is nothing to watch, or where a debugger or a coverage tool is already tracing:
            lines are read from the source then.
        """
        if self._watch is not None or self._census.looks < LOOKS:
            return False
        bench = self._find(frame)
        watched = [one.key for one in self._candidates or () if one.key in bench.probes and not one.only_read]
        probes = {key: bench.probes[key] for key in watched[:_WATCHED]}
        if not probes:
            return False
        watch = LineWatch(probes)
        self._others_run = _others_run()
        if not watch.start(frame):
            watch.stop(None)
            self._notes.append("A debugger or a coverage tool is at work: lines are read from the source.")
            return False
        self._watch = watch
        self._sizes = {key: probe for key, probe in probes.items() if isinstance(probe, SizeProbe)}
        return True

    def untrace(self, frame: FrameType | None = None) -> bool:
        """Stop watching; may be called at any time and again.

        Args:
            frame: The user's loop; found by itself where it is not given.

        Returns:
            Whether a line was seen for everything that was watched.
        """
        watch, self._watch = self._watch, None
        if watch is None:
            return False
        watch.stop(frame if frame is not None else sys._getframe(1))
        for key in watch.keys:
            lines = [
                self._sources.code_line(code.co_filename, line, usercode.qualified_name(code))
                for code, line in watch.lines(key)[:_LINES]
            ]
            if lines:
                self._seen[key] = tuple(dict.fromkeys(lines))
        if watch.overflowed:
            self._notes.append("A step has more lines than are followed: some were read from the source.")
        self._drop_emptied()
        return all(key in self._seen for key in watch.keys)

    def _drop_emptied(self) -> None:
        """Forget containers that were emptied while they were watched; take the length of the others."""
        sizes, self._sizes = self._sizes, {}
        kept = []
        for one in self._candidates or ():
            probe = sizes.get(one.key)
            if probe is not None and (probe.is_gone or probe.last < probe.first):
                continue
            if probe is not None:
                one.holder = replace(one.holder, length=max(one.holder.length, probe.last))
            kept.append(one)
        self._candidates = kept

    def result(self, frame: FrameType | None) -> tuple[tuple[Holder, ...], tuple[str, ...]]:
        """What was found.

        Returns:
            Holders, most bytes per step first, and notes on what could not be seen.
        """
        if self._candidates is None:
            if self._census.looks < LOOKS:
                return (), ("Fewer than three looks were taken: nothing can be said to grow.",)
            self._find(frame)
        found = [self._finished(one) for one in (self._candidates or ())[: 2 * _REPORTED]]
        return tuple(one for one in found if one is not None)[:_REPORTED], tuple(dict.fromkeys(self._notes))

    def _finished(self, candidate: Candidate) -> Holder | None:
        """A candidate with its lines; ``None`` for a tensor that turns out not to be made of its former self."""
        seen = self._seen.get(candidate.key, ())
        read = tuple(dict.fromkeys(candidate.read())) if not seen or self._others_run or candidate.only_read else ()
        use_read = not seen or candidate.only_read or (self._others_run and read and not set(seen) & set(read))
        lines = read if use_read else seen
        if candidate.must_be_cumulative:
            lines = tuple(line for line in lines if self._sources.is_cumulative(line, candidate.handle))
            if not lines:
                return None
        known_by = LineSource.READ if use_read else LineSource.SEEN
        holder = candidate.holder
        if candidate.bound_is_read and not _places(seen) <= _places(candidate.read()):
            holder = replace(holder, bound=None)
        return replace(holder, lines=lines[:_LINES], known_by=known_by)

    def close(self) -> None:
        """Stop watching and forget everything."""
        self.untrace(sys._getframe(1))
        self.__init__()  # type: ignore[misc]
        plain.forget()

    def _find(self, frame: FrameType | None) -> Bench:
        """Name and weigh all that has grown."""
        collects = gc.isenabled()
        with torch._C.DisableTorchFunction(), gc_paused():
            bench = Bench(self._sources, self._born, frame)
            walk = Walk(60_000, 0.25)
            walk.from_frames(frame, Objects().generators())
            objects = Objects()
            if not walk.complete:
                bench.notes.append("There are more objects than were looked at: some names may be missing.")
            bench.add_files(walk.user_files())
            self._fill(bench, objects, walk)
            instances = Instances(bench, self._census, objects, walk, collects)
            del objects, walk
            instances.judge()
        self._candidates = bench.sorted()
        self._notes = bench.notes
        plain.forget()
        return bench

    def _fill(self, bench: Bench, objects: Objects, walk: Walk) -> None:
        containers = grown_containers(self._census, objects, walk)
        filling = grown_inside(self._slots, walk, containers)
        containers = without_those_below(containers, filling)
        values = grown_values(self._slots, walk, {id(place.value) for place, _ in containers})
        bench.elsewhere = Elsewhere(not_under(walk, {id(place.value) for place, _ in (*containers, *filling, *values)}))
        for place, series in containers:
            add_container(bench, place, series)
        for place, series in filling:
            add_filling(bench, place, series)
        for place, slot in values:
            add_value(bench, place, slot)
        add_graphs(bench, self._slots, walk)
        add_contexts(bench, self._census, objects)
        add_leaves(bench, self._census, objects, walk)


def _places(lines: Iterable[CodeLine]) -> set[tuple[str, int]]:
    return {(one.file, one.line) for one in lines}


def _others_run() -> bool:
    """Whether another thread runs code of the user's, which cannot be watched with ``sys.settrace``."""
    return any(True for top in frames_of_other_threads() for _ in user_frames(top))
