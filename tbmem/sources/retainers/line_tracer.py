"""Tracer of the user's lines, for a step or two, that records during which of them watched objects grow.

A debugger or a coverage tool that is already there is left alone. Only frames of the user's files are followed: what a
library does counts for the user's line that called it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from types import CodeType, CoroutineType, FrameType, GeneratorType, ModuleType
from typing import Any

from tbmem.interruption import SuppressedErrors, raise_interruption
from tbmem.sources.program import ownership
from tbmem.sources.program.tracked_objects import objects_of
from tbmem.sources.retainers.probes import Probe

EVENTS = 150_000  # maximum number of lines that are followed; then the tracer ends by itself

_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LEFTOVERS = 50
_FRAME_AND_OURS = 4  # references to a frame's dict: the frame's, our list's, a variable's and the argument's
_NAME = "tbmem"  # of the tool, for ``sys.monitoring``
Line = tuple[CodeType, int]
_monitoring: Any = getattr(sys, "monitoring", None)


class LineTracer:
    """Records which line ran when something grew."""

    def __init__(self, probes: dict[Hashable, Probe]) -> None:
        self.probes = probes
        self._counts: Counter[tuple[Hashable, Line]] = Counter()
        self._now: dict[int, Line] = {}
        self._events = 0
        self._backend: _Tracing | _Monitoring | None = None
        self._has_failed = False
        self.overflowed = False

    def start(self, frame: FrameType | None) -> bool:
        """Begin; ``False`` where somebody else is already tracing."""
        if not ownership.nobody_traces() or self._backend is not None:
            return False
        self._backend = _Monitoring.free() if sys.version_info >= (3, 12) else _Tracing()
        if self._backend is None:
            return False
        self._at(next(ownership.user_frames(frame), None))
        if "torch._dynamo.trace_rules" in sys.modules:
            _skip_in_compiler(sys.modules["torch._dynamo.trace_rules"])
        self._backend.start(self, frame)
        return True

    def stop(self, frame: FrameType | None) -> None:
        """Stop for good; may be called at any time and again."""
        backend, self._backend = self._backend, None
        if backend is not None:
            try:
                with SuppressedErrors():  # the last count is lost, nothing else
                    if frame is not None:
                        self._check(frame)
            finally:
                backend.stop(frame)
        for probe in self.probes.values():
            probe.release()

    def is_unfinished(self, frame: FrameType | None) -> bool:
        """Whether it goes on and a line is missing for one of the probes; ``frame`` stands where a step has ended."""
        if frame is not None:
            self.advance(frame, next(ownership.user_frames(frame), None))
        seen = {key for key, _ in list(self._counts)}  # other threads may add to the counts
        return not (self.overflowed or self._has_failed or self.probes.keys() <= seen)

    def lines(self, key: Hashable) -> list[Line]:
        """The lines during which one of the probes grew, most frequent first."""
        counts = {line: count for (owner, line), count in self._counts.items() if owner == key}
        return sorted(counts, key=lambda line: -counts[line])

    def advance(self, frame: FrameType, following: FrameType | None) -> None:
        """A line or a function of the user's ends in a frame; the one that follows goes on from where it stands."""
        if not self._has_failed:
            try:
                self._check(frame)
                self._at(following)
            except Exception as error:
                raise_interruption(error)
                self._has_failed = True

    def _at(self, frame: FrameType | None) -> None:
        """What grows from now on in this thread grows on the line at which a frame stands."""
        if frame is not None:
            self._now[threading.get_ident()] = (frame.f_code, frame.f_lineno)

    def goes_on(self) -> bool:
        """Count an event; whether tracing goes on: it ends after an error, or when it costs too much."""
        self._events += 1
        self.overflowed = self._events > EVENTS
        return not (self.overflowed or self._has_failed)

    def _check(self, frame: FrameType) -> None:
        line = self._now.get(threading.get_ident())
        for key, probe in self.probes.items():
            grown = probe.grew(frame)
            if grown and line is not None:
                self._counts[key, line] += grown


@functools.cache
def _skip_in_compiler(rules: ModuleType) -> None:
    """Have torch's compiler skip callbacks in a compiled function: compiling each would take milliseconds."""
    with SuppressedErrors():
        rules.__dict__["add"](__package__)


