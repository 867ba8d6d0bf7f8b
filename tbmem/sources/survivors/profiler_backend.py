"""Surviving allocations on the CPU, read from short recordings of torch's profiler."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch._C._autograd import _disable_profiler, _enable_profiler, _profiler_enabled
from torch.autograd import profiler as torch_profiler

from tbmem.sources.gc_pause import gc_paused
from tbmem.sources.survivors.profiler_events import StepEvents
from tbmem.sources.survivors.tracker import RecurringSizes, SurvivorTracker, no_operation
from tbmem.sources.torch_state import call_tracer, profiler_state
from tbmem.sources.torch_state.forked_children import let_children_end

_COST_OF_A_CALL = 3.5e-6  # seconds to record and read one call of a Python function
_MOST_CALLS = 30_000
_STARTED = "another profiler was started while survivors were recorded"
_AT_WORK = "another torch profiler is active"
_PROFILED = "a profile function is set (sys.setprofile)"


class ProfilerSurvivors(SurvivorTracker):
    """Surviving allocations on the CPU.

    torch's own profiler sees every allocation, also those made in C++, and the stack above it. Each watched step is
    a recording of its own, read as soon as it ends: what that costs is known after the first step, and never more
    than one step's records are kept. The first step after ``begin`` is not recorded; it shows how many Python
    functions a step calls, for where there are too many, stacks would cost more than the step.
    """

    current: ProfilerSurvivors | None = None  # the one of this process that watches

    def __init__(self) -> None:
        super().__init__(time.thread_time)  # of this thread alone, so that a busy machine does not cut it short
        self._quiet = profiler_state.QuietTorch()
        self._ranges = profiler_state.OpenRanges()
        self._others = profiler_state.OtherProfilers(self._give_way)
        self._tracer = call_tracer.CallTracer()
        self._sizes = RecurringSizes()
        self._calls: _CallCount | None = None
        self._with_stack = True
        self._is_recording = False
        self._step_start = 0.0
        self._in_steps = 0.0

    @property
    def is_full(self) -> bool:
        """Whether enough has been seen, or more would cost too much: ``finish`` is due."""
        if self._calls is not None:
            return False
        if not self._is_recording or threading.current_thread() is not threading.main_thread():
            return True
        return self._is_spent(self.budget + 0.5 * self._in_steps)

    def _begin(self, step: int) -> None:
        reason = why_not()
        if reason:
            self._notes.append(reason)
            return
        _end_in_children()
        let_children_end()
        ProfilerSurvivors.current = self
        self._quiet.begin()
        self._ranges.begin()
        self._calls = _CallCount(self.clock)
        self._step_start = self.clock()

    def _sizes_grow(self) -> float:
        return self._sizes.grow(self._sites.outliving())

    def abandon(self) -> None:
        """Stop and report nothing; never raises, may come at any moment and more than once."""
        with contextlib.suppress(Exception):
            if self._calls is not None:
                self._calls.end()
                self._calls = None
        with contextlib.suppress(Exception):
            self._switch_off()
        self._tracer.end()
        self._others.end()
        self._ranges.end()
        self._quiet.end()
        if ProfilerSurvivors.current is self:
            ProfilerSurvivors.current = None

    def _end_step(self, step: int) -> Callable[[], object]:
        seconds = self.clock() - self._step_start
        if self._calls is not None:
            rate, self._calls = self._calls.end(), None
            self._with_stack = rate * seconds * _COST_OF_A_CALL < max(seconds, self.budget / 2)
            if not self._with_stack:
                self._notes.append("a step calls too many Python functions to follow them: lines are not known")
            return self._start_first
        self._in_steps += seconds if self._is_recording else 0.0
        is_awaited = self._others.are_waiting
        events = self._take_last()
        if events is None:
            return no_operation
        self._sites.step(events.survivors)
        self._sizes.step(events.sizes)
        if is_awaited:
            self._notes.append(_STARTED)
            return no_operation
        return self._start

    def _start_first(self) -> None:
        if profiler_state.prepared_profiles():
            self._notes.append(_AT_WORK)
        else:
            self._start()

    def _start(self) -> None:
        reason = why_not()
        if reason:
            self._notes.append(reason)
            return
        settings: Any = torch_profiler.profile(use_kineto=True, profile_memory=True, with_stack=self._with_stack)
        self._others.begin()
        with self._quiet.starting_kineto(), self._others.own():
            settings._prepare_trace()
        # not the profile's own start: it tells the compiler, which would then compile again
        _enable_profiler(settings.config(), settings.kineto_activities)
        self._is_recording = True
        if self._with_stack:
            self._tracer.begin()
        self._step_start = self.clock()

    def _take_last(self) -> StepEvents | None:
        """What was recorded since the last start; ``None`` if somebody else has taken the profiler over."""
        is_cut = self._is_recording and self._tracer.is_cut
        results = self._switch_off()
        if results is None:
            return None
        if is_cut:  # what is missing since would be attributed to lines from before
            self._notes.append(_PROFILED)
            return None
        with gc_paused():
            events = StepEvents.read(results.experimental_event_tree(), self._lines)
        for address in events.freed:
            self._sites.free(address)
        return events

    def _switch_off(self) -> Any:
        if not self._is_recording:
            return None
        if threading.current_thread() is not threading.main_thread():
            # torch crashes the process when a profile is stopped in another thread than its own
            self._notes.append("training continued in another thread")
            return None
        self._is_recording = False
        try:
            self._ranges.end_open()
            profiler_state.let_collectives_settle()
            return self._tracer.stop(_disable_profiler)
        finally:
            self._others.end()

    def _give_way(self) -> None:
        """End the recording: the program starts a profiler of its own within this step, which is lost."""
        self._notes.append(_STARTED)
        self._switch_off()


def why_not() -> str:
    """Why allocations on the CPU cannot be tracked now: one sentence; empty where they can."""
    reasons = {
        "survivors are recorded in the main thread only": threading.current_thread() is not threading.main_thread(),
        _PROFILED: call_tracer.program_profiles(),
        _AT_WORK: _profiler_enabled() or torch_profiler._is_profiler_enabled,
        "steps end inside of a backward pass": profiler_state.in_backward(),
        "this build of torch has no profiler": not torch._C._autograd.kineto_available(),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@cache
def _end_in_children() -> None:
    """A process that is forked meanwhile (a worker of a data loader) would record for ever, and grow."""

    def end() -> None:
        if ProfilerSurvivors.current is not None:
            ProfilerSurvivors.current.abandon()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=end)


class _CallCount:
    """How often the program calls Python functions from now on, up to ``_MOST_CALLS``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._left = _MOST_CALLS
        self._clock = clock
        self._seconds = 0.0
        self._has_ended = False
        self._start = clock()
        self._tracer = call_tracer.CallTracer(own=self._count)
        sys.setprofile(self._count)
        self._tracer.begin()

    def end(self) -> float:
        """Count no longer; returns the calls per second."""
        self._tracer.end()
        if not self._has_ended and sys.getprofile() == self._count:
            sys.setprofile(None)
            self._seconds = self._clock() - self._start
        self._has_ended = True
        return (_MOST_CALLS - self._left) / max(self._seconds, 1e-9)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if self._has_ended:  # a profiler of the program's has set it again: it was there when that one began
            sys.setprofile(None)
            return
        if event not in ("return", "c_return"):
            self._left -= 1
            if self._left <= 0:
                self.end()
