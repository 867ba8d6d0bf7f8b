"""Records profiler windows: trace, address book, snapshot and their cost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tbmem.config.schema import ProfilingConfig
from tbmem.interruption import completed, interruption_in, raise_interruption
from tbmem.model.address_book import AddressBook
from tbmem.model.trace_additions import TraceAdditions
from tbmem.present.lines import get_logger
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.exported_trace import export_to_memory
from tbmem.runtime.profiling.records_limit import RecordsLimit
from tbmem.runtime.profiling.window_files import WindowFiles
from tbmem.runtime.profiling.window_ledger import WindowResult
from tbmem.sources.counters.devices import devices_in_use
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.own_memory import OwnUse
from tbmem.sources.retainers.older_storages import OlderStoragesTracker
from tbmem.sources.survivors.frame_lines import UserLines
from tbmem.sources.survivors.profiler_events import noted_lines
from tbmem.sources.torch_state import call_tracer, profiler_state
from tbmem.sources.torch_state.forked_children import let_children_end
from tbmem.sources.torch_state.memory_history import MemoryHistory
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
        self.files: WindowFiles | None = None
        """What was recorded, once the window has ended."""
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
        _end_in_children()
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
        let_children_end()
        with self._quiet.starting_kineto():
            self._profile.prepare_trace()
        self._is_on = True
        self.others.begin()

    def begin(self) -> None:
        """Start recording."""
        assert self._profile is not None, "prepare comes first"  # nosec B101  # for the type checker
        assert self._own_use is not None  # nosec B101  # for the type checker
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

    def goes_on(self, step: int, *, warms_up: bool) -> bool:
        """Whether it is where it has to be in a step, in which it records, or ``warms_up``."""
        if warms_up:
            return self._is_on and not self.is_recording
        return self.is_recording and self.result.steps[-1:] == [step]

    @property
    def is_too_large(self) -> bool:
        """Whether the records need more memory than they may."""
        return self._limit is not None and self._limit.is_exceeded

    def begin_step(self, step: int) -> None:
        """Start a training step with the annotation that viewers use."""
        annotation: Any = record_function(f"ProfilerStep#{step}")
        annotation.__enter__()
        self._annotation = annotation
        self._step_began = time.perf_counter()
        self.result.steps.append(step)

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
        del self.result.step_seconds[len(self.result.steps) :]

    def finish(self, *, complete: bool) -> None:
        """Stop recording; what was recorded is in ``files``, to be written. Whatever is raised, nothing is left on."""
        assert self._trace is not None, "begin comes first"  # nosec B101  # for the type checker
        assert self._own_use is not None  # nosec B101  # for the type checker
        began = time.perf_counter()
        self.result.complete = complete
        self._end_limit()
        try:
            with self._own_use.working(collects=True):
                self._collect(self._trace)
            self.result.host_after -= self._own_use.program_growth
        finally:
            self.discard()
            self.result.writing_seconds += time.perf_counter() - began

    def _collect(self, trace: Path) -> None:
        result = self.result
        self.end_step()
        self.mute()
        book = self._end_book(trace)
        self._stop_profile()
        snapshot = None
        if self._history is not None:
            data, result.history_is_whole = self._history.pickled(redaction=self._folder.redaction)
            snapshot = (self._folder.snapshot(result.number), data)
            if self._history.was_taken:
                get_logger().warning("profiler: %s", HISTORY_TAKEN)
        completed(self._export, trace, book, snapshot)
        result.host_after = psutil.Process().memory_info().rss

    def _export(self, trace: Path, book: AddressBook | None, snapshot: tuple[Path, bytes] | None) -> None:
        assert self._profile is not None  # nosec B101  # for the type checker
        content = None
        try:
            content = export_to_memory(self._profile.export_chrome_trace)
            size = content.seek(0, os.SEEK_END) + (len(snapshot[1]) if snapshot is not None else 0)
            additions = self._additions(self._profile)
            self.files = WindowFiles(
                folder=self._folder,
                trace=trace,
                content=content,
                size=size,
                additions=additions,
                book=book,
                snapshot=snapshot,
            )
        except BaseException:
            if content is not None:
                content.close()
            raise

    def discard(self) -> None:
        """Switch everything off and write nothing more."""
        own_use = self._own_use
        with own_use.working(collects=True) if own_use is not None else nullcontext():
            completed(self._switch_off)
        self._own_use = None
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
        except BaseException as error:
            # in these cases torch's profiler may be on still: it is stopped by another call, which has room for it
            if not isinstance(error, (RecursionError, MemoryError)) and interruption_in(error) is None:
                self._clear()
            raise
        self._clear()

    def _clear(self) -> None:
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

    def end_in_child(self) -> None:
        """Switch everything off in a process that was forked meanwhile; its parent goes on."""
        self._is_on = self.is_recording  # in warm-up nothing is recorded that had to be stopped
        with suppress(Exception):
            self._switch_off()

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
        if self._profile is not None and not self.is_own_thread:
            # stopping a profile in another thread crashes the process
            self._profile = None
            self.is_recording = self._is_on = False
            raise RuntimeError("the window was opened in another thread; start, step and stop in the same one")
        if self._profile is not None and self._is_on:
            if not self.is_recording and not torch._C._autograd._profiler_enabled():
                # a profile in warm-up can only be stopped after it was started
                self._leave_out_stacks(self._profile)
                with self.others.own():
                    self._profile.start_trace()
            self._ranges.end_open()
            profiler_state.let_collectives_settle()
            if torch._C._autograd._profiler_enabled():  # or it was stopped when an exception of the program came
                self._tracer.stop(self._profile.stop_trace)
        self.is_recording = self._is_on = False

    def _end_book(self, trace: Path) -> AddressBook | None:
        if self._addresses is None:
            return None
        result, steps = self.result, self.result.steps
        first, last = (steps[0], steps[-1]) if steps else (None, None)
        about = {"window": result.number, "first_step": first, "last_step": last, "complete": result.complete}
        return self._addresses.end({**about, "pid": os.getpid(), "trace": trace.name})

    def _additions(self, recorded: profile) -> TraceAdditions:
        """Information that the trace itself lacks; errors leave it out."""
        lines = TraceAdditions()
        if self._with_stack:
            try:
                results: Any = getattr(recorded.profiler, "kineto_results", None)
                lines = noted_lines(results.experimental_event_tree(), UserLines())
            except Exception as error:
                raise_interruption(error)
                get_logger().debug("the lines of the trace are not known", exc_info=True)
        return replace(lines, older=self._older.end())


def _warn_of_refusal() -> None:
    get_logger().warning(
        "profiler: the program starts a torch profiler where tbmem's window cannot end (in another thread while a step"
        " lasts, or inside of a backward pass); torch has one at a time, so the program's stays empty"
    )


@cache
def _end_in_children() -> None:
    """A process that is forked meanwhile (a worker of a data loader) would record for ever, and grow."""

    def end() -> None:
        if Window.current is not None:
            Window.current.end_in_child()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=end)


def profiler_is_busy() -> bool:
    """Whether a torch profiler runs or warms up in this process; there can be only one."""
    is_on = Window.current is not None or bool(torch._C._autograd._profiler_enabled())
    return is_on or profiler_state.prepared_profiles()


def _activities() -> list[ProfilerActivity]:
    activities = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    kinds = {name.partition(":")[0] for name in devices_in_use()}
    return [ProfilerActivity.CPU, *(activity for kind, activity in activities.items() if kind in kinds)]
