"""Records profiler windows: trace, address book, snapshot and their cost."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tbmem.config.schema import ProfilingConfig
from tbmem.model.files import atomic_write, compress
from tbmem.model.run_summary import ProfilerCost
from tbmem.model.trace_additions import TraceAdditions
from tbmem.present.lines import get_logger
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.records_limit import RecordsLimit
from tbmem.sources.counters.devices import devices_in_use
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.own_memory import OwnUse
from tbmem.sources.gc_pause import gc_paused
from tbmem.sources.retainers.older_storages import OlderStoragesTracker
from tbmem.sources.survivors.frame_lines import UserLines
from tbmem.sources.survivors.profiler_events import noted_lines
from tbmem.sources.torch_state import call_tracer, profiler_state
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tbmem.sources.torch_state.trace_export import export_trace
from tbmem.units import parse_bytes

BYTES_PER_NODE = 5 << 10
"""Records of torch's for each autograd node of a step, with shapes and stacks, before they are collected; measured with
LSTM cells (4 KiB) and a transformer (6.5 KiB) on the CPU, torch 2.13. Collected they take 40 KiB and 0.4 ms."""
_COLLECTED = 10
"""Times ``profiling.max_records`` by which the resident memory may grow in a window: it is the program's as well."""
HISTORY_TAKEN = (
    "the program has switched memory history on or off itself meanwhile; it is the program's now, and the snapshot has"
    " what that has left"
)
NO_STACKS = (
    "the program profiles its Python calls itself (cProfile, sys.setprofile, ...), and Python has one such function for"
    " each thread; what is recorded meanwhile has no stacks"
)
PLAIN_STEPS = 256
"""Number of steps outside windows whose duration is kept."""


@dataclass(slots=True, kw_only=True)
class WindowResult:
    """Steps, files and cost of a window."""

    number: int
    """1 for the first window of a run."""
    steps: list[int] = field(default_factory=list)
    complete: bool = False
    """All steps of the window were run."""
    trace: Path | None = None
    address_book: Path | None = None
    snapshot: Path | None = None
    history_is_whole: bool = True
    """False if the snapshot's ring buffer overflowed."""
    step_seconds: list[float] = field(default_factory=list)
    writing_seconds: float = 0.0
    """Time in which the training loop waited for records to be collected and written."""
    host_before: int = 0
    """Resident bytes of the process before the profiler was on."""
    host_after: int = 0
    """Resident bytes with all records collected and written."""
    bytes_written: int = 0

    @property
    def files(self) -> list[Path]:
        """Every file that was written."""
        return [path for path in (self.trace, self.address_book, self.snapshot) if path is not None]


@dataclass(slots=True)
class WindowLedger:
    """Files and cost of a run's windows."""

    windows: list[WindowResult] = field(default_factory=list)
    snapshots: list[Path] = field(default_factory=list)
    """Snapshots of windows, of the user and of out-of-memory errors."""
    plain_steps: deque[float] = field(default_factory=lambda: deque(maxlen=PLAIN_STEPS))

    def add(self, window: WindowResult) -> None:
        """Add a finished window."""
        self.windows.append(window)
        if window.snapshot is not None:
            self.snapshots.append(window.snapshot)

    @property
    def recorded(self) -> dict[Path, range]:
        """The traces and their steps, in order."""
        traced = ((window.trace, window.steps) for window in self.windows)
        return {trace: range(steps[0], steps[-1] + 1) for trace, steps in traced if trace is not None}

    @property
    def traces(self) -> list[Path]:
        """The traces, in order."""
        return list(self.recorded)

    @property
    def address_books(self) -> list[Path]:
        """The address books, in order."""
        return [window.address_book for window in self.windows if window.address_book is not None]

    def cost(self) -> ProfilerCost | None:
        """Cost of profiling; ``None`` if no step was recorded."""
        recorded = [seconds for window in self.windows for seconds in window.step_seconds]
        if not recorded:
            return None
        from statistics import median  # slow to import

        return ProfilerCost(
            windows=len(self.windows),
            recorded_steps=len(recorded),
            recorded_step_seconds=median(recorded),
            plain_step_seconds=median(self.plain_steps) if self.plain_steps else None,
            writing_seconds=sum(window.writing_seconds for window in self.windows),
            host_bytes=max(max(window.host_after - window.host_before, 0) for window in self.windows),
            trace_bytes=sum(window.bytes_written for window in self.windows),
        )


