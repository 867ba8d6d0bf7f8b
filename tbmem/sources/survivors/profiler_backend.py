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
from tbmem.sources.survivors.tracker import BUDGET, FEWEST_STEPS, RecurringSizes, SurvivorTracker, no_operation
from tbmem.sources.torch_state.profiler_state import (
    OpenRanges,
    OtherProfilers,
    QuietTorch,
    in_backward,
    let_collectives_settle,
    prepared_profiles,
    quiet_kineto,
)

_COST_OF_A_CALL = 3.5e-6
"""Seconds to record and read one call of a Python function."""
_MOST_CALLS = 30_000
_OTHER_PROFILER = "another profiler was started while births were watched"


class ProfilerSurvivors(SurvivorTracker):
    """Surviving allocations on the CPU.

    torch's own profiler sees every allocation, also those made in C++, and the stack above it. Each watched step is
    a recording of its own, read as soon as it ends: what that costs is known after the first step, and never more
    than one step's records are kept. The first step after ``begin`` is not recorded; it shows how many Python
    functions a step calls, for where there are too many, stacks would cost more than the step.

    Args:
        budget: Seconds that reading may take in all, besides half the time of the watched steps.
        clock: Seconds; of this thread alone, so that a busy machine does not cut it short.
    """

    current: ProfilerSurvivors | None = None
    """The one of this process that watches."""

    def __init__(self, *, budget: float = BUDGET, clock: Callable[[], float] = time.thread_time) -> None:
        super().__init__(budget, clock)
        self._quiet = QuietTorch()
        self._ranges = OpenRanges()
        self._others = OtherProfilers(self._give_way)
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
        allowed = self._budget + 0.5 * self._in_steps
        return self._seconds > 3 * allowed or (self._seconds > allowed and self._sites.steps >= FEWEST_STEPS)

    def begin(self, step: int) -> None:
        """Watch from now on; ``step`` is the one that begins."""
        with self._counted():
            reason = why_not()
            if reason:
                self._notes.append(reason)
                return
            _end_in_children()
            ProfilerSurvivors.current = self
            self._quiet.begin()
            self._ranges.begin()
            self._calls = _CallCount(_MOST_CALLS, self._clock)
            self._calls.begin()
        self._step_start = self._clock()

    def mark(self, step: int, between: Callable[[], object] = no_operation) -> None:
        """The watched step ``step`` has ended and the next begins; see ``SurvivorTracker.mark``."""
        seconds = self._clock() - self._step_start
        try:
            with self._counted():
                start = self._end_step(seconds)
            between()
            with self._counted():
                start()
        except BaseException:
            self.abandon()
            raise
        self._step_start = self._clock()

    def _take_last(self) -> None:
        self._forget(self._stop())

    def _forget(self, events: StepEvents | None) -> None:
        for address in events.freed if events is not None else ():
            self._sites.free(address)

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
        self._others.end()
        self._ranges.end()
        self._quiet.end()
        if ProfilerSurvivors.current is self:
            ProfilerSurvivors.current = None

    def _choose_stacks(self, calls: _CallCount, seconds: float) -> None:
        calls.end()
        self._calls = None
        self._with_stack = calls.rate * seconds * _COST_OF_A_CALL < max(seconds, self._budget / 2)
        if not self._with_stack:
            self._notes.append("a step calls too many Python functions to follow them: lines are not known")

    def _end_step(self, seconds: float) -> Callable[[], None]:
        """Take in the step that has ended; returns what begins the next one."""
        if self._calls is not None:
            self._choose_stacks(self._calls, seconds)
            return self._start_first
        self._in_steps += seconds if self._is_recording else 0.0
        is_awaited = self._others.are_waiting
        events = self._stop()
        if events is None:
            return no_operation
        self._forget(events)
        self._sites.step(events.survivors)
        self._sizes.step(events.sizes)
        if is_awaited:
            self._notes.append(_OTHER_PROFILER)
            return no_operation
        return self._start

    def _start_first(self) -> None:
        reason = why_not() or ("another profiler of torch is at work" if prepared_profiles() else "")
        if reason:
            self._notes.append(reason)
        else:
            self._start()

    def _start(self) -> None:
        settings: Any = torch_profiler.profile(use_kineto=True, profile_memory=True, with_stack=self._with_stack)
        self._others.begin()
        with quiet_kineto(), self._others.own():
            settings._prepare_trace()
        # not the profile's own start: it tells the compiler, which would then compile again
        _enable_profiler(settings.config(), settings.kineto_activities)
        self._is_recording = True

    def _stop(self) -> StepEvents | None:
        """What was recorded since the last start; ``None`` if somebody else has taken the profiler over."""
        results = self._switch_off()
        if results is None:
            return None
        with gc_paused():
            return StepEvents.read(results.experimental_event_tree(), self._lines)

    def _switch_off(self) -> Any:
        if not self._is_recording:
            return None
        if threading.current_thread() is not threading.main_thread():
            # torch crashes the process when a profile is stopped in another thread than its own
            self._notes.append("the training went on in another thread")
            return None
        self._is_recording = False
        try:
            self._ranges.end_open()
            let_collectives_settle()
            return _disable_profiler()
        finally:
            self._others.end()

    def _give_way(self) -> None:
        """End the recording: the program starts a profiler of its own within this step, which is lost."""
        self._notes.append(_OTHER_PROFILER)
        self._switch_off()


def why_not() -> str:
    """Why allocations on the CPU cannot be tracked now: one sentence; empty where they can."""
    if threading.current_thread() is not threading.main_thread():
        return "births are watched in the main thread only"
    if sys.getprofile() is not None:
        return "a profile function is set (sys.setprofile)"
    if _profiler_enabled() or torch_profiler._is_profiler_enabled:
        return "another profiler of torch is at work"
    if in_backward():
        return "steps end inside of a backward pass"
    if not torch._C._autograd.kineto_available():
        return "this build of torch has no profiler"
    return ""


@cache
def _end_in_children() -> None:
    """A process that is forked meanwhile (a worker of a data loader) would record for ever, and grow."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_end)


def _end() -> None:
    if ProfilerSurvivors.current is not None:
        ProfilerSurvivors.current.abandon()


class _CallCount:
    """How often the program calls Python functions."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._left = self._most = most
        self._clock = clock
        self._start = 0.0
        self._seconds = 0.0

    @property
    def rate(self) -> float:
        """Calls per second."""
        return (self._most - self._left) / max(self._seconds, 1e-9)

    def begin(self) -> None:
        """Count from now on."""
        self._start = self._clock()
        sys.setprofile(self._count)

    def end(self) -> None:
        """Count no longer."""
        if sys.getprofile() == self._count:
            sys.setprofile(None)
            self._seconds = self._clock() - self._start

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "return" or event == "c_return":
            return
        self._left -= 1
        if self._left <= 0:
            self.end()
