"""Profilers, tracers and debuggers of Python for ``profilers.py``, of its library and of others."""

from __future__ import annotations

import cProfile
import io
import json
import os
import pdb
import profile
import pstats
import subprocess
import sys
import sysconfig
import threading
import tracemalloc
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from profiler_tools import BLOCK, Tool, compare


def _calls_of(stats: Any, code: CodeType) -> int:
    place = (code.co_filename, code.co_firstlineno, code.co_name)
    return stats.stats[place][1] if stats is not None and place in stats.stats else 0


class CProfile(Tool):
    """cProfile."""

    name = "cProfile"

    def start(self) -> None:
        self.profile: Any = cProfile.Profile()
        self.profile.enable()

    def stop(self) -> None:
        self.profile.disable()

    def missing(self, calls: int) -> str:
        return compare("calls", _calls_of(pstats.Stats(self.profile, stream=io.StringIO()), self.code), calls)


class Profile(Tool):
    """The profiler of Python's library that is written in Python, around one more call for each."""

    name = "profile"

    def start(self) -> None:
        self.profiles: list[Any] = []

    def tick(self) -> None:
        self.profiles.append(profile.Profile())
        self.profiles[-1].runcall(self.work)

    def stop(self) -> None:
        self.profiles.append(profile.Profile())
        self.profiles[-1].runcall(self.work)

    def missing(self, calls: int) -> str:
        stats = pstats.Stats(*self.profiles, stream=io.StringIO()) if self.profiles else None
        return compare("calls", _calls_of(stats, self.code), calls + 1)


class SetProfile(Tool):
    """sys.setprofile, which gives the function that was set before back at the end."""

    name = "sys.setprofile"

    def start(self) -> None:
        self.calls = 0
        self.before = sys.getprofile()
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event == "call" and frame.f_code is self.code

    def stop(self) -> None:
        sys.setprofile(self.before)

    def missing(self, calls: int) -> str:
        return compare("calls", self.calls, calls)


class ThreadingSetProfile(SetProfile):
    """threading.setprofile, for threads that are started later, and one such thread for each call."""

    name = "threading.setprofile"

    def start(self) -> None:
        self.calls = 0
        self.before = threading.getprofile()
        threading.setprofile(self._see)

    def tick(self) -> None:
        thread = threading.Thread(target=self.work)
        thread.start()
        thread.join()

    def stop(self) -> None:
        threading.setprofile(self.before)


class ThreadCProfile(CProfile):
    """cProfile in a thread of its own, which works all the time."""

    name = "cProfile in another thread"

    def start(self) -> None:
        self.profile = cProfile.Profile()
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.is_over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.done.acquire()

    def _run(self) -> None:
        self.profile.enable()
        self.done.release()
        while self.go.acquire() and not self.is_over:
            self.work()
            self.done.release()
        self.profile.disable()

    def tick(self) -> None:
        self.go.release()
        self.done.acquire()

    def stop(self) -> None:
        self.is_over = True
        self.go.release()
        self.thread.join()


class SetTrace(Tool):
    """sys.settrace."""

    name = "sys.settrace"

    def start(self) -> None:
        self.calls = 0
        self.before = sys.gettrace()
        sys.settrace(self._see)

    def _see(self, frame: FrameType, event: str, argument: object) -> Any:
        self.calls += event == "call" and frame.f_code is self.code
        return self._see

    def stop(self) -> None:
        sys.settrace(self.before)

    def missing(self, calls: int) -> str:
        return compare("calls", self.calls, calls)


