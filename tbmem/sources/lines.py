"""Growing objects go in; the lines of the user's that make them grow come out, seen while they run for a step or two.

Python 3.12 and later are watched through ``sys.monitoring``, earlier ones through ``sys.settrace``; a debugger or a
coverage tool that is already there is left alone. Only frames of the user's files are followed: what a library does
counts for the user's line that called it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, Protocol

from tbmem.sources.usercode import has_fast_locals, is_user_file, locals_of, nobody_traces, stack_of

EVENTS = 150_000
"""Lines that are followed at most; then the watch ends by itself."""

Line = tuple[CodeType, int]


class Probe(Protocol):
    """One thing that is watched."""

    def grew(self, frame: FrameType) -> int:
        """How much it has grown since the last call, 0 for not at all.

        Args:
            frame: The user's frame that is about to run a line.
        """

    def release(self) -> None:
        """Let go of every object."""


class SizeProbe:
    """Watches the length of a container; lets go of it as soon as nobody else holds it."""

    def __init__(self, container: Any, length: Callable[[Any], int]) -> None:
        self._container = container
        self._length = length
        self.first = self.last = length(container)
        self.is_gone = False

    def grew(self, frame: FrameType) -> int:
        """New elements since the last call."""
        return self.check()

    def check(self) -> int:
        """New elements since the last call; notes when the container was emptied or given up."""
        container = self._container
        if container is None:
            return 0
        if sys.getrefcount(container) <= _ONLY_OURS:
            self.release()
            self.is_gone = True
            return 0
        size = self._length(container)
        more = size - self.last
        self.last = size
        return max(more, 0)

    def release(self) -> None:
        """Let go of the container."""
        self._container = None


def _references_of_a_probe() -> int:
    """What ``getrefcount`` says in ``check`` when nothing but the probe holds the container."""

    class Counted(SizeProbe):
        def check(self) -> int:
            container = self._container
            return sys.getrefcount(container)

    return Counted([], lambda _: 0).check()


_ONLY_OURS = _references_of_a_probe()


class ValueProbe:
    """Watches a variable, a key or an attribute: its value is replaced by another one."""

    def __init__(self, read: Callable[[FrameType], Any], mark: Callable[[Any], Hashable]) -> None:
        """The value now is the one to begin with.

        Args:
            read: The value now, or ``None`` where it cannot be known in that frame.
            mark: Tells two values apart without holding either.
        """
        self._read: Callable[[FrameType], Any] | None = read
        self._mark = mark
        self._last: Hashable = None

    def begin(self, value: Any) -> None:
        """The value that is there now."""
        self._last = self._mark(value)

    def grew(self, frame: FrameType) -> int:
        """1 when there is another value than at the last call."""
        value = self._read(frame) if self._read is not None else None
        if value is None:
            return 0
        mark = self._mark(value)
        changed = mark != self._last
        self._last = mark
        return int(changed)

    def release(self) -> None:
        """Let go of whatever the reader holds."""
        self._read = None


class LineWatch:
    """Which line ran when something grew."""

    def __init__(self, probes: dict[Hashable, Any]) -> None:
        """Nothing is watched yet.

        Args:
            probes: What to watch, by a key of the caller's.
        """
        self._probes = probes
        self._counts: Counter[tuple[Hashable, Line]] = Counter()
        self._now: dict[int, Line] = {}
        self._events = 0
        self._backend: _Tracing | _Monitoring | None = None
        self.overflowed = False

    @property
    def is_on(self) -> bool:
        """Whether lines are being watched."""
        return self._backend is not None

    def start(self, frame: FrameType | None) -> bool:
        """Begin to watch; ``False`` where somebody else is already tracing.

        Args:
            frame: The user's loop.
        """
        if not nobody_traces() or self._backend is not None:
            return False
        backend: _Tracing | _Monitoring | None = _Monitoring.free() if sys.version_info >= (3, 12) else _Tracing()
        if backend is None:
            return False
        for one in stack_of(frame):
            if is_user_file(one.f_code.co_filename):
                self._now[threading.get_ident()] = (one.f_code, one.f_lineno)
                break
        self._backend = backend
        backend.start(self, frame)
        return True

    def stop(self, frame: FrameType | None) -> None:
        """Stop watching, for good; may be called at any time and again.

        Args:
            frame: The user's loop; its frames are left as they were found.
        """
        backend, self._backend = self._backend, None
        if backend is not None:
            if frame is not None:
                self._check(frame)
            backend.stop(frame)
        for probe in self._probes.values():
            probe.release()

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """What is watched."""
        return tuple(self._probes)

    def lines(self, key: Hashable) -> list[Line]:
        """The lines during which one of the probes grew, most frequent first."""
        counts = {line: count for (owner, line), count in self._counts.items() if owner == key}
        return sorted(counts, key=lambda line: -counts[line])

    # -- called by the backends, within the user's program ---------------------------------------------------------

    def at_line(self, frame: FrameType) -> None:
        """A line of the user's is about to run."""
        self._check(frame)
        self._now[threading.get_ident()] = (frame.f_code, frame.f_lineno)

    def at_return(self, frame: FrameType) -> None:
        """A function of the user's is about to return to whoever called it."""
        self._check(frame)
        caller = frame.f_back
        while caller is not None and not is_user_file(caller.f_code.co_filename):
            caller = caller.f_back
        if caller is not None:
            self._now[threading.get_ident()] = (caller.f_code, caller.f_lineno)

    def too_many(self) -> bool:
        """Count an event; whether there have been so many that watching costs too much."""
        self._events += 1
        if self._events > EVENTS:
            self.overflowed = True
        return self.overflowed

    def _check(self, frame: FrameType) -> None:
        line = self._now.get(threading.get_ident())
        for key, probe in self._probes.items():
            grown = probe.grew(frame)
            if grown and line is not None:
                self._counts[key, line] += grown