class Window:
    """A range of steps under ``torch.profiler``.

    The order is ``prepare`` (warm-up), ``begin``, then ``begin_step`` and ``end_step`` for each step, and at last
    ``finish``. ``discard`` may come at any moment, and leaves nothing switched on. ``give_way`` is called before a
    profiler of the program's own begins; it has to ``finish`` or ``discard``, and so has ``at_limit``, called in the
    middle of a step when the records need more memory than ``profiling.max_records``.
    """

    current: Window | None = None
    """The open window of this process, in warm-up or recording."""

    def __init__(
        self,
        config: ProfilingConfig,
        folder: RunFolder,
        *,
        number: int,
        addresses: AddressRecorder | None,
        give_way: Callable[[], object],
        history: MemoryHistory | None = None,
        at_limit: Callable[[], object] | None = None,
    ) -> None:
        self.result = WindowResult(number=number)
        self._config = config
        self._folder = folder
        self._addresses = addresses
        self._history, self._began_history = history, False
        self._quiet = profiler_state.QuietTorch()
        self._ranges = profiler_state.OpenRanges()
        self._tracer = call_tracer.CallTracer()
        self._with_stack = config.with_stack
        self.others = profiler_state.OtherProfilers(give_way, _warn_of_refusal)
        self.is_recording = False
        """Whether steps are being recorded (not merely warmed up for)."""
        self._at_limit = at_limit
        self._limit: RecordsLimit | None = None
        self._host: HostMemory | None = None
        self._is_on = False  # warming up or recording
        self._profile: profile | None = None
        self._own_use: OwnUse | None = None
        self._trace: Path | None = None
        self._older = OlderStoragesTracker()
        self._annotation: Any = None
        self._thread = threading.get_ident()
        self._step_began = 0.0

    def prepare(self) -> None:
        """Warm up: the profiler is on, its records are discarded."""
        Window.current = self
        self._own_use = OwnUse()
        with self._own_use.working():
            self._switch_on()

    def _switch_on(self) -> None:
        self.result.host_before = psutil.Process().memory_info().rss
        if self._at_limit is not None:
            self._host = HostMemory(workers=False)
        self._quiet.begin()
        self._ranges.begin()
        shapes, stacks = self._config.record_shapes, self._with_stack
        self._profile = profile(activities=_activities(), record_shapes=shapes, profile_memory=True, with_stack=stacks)
        profiler_state.import_ahead()
        with profiler_state.quiet_kineto():
            self._profile.prepare_trace()
        self._is_on = True
        self.others.begin()

    def begin(self) -> None:
        """Start recording."""
        assert self._profile is not None, "prepare comes first"
        assert self._own_use is not None
        with self._own_use.working():
            if self._history is not None:
                self._began_history = self._history.start()
            self._trace = self._folder.trace(time.time_ns())
            self._older.begin()
            if self._addresses is not None:
                # before the trace starts, which would record the calls
                self._addresses.begin()
            self._begin_limit()
            if self._with_stack and call_tracer.program_profiles():
                self._leave_out_stacks(self._profile)
            with self.others.own():
                self._profile.start_trace()
            if self._with_stack:
                self._tracer.begin()
        self.is_recording = True

    def _leave_out_stacks(self, prepared: profile) -> None:
        """Do not set torch's tracer of calls, which would replace a profile function of the program's."""
        self._with_stack = prepared.with_stack = False
        if prepared.profiler is not None:
            prepared.profiler.with_stack = False

    @property
    def lacks_stacks(self) -> bool:
        """Whether stacks were asked for, and left out because the program has a profile function."""
        return self.is_recording and self._config.with_stack and not self._with_stack

    @property
    def is_cut(self) -> bool:
        """Whether the program has set a profile function meanwhile, so that stacks are wrong from there on."""
        return self.is_recording and self.is_own_thread and self._tracer.is_cut

    def _begin_limit(self) -> None:
        """Watch the records: operators that are differentiated count exactly, others by the memory they need."""
        host, most = self._host, parse_bytes(self._config.max_records)
        if host is None or self._at_limit is None:
            return
        highest = max(host.peak_rss() or 0, host.rss()) + _COLLECTED * most
        nodes = profiler_state.graph_nodes() + most // BYTES_PER_NODE
        self._limit = RecordsLimit(
            lambda: profiler_state.graph_nodes() > nodes or host.rss_meanwhile() > highest, self._at_limit
        )
        self._limit.start()

    @property
    def is_too_large(self) -> bool:
        """Whether the records need more memory than they may."""
        return self._limit is not None and self._limit.is_exceeded

    def begin_step(self, step: int) -> None:
        """Start a training step with the annotation that viewers use."""
        self.result.steps.append(step)
        self._annotation = record_function(f"ProfilerStep#{step}")
        self._annotation.__enter__()
        self._step_began = time.perf_counter()

    def end_step(self) -> None:
        """End the training step."""
        if self._annotation is not None and self.is_own_thread:
            annotation, self._annotation = self._annotation, None
            self.result.step_seconds.append(time.perf_counter() - self._step_began)
            annotation.__exit__(None, None, None)

    def forget_step(self) -> None:
        """Discard the last step, which did not run."""
        self.end_step()
        self.result.steps.pop()
        self.result.step_seconds.pop()

    def finish(self, *, complete: bool) -> WindowResult:
        """Stop recording and write everything; after an OSError nothing is left switched on, and no half file."""
        assert self._trace is not None, "begin comes first"
        assert self._own_use is not None
        began = time.perf_counter()
        self.result.complete = complete
        self._end_limit()
        try:
            with self._own_use.working(collects=True):
                self._write(self._trace)
        finally:
            self.discard()
            self.result.writing_seconds += time.perf_counter() - began
        return self.result

    def _write(self, trace: Path) -> None:
        result = self.result
        self.end_step()
        self.mute()
        self._write_book(trace)
        self._stop_profile()
        if self._history is not None:
            path = self._folder.snapshot(result.number)
            result.history_is_whole = self._history.write(path)
            result.snapshot = path
            if self._history.was_taken:
                get_logger().warning("profiler: %s", HISTORY_TAKEN)
        try:
            self._write_trace(trace)
        except OSError:
            if result.address_book is not None and result.snapshot is None:
                result.address_book.unlink(missing_ok=True)  # of use beside a recording only
            raise
        result.host_after = psutil.Process().memory_info().rss
        result.bytes_written = sum(path.stat().st_size for path in result.files)

    def discard(self) -> None:
        """Switch everything off and write nothing more."""
        own_use, self._own_use = self._own_use, None
        with own_use.working(collects=True) if own_use is not None else nullcontext():
            self._switch_off()
        if own_use is not None:
            own_use.give_back()

    def _switch_off(self) -> None:
        self._end_limit()
        try:
            self.end_step()
            if self._addresses is not None:
                self._addresses.abandon()
            self._older.forget()
            self._stop_profile()
        finally:
            if self._profile is not None:
                # torch's object is part of a reference cycle, which would keep its records alive
                vars(self._profile).clear()
                self._profile = None
            if self._history is not None and self._began_history:
                self._history.stop()
            self._tracer.end()
            self._ranges.end()
            self.others.end()
            self._quiet.end()
            if Window.current is self:
                Window.current = None

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.stop()
        if self._host is not None:
            self._host.close()
            self._host = None

    def mute(self) -> None:
        """Stop recording Python calls in this thread: what follows is tbmem's own work, not the program's."""
        if self.is_recording and self.is_own_thread:
            # torch's tracer is the profile function; it checks this before it removes itself
            call_tracer.end_tracing()

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread that opened the window, the only one that may close it."""
        return self._thread == threading.get_ident()

    def _stop_profile(self) -> None:
        was_recording, was_on = self.is_recording, self._is_on
        self.is_recording = self._is_on = False
        if self._profile is not None and not self.is_own_thread:
            # stopping a profile in another thread crashes the process
            self._profile = None
            raise RuntimeError("the window was opened in another thread; start, step and stop in the same one")
        if self._profile is None or not was_on:
            return
        if not was_recording and not torch._C._autograd._profiler_enabled():
            # a profile in warm-up can only be stopped after it was started
            self._leave_out_stacks(self._profile)
            with self.others.own():
                self._profile.start_trace()
        self._ranges.end_open()
        profiler_state.let_collectives_settle()
        with self._tracer.stopping():
            self._profile.stop_trace()

    def _write_book(self, trace: Path) -> None:
        if self._addresses is None:
            return
        result, steps = self.result, self.result.steps
        first, last = (steps[0], steps[-1]) if steps else (None, None)
        about = {"window": result.number, "first_step": first, "last_step": last, "complete": result.complete}
        book = self._addresses.end({**about, "pid": os.getpid(), "trace": trace.name})
        result.address_book = self._folder.write_address_book(book, trace)

    def _write_trace(self, trace: Path) -> None:
        assert self._profile is not None
        with atomic_write(trace) as packed:
            plain = packed.with_name(f"{packed.name}.json")
            try:
                export_trace(self._profile, plain)
                self._additions(self._profile).append_to(plain)
                compress(plain, packed)
            finally:
                plain.unlink(missing_ok=True)
        self.result.trace = trace

    def _additions(self, recorded: profile) -> TraceAdditions:
        """Information that the trace itself lacks; errors leave it out."""
        lines = TraceAdditions()
        if self._with_stack:
            try:
                with gc_paused():
                    results: Any = getattr(recorded.profiler, "kineto_results", None)
                    lines = noted_lines(results.experimental_event_tree(), UserLines())
            except Exception:
                get_logger().debug("the lines of the trace are not known", exc_info=True)
        return replace(lines, older=self._older.end())


def _warn_of_refusal() -> None:
    get_logger().warning(
        "profiler: the program starts a torch profiler where tbmem's window cannot end (in another thread while a step"
        " lasts, or inside of a backward pass); torch has one at a time, so the program's stays empty"
    )


def profiler_is_busy() -> bool:
    """Whether a torch profiler runs or warms up in this process; there can be only one."""
    is_on = Window.current is not None or bool(torch._C._autograd._profiler_enabled())
    return is_on or profiler_state.prepared_profiles()


def _activities() -> list[ProfilerActivity]:
    activities = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    kinds = {name.partition(":")[0] for name in devices_in_use()}
    return [ProfilerActivity.CPU, *(activity for kind, activity in activities.items() if kind in kinds)]
