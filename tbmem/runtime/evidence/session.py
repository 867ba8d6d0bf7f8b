"""Gathers the evidence on one suspicion over a few steps."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tbmem.config.schema import EvidenceConfig
from tbmem.model.evidence import Channel, Evidence, Site, Suspicion
from tbmem.sources.retainers.search import RetainerSearch
from tbmem.sources.survivors.history_backend import HistorySurvivors
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
from tbmem.sources.survivors.tracker import SurvivorTracker
from tbmem.sources.torch_state.memory_history import cuda_history_is_on, history_bytes, history_module

_LOOKS, _FEWEST_LOOKS = 4, 3
"""Censuses of a session, the first before its first step: three intervals distinguish growth from fluctuation. Three
are needed to detect growth; a heap too large for three is not searched."""
_LONGEST_GAP = 60
"""Maximum steps between two censuses, if memory grows only every few steps and ``evidence.steps`` is no more."""
_BIRTHS_GAP = 2
"""Allocations are followed if memory grows at least every ``_BIRTHS_GAP`` steps."""


class EvidenceSession:
    """Censuses of holders, allocations followed in between if possible, and a traced step at the end.

    The gap of the suspicion sets the distance of the censuses. ``capture`` is called before ``births`` ends, to write a
    snapshot.
    """

    def __init__(
        self,
        suspicion: Suspicion,
        config: EvidenceConfig,
        hunt: RetainerSearch,
        births: SurvivorTracker | None,
        capture: Callable[[SurvivorTracker], object],
    ) -> None:
        self._config = config
        self._capture = capture
        self._hunt = hunt
        self._births = births if suspicion.gap <= _BIRTHS_GAP else None
        self._spacing = _spacing(math.ceil(config.steps / (_LOOKS - 1)), suspicion.gap)
        self._traces_left = suspicion.gap + 1 if config.trace_lines else 0
        self._censuses_left = _LOOKS
        self._is_tracing = False
        self._first_step = self._next_census = 0
        self._sites: tuple[Site, ...] | None = None
        self._notes: list[str] = []
        self._sizes_grow = self._seconds = self._search_seconds = 0.0

    def begin(self, step: int, frame: FrameType | None) -> None:
        """Begin with the step after ``step``."""
        self._first_step = step
        self._take_census(step, frame)
        if self._births is not None:
            with self._timed():
                self._births.begin(step + 1)

    def advance(self, step: int, frame: FrameType | None) -> Evidence | None:
        """Process the end of a step; returns the evidence when it is complete."""
        if self._is_tracing:
            self._traces_left -= 1
            if self._traces_left > 0 and self._hunt.goes_on_tracing(frame):
                return None
            self._hunt.untrace(frame)
            return self._result(step, frame)
        self._end_step(step, lambda: self._take_census(step, frame) if step >= self._next_census else None)
        if self._censuses_left:
            return None
        self._finish_births()
        return self._trace_or_finish(step, frame)

    def abandon(self) -> None:
        """Switch everything off and discard the evidence."""
        try:
            if self._births is not None:
                self._births.abandon()
        finally:
            self._hunt.close()

    def _take_census(self, step: int, frame: FrameType | None) -> None:
        self._censuses_left -= 1
        self._next_census = step + self._spacing
        before = self._seconds
        with self._timed():
            self._hunt.look(step, frame)
        took = self._seconds - before
        affordable = self._config.max_seconds / max(took, 1e-9)
        if self._censuses_left and affordable < _FEWEST_LOOKS:
            self._censuses_left, self._search_seconds = 0, _FEWEST_LOOKS * took
            self._notes.append(f"the search for holders was cut short: one pass over this heap takes {took:.1f} s")
        elif self._censuses_left == 1 and affordable < _LOOKS:
            self._censuses_left = 0

    def _end_step(self, step: int, census: Callable[[], None]) -> None:
        """Mark the step for ``births``, and take the census while it does not record."""
        births = self._births
        if births is None:
            census()
            return
        began, before = time.thread_time(), self._seconds
        births.mark(step, census)
        self._seconds = before + time.thread_time() - began  # the census was timed already
        if births.is_full:
            self._finish_births()

    def _finish_births(self) -> None:
        births, self._births = self._births, None
        if births is None:
            return
        self._capture(births)
        with self._timed():
            report = births.finish()
        self._sites, self._sizes_grow = report.sites, report.sizes_grow
        self._notes += report.notes

    def _trace_or_finish(self, step: int, frame: FrameType | None) -> Evidence | None:
        with self._timed():
            self._is_tracing = self._traces_left > 0 and self._hunt.trace(frame)
        return None if self._is_tracing else self._result(step, frame)

    def _result(self, step: int, frame: FrameType | None) -> Evidence:
        with self._timed():
            holders, notes = self._hunt.result(frame)
            self._hunt.close()
        return Evidence(
            first_step=self._first_step,
            last_step=step,
            holders=holders,
            sites=self._sites,
            sizes_grow=self._sizes_grow,
            collector_on=gc.isenabled(),
            history_bytes=history_bytes(),
            search_seconds=self._search_seconds,
            notes=(*self._notes, *notes),
            seconds=self._seconds,
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._seconds += time.thread_time() - began


def _spacing(least: int, gap: int) -> int:
    """Steps from one census to the next, at least so many, if memory grows each ``gap`` steps.

    A multiple of the gap, so that as much is added in each interval, and two of them where that is not too long: rises
    are not quite regular.
    """
    longest = max(_LONGEST_GAP, least)
    wanted, possible = math.ceil(max(least, 1.5 * gap) / gap), longest // gap
    return min(gap * max(min(wanted, possible), 1), longest)


def births_of(device: str) -> SurvivorTracker | None:
    """The tracker of allocations on a device (``cuda:0``); ``None`` if there is none."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return ProfilerSurvivors()
    memory = history_module(kind)
    if memory is None:
        return None
    return HistorySurvivors(memory, int(index or 0), history_is_on=kind == "cuda" and cuda_history_is_on())


def open_session(
    suspicion: Suspicion, config: EvidenceConfig, capture: Callable[[SurvivorTracker], object], *, births: bool
) -> EvidenceSession:
    """A session for one suspicion; ``births``: whether allocations may be followed."""
    is_host = suspicion.channel in (Channel.HOST, Channel.HEAP)
    following = births_of("cpu" if is_host else suspicion.device) if births else None
    return EvidenceSession(suspicion, config, RetainerSearch(), following, capture)