class _Tracing:
    """``sys.settrace``: Python 3.10 and 3.11, this thread only."""

    def __init__(self) -> None:
        self._watch: LineWatch | None = None
        self._codes: set[CodeType] = set()

    def start(self, watch: LineWatch, frame: FrameType | None) -> None:
        self._watch = watch
        for one in stack_of(frame):
            if is_user_file(one.f_code.co_filename) and one.f_trace is None:
                one.f_trace = self._in_frame
        sys.settrace(self._at_call)

    def stop(self, frame: FrameType | None) -> None:
        self._watch = None
        if sys.gettrace() == self._at_call:
            sys.settrace(None)
        for one in stack_of(frame):
            if one.f_trace == self._in_frame:
                one.f_trace = None
        self._tidy(frame)

    def _tidy(self, frame: FrameType | None) -> None:
        """Empty the dicts of variables that tracing has left in frames which are still there."""
        if not nobody_traces():
            return
        frames = [one for one in stack_of(frame) if is_user_file(one.f_code.co_filename)]
        for one in gc.get_objects():
            if type(one) is GeneratorType and one.gi_code in self._codes and one.gi_frame is not None:
                frames.append(one.gi_frame)
            elif type(one) is CoroutineType and one.cr_code in self._codes and one.cr_frame is not None:
                frames.append(one.cr_frame)
        for each in frames:
            if each.f_trace == self._in_frame:
                each.f_trace = None
            if has_fast_locals(each):
                locals_of(each)
        self._codes.clear()

    def _at_call(self, frame: FrameType, event: str, arg: object) -> Any:
        if self._watch is None:
            sys.settrace(None)
            return None
        code = frame.f_code
        if not is_user_file(code.co_filename):
            return None
        self._codes.add(code)
        return self._in_frame(frame, "line", arg)

    def _in_frame(self, frame: FrameType, event: str, arg: object) -> Any:
        watch = self._watch
        if watch is None or watch.too_many():
            self._watch = frame.f_trace = None
            return None
        try:
            if event == "line":
                watch.at_line(frame)
            elif event == "return":
                watch.at_return(frame)
        except Exception:
            self._watch = None
        return self._in_frame


class _Monitoring:
    """``sys.monitoring``: Python 3.12 and later, all threads, users' code only."""

    _NAME = "tbmem"

    def __init__(self, tool: int) -> None:
        self._tool = tool
        self._watch: LineWatch | None = None
        self._codes: set[CodeType] = set()

    @classmethod
    def free(cls) -> _Monitoring | None:
        """One with a tool number that nobody uses."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        for tool in (4, 3):
            if monitoring.get_tool(tool) is None:
                with contextlib.suppress(ValueError):
                    monitoring.use_tool_id(tool, cls._NAME)
                    return cls(tool)
        return None

    def start(self, watch: LineWatch, frame: FrameType | None) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        self._watch = watch
        for event, function in self._callbacks(events).items():
            monitoring.register_callback(self._tool, event, function)
        for one in stack_of(frame):
            if is_user_file(one.f_code.co_filename):
                self._follow(one.f_code)
        monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)
        monitoring.restart_events()

    def stop(self, frame: FrameType | None) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        self._watch = None
        monitoring.set_events(self._tool, 0)
        for code in self._codes:
            monitoring.set_local_events(self._tool, code, 0)
        for event in self._callbacks(monitoring.events):
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)
        self._codes.clear()

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
            monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
            events = monitoring.events
            self._codes.add(code)
            monitoring.set_local_events(self._tool, code, events.LINE | events.PY_RETURN | events.PY_YIELD)

    def _at_start(self, code: CodeType, offset: int) -> Any:
        if self._watch is None or not is_user_file(code.co_filename):
            return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]
        self._follow(code)
        return None

    def _at_line(self, code: CodeType, line: int) -> Any:
        watch = self._watch
        if watch is None or watch.too_many():
            return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]
        try:
            watch.at_line(sys._getframe(1))
        except Exception:
            self._watch = None
        return None

    def _at_return(self, code: CodeType, offset: int, value: object) -> Any:
        watch = self._watch
        if watch is not None:
            try:
                watch.at_return(sys._getframe(1))
            except Exception:
                self._watch = None
        return None