class _Tracing:
    """``sys.settrace``: Python 3.10 and 3.11, this thread only.

    Once a frame's variables were read, the first event in it fills its dict of variables, which then keeps them
    alive. It is emptied as soon as the frame has called something: while an event of that same frame is being
    handled, Python would write the empty dict back.
    """

    def __init__(self) -> None:
        self._tracer: LineTracer | None = None
        self._codes: set[CodeType] = set()
        self._leftovers: list[dict[str, Any]] = []

    def start(self, tracer: LineTracer, frame: FrameType | None) -> None:
        self._tracer = tracer
        for one in ownership.user_frames(frame):
            if one.f_trace is None:
                self._leftovers.extend(ownership.variables_left_in(one))
                one.f_trace = self._in_frame
        sys.settrace(self._at_call)

    def stop(self, frame: FrameType | None) -> None:
        self._tracer = None
        if sys.gettrace() == self._at_call:
            sys.settrace(None)
        for one in ownership.stack_of(frame):
            if one.f_trace == self._in_frame:
                one.f_trace = None
        self._tidy(frame)

    def _tidy(self, frame: FrameType | None) -> None:
        """Empty the dicts of variables that tracing has left in frames which are still there."""
        self._leftovers.clear()
        if not ownership.nobody_traces():
            return
        frames: list[FrameType | None] = list(ownership.user_frames(frame))
        suspended = any(code.co_flags & _GENERATOR for code in self._codes)
        for one in objects_of((GeneratorType, CoroutineType)) if suspended else ():
            code, of_one = (one.gi_code, one.gi_frame) if type(one) is GeneratorType else (one.cr_code, one.cr_frame)
            if code in self._codes:
                frames.append(of_one)
        for each in frames:
            if each is not None and each.f_trace == self._in_frame:
                each.f_trace = None
            if each is not None and ownership.has_fast_locals(each):
                ownership.locals_of(each)
        self._codes.clear()

    def _at_call(self, frame: FrameType, event: str, arg: object) -> Any:
        if self._tracer is None:
            sys.settrace(None)
            return None
        for variables in self._leftovers:
            if sys.getrefcount(variables) <= _FRAME_AND_OURS:  # not the user's own locals()
                variables.clear()
        code = frame.f_code
        if not ownership.is_user_file(code.co_filename):
            return None
        self._codes.add(code)
        if code.co_flags & _GENERATOR:
            self._leftovers[_LEFTOVERS:] = ownership.variables_left_in(frame)
        return self._in_frame(frame, "line", arg)

    def _in_frame(self, frame: FrameType, event: str, arg: object) -> Any:
        tracer = self._tracer
        if tracer is None or not tracer.goes_on():
            self._tracer = frame.f_trace = None
            return None
        if event in ("line", "return"):
            tracer.advance(frame, frame if event == "line" else next(ownership.user_frames(frame.f_back), None))
        return self._in_frame


class _Monitoring:
    """``sys.monitoring``: Python 3.12 and later, all threads, users' code only."""

    def __init__(self, tool: int) -> None:
        self._tool = tool
        self._tracer: LineTracer | None = None
        self._codes: set[CodeType] = set()
        self._use_tool_id: Callable[..., Any] | None = None

    @classmethod
    def free(cls) -> _Monitoring | None:
        """One with a tool number that nobody uses."""
        for tool in (4, 3):
            if _monitoring.get_tool(tool) is None:
                with contextlib.suppress(ValueError):
                    _monitoring.use_tool_id(tool, _NAME)
                    return cls(tool)
        return None

    def start(self, tracer: LineTracer, frame: FrameType | None) -> None:
        events = _monitoring.events
        self._tracer = tracer
        self._use_tool_id, _monitoring.use_tool_id = _monitoring.use_tool_id, self._give_way
        for event, function in self._callbacks(events).items():
            _monitoring.register_callback(self._tool, event, function)
        for one in ownership.user_frames(frame):
            self._follow(one.f_code)
        _monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)
        _monitoring.restart_events()

    def stop(self, frame: FrameType | None) -> None:
        self._tracer = None
        if self._use_tool_id is not None and _monitoring.use_tool_id == self._give_way:
            _monitoring.use_tool_id = self._use_tool_id
        self._use_tool_id = None
        if _monitoring.get_tool(self._tool) != _NAME:  # the program has it
            return
        _monitoring.set_events(self._tool, 0)
        for code in self._codes:
            _monitoring.set_local_events(self._tool, code, 0)
        for event in self._callbacks(_monitoring.events):
            _monitoring.register_callback(self._tool, event, None)
        _monitoring.free_tool_id(self._tool)
        self._codes.clear()

    def _give_way(self, tool: int, name: str) -> None:
        """The program's ``use_tool_id``: if it wants the number that is used here, tracing ends."""
        function = self._use_tool_id
        if tool == self._tool:
            self.stop(None)
        if function is not None:
            function(tool, name)

    def _callbacks(self, events: Any) -> dict[int, Callable[..., Any]]:
        return {
            events.PY_START: self._at_start,
            events.PY_RESUME: self._at_start,
            events.LINE: self._at_line,
            events.PY_RETURN: self._at_return,
            events.PY_YIELD: self._at_return,
        }

    def _follow(self, code: CodeType) -> None:
        if code not in self._codes:
            events = _monitoring.events
            self._codes.add(code)
            _monitoring.set_local_events(self._tool, code, events.LINE | events.PY_RETURN | events.PY_YIELD)

    def _at_start(self, code: CodeType, offset: int) -> Any:
        if self._tracer is None or not ownership.is_user_file(code.co_filename):
            return _monitoring.DISABLE
        self._follow(code)
        return None

    def _at_line(self, code: CodeType, line: int) -> Any:
        if self._tracer is None or not self._tracer.goes_on():
            return _monitoring.DISABLE
        self._tracer.advance(sys._getframe(1), sys._getframe(1))
        return None

    def _at_return(self, code: CodeType, offset: int, value: object) -> None:
        if self._tracer is not None:
            frame = sys._getframe(1)
            self._tracer.advance(frame, next(ownership.user_frames(frame.f_back), None))