class SysMonitoring(Tool):
    """sys.monitoring, with the number that tbmem prefers."""

    name = "sys.monitoring"
    number = 4

    @classmethod
    def why_not(cls) -> str:
        return "" if sys.version_info >= (3, 12) else "Python 3.12 and later"

    def start(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        self.calls = 0
        monitoring.use_tool_id(self.number, "own")
        monitoring.register_callback(self.number, monitoring.events.PY_START, self._see)
        monitoring.set_events(self.number, monitoring.events.PY_START)

    def _see(self, code: CodeType, offset: int) -> None:
        self.calls += code is self.code

    def stop(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.set_events(self.number, 0)
        monitoring.register_callback(self.number, monitoring.events.PY_START, None)
        monitoring.free_tool_id(self.number)

    def missing(self, calls: int) -> str:
        return compare("calls", self.calls, calls)


class Coverage(Tool):
    """coverage.py, with the lines of the last call, which are run only then."""

    name = "coverage"
    module = "coverage"

    def start(self) -> None:
        import coverage

        self.coverage: Any = coverage.Coverage(data_file=None, include=[__file__, self.code.co_filename])
        self.coverage.start()

    def stop(self) -> None:
        _run_last()
        self.coverage.stop()

    def missing(self, calls: int) -> str:
        data = self.coverage.get_data()
        last = _run_last.__code__.co_firstlineno + 1
        has_work = bool(data.lines(self.code.co_filename))
        return compare("functions", has_work + (last in (data.lines(__file__) or ())), 2)


def _run_last() -> int:
    return 1


class Memray(Tool):
    """memray, which counts the blocks of each call."""

    name = "memray"
    module = "memray"

    def start(self) -> None:
        import memray

        self.path = self.folder / "memray.bin"
        self.tracker = memray.Tracker(self.path)
        self.tracker.__enter__()

    def stop(self) -> None:
        self.tracker.__exit__(None, None, None)

    def missing(self, calls: int) -> str:
        import memray

        seen = 0
        for record in memray.FileReader(self.path).get_allocation_records():
            if BLOCK <= record.size < BLOCK + 4096:
                seen += any(frame[0] == self.code.co_name for frame in record.stack_trace())
        return compare("blocks", seen, calls)


class Pyinstrument(Tool):
    """pyinstrument, a sampling profiler in the process."""

    name = "pyinstrument"
    module = "pyinstrument"

    def start(self) -> None:
        from pyinstrument import Profiler

        self.profiler = Profiler(interval=0.0005)
        self.profiler.start()

    def stop(self) -> None:
        for _ in range(20):
            self.work()
        self.profiler.stop()

    def missing(self, calls: int) -> str:
        from pyinstrument.renderers import JSONRenderer

        text = self.profiler.output(JSONRenderer(show_all=True))
        has_start, has_end = self.code.co_name in text, '"function": "stop"' in text
        return compare("functions", has_start + has_end, 2)


class LineProfiler(Tool):
    """line_profiler, hits of a line of ``work``."""

    name = "line_profiler"
    module = "line_profiler"

    def start(self) -> None:
        from line_profiler import LineProfiler as Lines

        self.profiler: Any = Lines(self.work)
        self.profiler.enable_by_count()

    def stop(self) -> None:
        self.profiler.disable_by_count()

    def missing(self, calls: int) -> str:
        timings = self.profiler.get_stats().timings
        hits = [hits for lines in timings.values() for _, hits, _ in lines]
        return compare("calls", min(hits, default=0), calls)


class VizTracer(Tool):
    """viztracer, without functions in C: it keeps addresses of their names, and crashes where one is freed."""

    name = "viztracer"
    module = "viztracer"

    def start(self) -> None:
        import viztracer

        self.tracer = viztracer.VizTracer(verbose=0, tracer_entries=5_000_000, ignore_c_function=True)
        self.tracer.start()

    def stop(self) -> None:
        self.tracer.stop()

    def missing(self, calls: int) -> str:
        path = self.folder / "viztracer.json"
        self.tracer.save(str(path))
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names = [event["name"].partition(" (")[0] for event in events if event["ph"] == "X"]
        seen = sum(name.rpartition(".")[2] == self.code.co_name for name in names)
        return compare("calls", seen, calls)


class Yappi(Tool):
    """yappi, in all threads."""

    name = "yappi"
    module = "yappi"

    def start(self) -> None:
        import yappi

        yappi.clear_stats()
        yappi.start()

    def stop(self) -> None:
        import yappi

        yappi.stop()

    def missing(self, calls: int) -> str:
        import yappi

        seen = sum(stat.ncall for stat in yappi.get_func_stats() if stat.name == self.code.co_name)
        return compare("calls", seen, calls)


class TraceMalloc(Tool):
    """tracemalloc, with the blocks that ``work`` has allocated and the program keeps."""

    name = "tracemalloc"

    def start(self) -> None:
        self.kept: list[bytearray] = []
        tracemalloc.start()

    def tick(self) -> None:
        self.kept.append(bytearray(1000))

    def stop(self) -> None:
        self.snapshot = tracemalloc.take_snapshot()
        tracemalloc.stop()

    def missing(self, calls: int) -> str:
        line = TraceMalloc.tick.__code__.co_firstlineno + 1
        stats = self.snapshot.statistics("lineno")
        seen = sum(
            any(frame.filename == __file__ and frame.lineno == line for frame in stat.traceback)
            and stat.size >= 1000 * calls
            for stat in stats
        )
        return "" if seen or not calls else "its blocks"


class Pdb(Tool):
    """pdb, with a breakpoint in ``work`` from which it goes on each time."""

    name = "pdb"

    def start(self) -> None:
        self.output = io.StringIO()
        debugger = pdb.Pdb(stdin=_Answers("continue\n"), stdout=self.output, nosigint=True, readrc=False)  # type: ignore[arg-type]
        debugger.use_rawinput = False
        self.debugger = debugger
        debugger.set_break(self.code.co_filename, self.code.co_firstlineno + 1)
        debugger.set_trace(sys._getframe())

    def stop(self) -> None:
        self.debugger.clear_all_breaks()
        self.debugger.set_continue()
        sys.settrace(None)

    def missing(self, calls: int) -> str:
        return compare("stops", self.output.getvalue().count(f"{self.code.co_name}()"), calls)


class _Answers(io.StringIO):
    def readline(self, *_: Any) -> str:  # type: ignore[override]
        return self.getvalue()


class Debugpy(Tool):
    """debugpy, which listens for an editor and traces this thread."""

    name = "debugpy"
    module = "debugpy"

    def start(self) -> None:
        import debugpy

        debugpy.configure(subProcess=False)
        debugpy.listen(("127.0.0.1", 0))
        debugpy.trace_this_thread(True)
        self.is_tracing = True
        self.silent = 0

    def tick(self) -> None:
        self.silent += not _somebody_traces()

    def stop(self) -> None:
        import debugpy

        debugpy.trace_this_thread(False)

    def missing(self, calls: int) -> str:
        return compare("calls", calls - self.silent, calls)


def _somebody_traces() -> bool:
    monitoring: Any = getattr(sys, "monitoring", None)
    return sys.gettrace() is not None or (monitoring is not None and monitoring.get_tool(0) is not None)


class PySpy(Tool):
    """py-spy, another process that reads the stacks of this one."""

    name = "py-spy"
    module = "py_spy"

    def start(self) -> None:
        self.read: list[str] = []

    def tick(self) -> None:
        command = [f"{sysconfig.get_path('scripts')}/py-spy", "dump", "--nonblocking", "--pid", str(os.getpid())]
        if len(self.read) < 3:
            self.read.append(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout)

    def stop(self) -> None:
        pass

    @classmethod
    def why_not(cls) -> str:
        return "" if Path(sysconfig.get_path("scripts"), "py-spy").exists() else "not installed"

    def missing(self, calls: int) -> str:
        seen = sum("tick" in text for text in self.read)
        return compare("stacks", seen, min(calls, 3))


PYTHON_TOOLS = (
    CProfile,
    ThreadCProfile,
    Profile,
    SetProfile,
    ThreadingSetProfile,
    SetTrace,
    SysMonitoring,
    Coverage,
    Memray,
    Pyinstrument,
    LineProfiler,
    VizTracer,
    Yappi,
    TraceMalloc,
    Pdb,
    Debugpy,
    PySpy,
)
