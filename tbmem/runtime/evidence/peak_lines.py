"""Which line of the program was running when memory was highest, for each of the last steps and each device."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from tbmem.analysis.detector.detector import LooksAtPeaks
from tbmem.model.evidence import RunningAt
from tbmem.runtime.evidence.look_schedule import FEWEST, HALF, MOST, PAUSE, SAMPLES, LastNumbers, LookSchedule
from tbmem.runtime.evidence.module_modes import KnownModule, ModuleModes
from tbmem.runtime.evidence.step_timer import StepTimer
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Process
from tbmem.sources.program.ownership import qualified_name, user_frames
from tbmem.sources.program.running_call import RunningCall
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.torch_state.module_calls import outermost_module
from tbmem.units import MIB

PART = "lines at peaks"
_MARGIN = 4 * MIB  # bytes above the level at the last step's end from which on the stack is looked at
_CLEARLY = 1.03  # times as high as the highest look of a step so far, and as steps usually are
_ENOUGH_LOOKS = 4  # looks at a step of which the highest tells what it has allocated
_FAR_APART = 0.15
"""Part of the time from the first to the last look at a step that two looks may be apart, for none to be missing."""
_STEPS, _LARGEST = 256, 32
"""Steps that are remembered, since an excursion is reported some steps after it began, and the largest ones of those
before: some are reported when the run ends."""
_JOIN_SECONDS = 1.0
_FRAMES = 6  # of the user's frames, the innermost ones

_Place = tuple[str, int, str]  # file, line, function


class _Look(NamedTuple):
    places: tuple[_Place, ...]  # the user's frames
    call: RunningCall | None  # in the innermost frame of all
    in_eval_mode: KnownModule | None  # the module that was called first, if it was in that mode


@dataclass
class _StepPeak:
    """What the looks at one step have seen."""

    began: float  # seconds, at the first look
    at: float  # seconds, at the last look
    usually: int | None  # bytes that most of the steps before had allocated at most, if enough were looked at
    apart: float = 0.0  # seconds between two looks, at most
    looks: int = 0
    height: int = 0  # bytes above the level at the last step's end, at the highest look
    allocated: int | None = 0  # the same of allocated bytes; ``None`` where a look could not read them
    is_first: bool = False  # whether no step before it was looked at, or a window has been open in the last one
    is_early: bool = False  # whether no step before it was looked at whole: it may be the first of many as high
    is_whole: bool = False  # whether it was looked at from its beginning to its end
    highest: _Look | None = None  # the last one that was clearly higher than those before

    def note_look(self, at: float) -> None:
        """A look follows."""
        self.looks += 1
        self.apart, self.at = max(self.apart, at - self.at), at

    @property
    def allocated_at_least(self) -> int | None:
        """Bytes that the highest look has seen allocated; ``None`` where too few looks tell."""
        return self.allocated if self.looks >= _ENOUGH_LOOKS else None

    @property
    def is_followed(self) -> bool:
        """Whether no long part of the step lies between two looks."""
        return self.apart <= _FAR_APART * (self.at - self.began)


class _Peaks:
    """What the looks have seen of one device."""

    def __init__(self) -> None:
        self.by_step: dict[int, _StepPeak] = {}
        self._largest: dict[int, _StepPeak] = {}
        self.heights, self.allocated = LastNumbers(), LastNumbers()

    def of_step(self, step: int, now: float) -> _StepPeak:
        """What was seen of the running step; with the first look at it the one before is one of the usual ones."""
        if step in self.by_step:
            return self.by_step[step]
        if self.by_step:
            last = next(reversed(self.by_step.values()))
            self.heights.add(last.height)
            if last.is_whole and not last.is_first and last.allocated is not None:
                self.allocated.add(last.allocated)
        if len(self.by_step) >= _STEPS:
            self._forget(next(iter(self.by_step)))
        usually = int(self.allocated.that(MOST)) if len(self.allocated) >= SAMPLES else None
        is_first, is_early = not self.by_step, not len(self.allocated)
        return self.by_step.setdefault(step, _StepPeak(now, now, usually, is_first=is_first, is_early=is_early))

    def beyond_usual(self, peak: _StepPeak) -> int | None:
        """Bytes that a step has allocated at least beyond what most of those that were looked at whole do.

        Looks miss the highest moment of some. Where few were looked at before the step, later ones tell as well.
        """
        usually, most = peak.usually, peak.allocated_at_least
        if usually is None and len(self.allocated) - peak.is_whole >= FEWEST:
            usually = int(self.allocated.that(MOST, without=most if peak.is_whole else None))
        return None if peak.is_first or most is None or usually is None else most - usually

    def get(self, step: int) -> _StepPeak | None:
        """What was seen of a step, if that is remembered."""
        return self.by_step.get(step) or self._largest.get(step)

    def high(self) -> dict[int, _StepPeak]:
        """The remembered steps that were higher than half of those before."""
        known = {**self._largest, **self.by_step}  # copied at once: the thread that looks adds others
        return {step: peak for step, peak in known.items() if peak.highest is not None}

    def _forget(self, step: int) -> None:
        peak = self.by_step.pop(step)
        if peak.highest is None:
            return
        # a new one each time, for the threads that read it
        largest = sorted([*self._largest.items(), (step, peak)], key=lambda pair: -pair[1].height)
        self._largest = dict(largest[:_LARGEST])


@dataclass(frozen=True)
class PeakSource:
    """What a look at the process reads; each is called in a thread of its own."""

    heights: Callable[[bool], Mapping[str, tuple[int, int | None]]]
    """By device the bytes in use, and those allocated where they can be read, beyond those when the last step ended;
    given ``True``, both are those allocated where these can be read, which takes half the time."""
    step: Callable[[], int]
    """Number of the step that is running."""
    is_paused: Callable[[], bool]
    """Whether memory and calls are not the program's alone: while a window is open."""


