"""Which line of the program was running when memory was highest, for each of the last steps and each device."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from tbmem.model.evidence import RunningAt
from tbmem.runtime.evidence.module_modes import KnownModule, ModuleModes
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Process
from tbmem.sources.program.ownership import qualified_name, user_frames
from tbmem.sources.program.running_call import RunningCall
from tbmem.sources.program.syntax import SourceCode
from tbmem.sources.torch_state.module_calls import outermost_module
from tbmem.units import MIB

PART = "lines at peaks"
INTERVAL = 0.02
"""Seconds between two looks: as long as between two readings of the peak itself. A look takes 20 µs, and 0.3 ms
beside a training loop that uses the caches for itself."""
_SHARE = 0.003
"""Share of a processor that looks may take: where they are dearer than 60 µs they are further apart."""
_SMOOTH = 0.1  # weight of the last look in the mean cost of one
_PAUSE = 0.25  # seconds between two looks while a profiler window is open, whose trace would show this thread's calls
_MARGIN = 4 * MIB  # bytes above the level at the last step's end from which on the stack is looked at
_STEPS = 256  # steps that are remembered; an excursion is reported some steps after it began
_JOIN_SECONDS = 1.0
_FRAMES = 6  # of the user's frames, the innermost ones

_Place = tuple[str, int, str]  # file, line, function


class _Look(NamedTuple):
    memory: int  # bytes in use
    places: tuple[_Place, ...]  # the user's frames
    call: RunningCall | None  # in the innermost frame of all
    in_eval_mode: KnownModule | None  # the module that was called first, if it was in that mode


@dataclass(frozen=True)
class PeakSource:
    """What a look at the process reads; each is called in a thread of its own."""

    memory: Callable[[], Mapping[str, tuple[int, int]]]
    """By device the bytes in use now, and when the last step ended; of the CPU the resident memory."""
    step: Callable[[], int]
    """Number of the step that is running."""
    is_paused: Callable[[], bool]
    """Whether memory and calls are not the program's alone: while a window is open."""


class PeakLines:
    """Looks at the training thread's stack while the memory of a step is high.

    Names, numbers and weak references are kept, no frame or object of the program. A peak that is shorter than
    ``INTERVAL`` may be missed: then its line is not known.

    Args:
        source: What is read at each look.
        guard: Handles errors.
    """

    def __init__(self, source: PeakSource, guard: Guard) -> None:
        self._source = source
        self._guard = guard
        self._highest: dict[str, dict[int, _Look]] = defaultdict(dict)
        self._code = SourceCode()
        self._modes = ModuleModes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tbmem peaks", daemon=True)
        self._pid = Process.number
        self.watched = threading.get_ident()
        """Identifier of the thread that trains."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; nothing is read after this has returned."""
        self._ended.set()
        if self._pid == Process.number and self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def look(self) -> None:
        """Note where the training thread is, if a device's memory is clearly higher than at any look of the step.

        malloc keeps what the peak has needed: the resident memory stays as high, and may rise by some pages later.
        """
        self._modes.update()
        step = self._source.step()
        for device, (now, level) in self._source.memory().items():
            looks = self._highest[device]
            known = looks[step].memory if step in looks else level + _MARGIN
            if now > known + _CLEARLY * (known - level):
                self._note(looks, step, now)
            while len(looks) > _STEPS:
                del looks[next(iter(looks))]

    def of_steps(self, device: str, steps: Iterable[int]) -> RunningAt:
        """What was running at the highest look of some steps."""
        looks = self._highest[device]
        seen = [looks[step] for step in steps if step in looks]
        if not seen:
            return RunningAt()
        _, places, call, in_eval_mode = max(seen, key=lambda look: look.memory)
        lines = tuple(self._code.code_line(file, line, function) for file, line, function in places)
        self._modes.update()
        is_evaluation = in_eval_mode is not None and in_eval_mode.trains
        operator = call.name() if call is not None else ""
        return RunningAt(lines=lines, operator=operator, is_evaluation=is_evaluation)

    def _note(self, looks: dict[int, _Look], step: int, now: int) -> None:
        innermost = sys._current_frames().get(self.watched)
        frames = islice(user_frames(innermost), _FRAMES)
        places = [(frame.f_code.co_filename, frame.f_lineno, qualified_name(frame.f_code)) for frame in frames]
        if innermost is not None and places:
            module = outermost_module(innermost)
            in_eval_mode = None if module is None else self._modes.note(module)
            looks[step] = _Look(now, tuple(places), RunningCall.of(innermost), in_eval_mode)

    def _work(self) -> None:
        worked, cost = time.thread_time(), 0.0
        while not self._ended.wait(_PAUSE if self._source.is_paused() else max(INTERVAL, cost / _SHARE)):
            if sys.getprofile() is not None:
                sys.setprofile(None)  # torch's profiler has set its function in all threads, see BackgroundWriter
            if not self._source.is_paused():
                self._guard.run(PART, self.look)
            if PART in self._guard.failed:
                return
            before, worked = worked, time.thread_time()
            cost += _SMOOTH * (worked - before - cost)


_CLEARLY = 0.03
"""Share of a peak\'s height by which a later look must be higher to be the peak."""