class PeakLines:
    """Looks at the training thread's stack while the memory of a step is high.

    Names, numbers and weak references are kept, no frame or object of the program. A peak between two looks is
    missed: then its line is not known. ``LookSchedule`` says when to look.

    Args:
        source: What is read at each look.
        guard: Handles errors.
        clock: Seconds that pass.
    """

    def __init__(self, source: PeakSource, guard: Guard, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._guard = guard
        self._clock = clock
        self._peaks: dict[str, _Peaks] = defaultdict(_Peaks)
        self._code = SourceCode()
        self._modes = ModuleModes()
        self._paused_in = 0  # the last step in which no looks were possible
        self._timer = StepTimer()
        self._together = self._untimed = 1  # steps that are timed together, and those until the timer is started again
        self._thread = threading.Thread(target=guard.run, args=(PART, self._work), name="tbmem peaks", daemon=True)
        self._pid = Process.number
        self.watched = threading.get_ident()
        """Identifier of the thread that trains."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin_step(self) -> None:
        """A step begins, in the training thread."""
        self._untimed -= 1
        if self._untimed > 0:
            return
        self._untimed = self._together
        try:
            self._timer.begin_step()
        except Exception:
            return  # near the recursion limit ctypes raises an error of its own; the next step starts the timer

    def stop(self) -> None:
        """End the thread; nothing is read after this has returned."""
        self._timer.end()
        if self._pid == Process.number and self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._timer.close()

    def look(self, *, quickly: bool = False, is_whole: bool = False) -> bool:
        """Note where the training thread is, if a device's memory is clearly higher than at any look of the step.

        malloc keeps what the peak has needed: the resident memory stays as high, and may rise by some pages later.

        Args:
            quickly: Whether allocated bytes do where they are known.
            is_whole: Whether the step is looked at often from its beginning to its end.

        Returns:
            Whether the step is higher than steps usually are.
        """
        self._modes.update()
        step, now, is_high = self._source.step(), self._clock(), False
        for device, (height, allocated) in self._source.heights(quickly).items():
            peaks = self._peaks[device]
            peak = peaks.of_step(step, now)
            if step <= self._paused_in + 1:
                peak.is_first = True  # at the end of the step before, a window's own memory was counted
            peak.note_look(now)
            peak.is_whole = is_whole
            peak.allocated = _larger(peak.allocated, allocated)
            if height > max(_MARGIN, _CLEARLY * peak.height, _CLEARLY * peaks.heights.that(HALF)):
                peak.highest = self._look_at_stack() or peak.highest
            peak.height = max(peak.height, height)
            is_high = is_high or peak.height > max(_MARGIN, _CLEARLY * peaks.heights.that(MOST))
        return is_high

    def allocated(self, device: str) -> dict[int, int]:
        """By step what those that were high have allocated at least beyond what steps usually do, in bytes."""
        peaks = self._peaks[device]
        known = {step: peaks.beyond_usual(peak) for step, peak in peaks.high().items() if not peak.is_early}
        return {step: most for step, most in known.items() if most is not None}

    def of_device(self, device: str) -> LooksAtPeaks:
        """What the looks tell of one device."""
        return LooksAtPeaks(partial(self.of_steps, device), partial(self.allocated, device))

    def of_steps(self, device: str, steps: Iterable[int]) -> RunningAt:
        """What was running at the highest look of some steps."""
        peaks = self._peaks[device]
        seen = [(peak, peak.highest) for step in steps if (peak := peaks.get(step)) is not None]
        high = [(peak, look) for peak, look in seen if look is not None]
        if not high:
            return RunningAt()
        peak, (places, call, in_eval_mode) = max(high, key=lambda each: each[0].height)
        self._modes.update()
        return RunningAt(
            lines=tuple(self._code.code_line(file, line, function) for file, line, function in places),
            operator=call.name() if call is not None else "",
            is_evaluation=in_eval_mode is not None and in_eval_mode.trains,
            allocated=peak.allocated_at_least,
            needed=peaks.beyond_usual(peak),
            is_followed=peak.is_followed,
            seconds=peak.at - peak.began,
        )

    def _look_at_stack(self) -> _Look | None:
        innermost = sys._current_frames().get(self.watched)
        frames = islice(user_frames(innermost), _FRAMES)
        places = [(frame.f_code.co_filename, frame.f_lineno, qualified_name(frame.f_code)) for frame in frames]
        if innermost is None or not places:
            return None
        module = outermost_module(innermost)
        in_eval_mode = None if module is None else self._modes.note(module)
        return _Look(tuple(places), RunningCall.of(innermost), in_eval_mode)

    def _work(self) -> None:
        schedule, timer, is_paused, limit = LookSchedule(), self._timer, False, None
        while True:
            has_expired = timer.wait(PAUSE if is_paused else schedule.wait)
            if timer.has_ended:
                return
            if sys.getprofile() is not None:
                sys.setprofile(None)  # torch's profiler has set its function in all threads, see BackgroundWriter
            step, is_paused = self._source.step(), self._source.is_paused()
            if is_paused:
                self._paused_in = step
                continue
            schedule.begin_look(step, limit if has_expired else None)
            is_high = self._guard.run(PART, self.look, quickly=schedule.is_dense, is_whole=schedule.is_whole(step))
            if PART in self._guard.failed:
                return
            schedule.end_look(step, is_high=bool(is_high))
            limit, self._together = schedule.limit, schedule.steps_together
            timer.set_limit(limit)


def _larger(highest: int | None, now: int | None) -> int | None:
    return None if highest is None or now is None else max(highest, now)
