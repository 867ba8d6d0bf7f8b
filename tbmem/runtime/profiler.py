"""Records memory in scheduled windows of steps with torch.profiler."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tbmem.config.load import override_section
from tbmem.config.schema import ProfilingConfig, SnapshotConfig
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import WindowRecord
from tbmem.model.sample import MemorySample
from tbmem.present.lines import console_handler, show_finding
from tbmem.requirements import TorchFeature
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Lifecycle, find_rank
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.console import ProfilerConsole, too_large
from tbmem.runtime.profiling.next_spike import NextSpike
from tbmem.runtime.profiling.schedule import LEFT_OUT, Schedule, ScheduleState, describe_schedule, short_run_finding
from tbmem.runtime.profiling.snapshots import Snapshots
from tbmem.runtime.profiling.window import BYTES_PER_NODE, NO_STACKS, Window, profiler_is_busy
from tbmem.runtime.profiling.window_ledger import PLAIN_STEPS, WindowLedger
from tbmem.runtime.profiling.window_writer import WindowWriter
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory
from tbmem.sources.torch_state.profiler_state import graph_nodes, in_backward
from tbmem.units import parse_bytes

PART = "profiler"
_OTHER_THREAD = "profiler: step() came from another thread than start(); the window stays as it is"
_IN_BACKWARD = "profiler: steps end inside of a backward pass, where no window can begin or end"


class MemoryProfiler(Lifecycle):
    """Records memory in windows: wait, warm up, record, repeat.

    Use it alone as a context manager with ``step()`` after each training step, or through ``MemoryCallback``.
    An error while it runs is logged and switches it off; it never reaches the training loop.

    Args:
        config: Lengths of the windows and what to record.
        folder: Run folder for the files.
        snapshot: Memory history to record over the same windows; off by default.
        guard: Handles errors.
        on_window: Called with each window that was written, in the thread that wrote it.
        on_cut: Called when a window has ended in the middle of a step.
        findings: Returns what was found in the run so far: which windows are kept depends on it.
        console: Whether the schedule's states are logged as they come.
        **overrides: Fields of ``config`` by name, such as ``active=5``.

    Raises:
        ConfigError: An override is unknown or does not fit.
        RunFolderError: The folder cannot be written.
    """

    def __init__(
        self,
        config: ProfilingConfig | None = None,
        folder: str | os.PathLike[str] | RunFolder = "runs/profiler",
        *,
        snapshot: SnapshotConfig | None = None,
        guard: Guard | None = None,
        on_window: Callable[[WindowRecord], object] = lambda record: None,
        on_cut: Callable[[], object] = lambda: None,
        findings: Callable[[], Iterable[Finding]] = tuple,
        console: bool = True,
        **overrides: Any,
    ) -> None:
        super().__init__(guard)
        self.config = override_section("profiling", config or ProfilingConfig(), overrides)
        self.ledger = WindowLedger()
        self._folder = folder
        self._snapshot = snapshot or SnapshotConfig(enabled=False)
        self._snapshots: Snapshots
        self._next_spike: NextSpike | None = None
        self._console = ProfilerConsole(shows=console)
        self._writer = WindowWriter(self.config.keep, self.ledger, self._guard, self._console.log, on_window, findings)
        self._owns_folder, self._on_cut = False, on_cut
        self._addresses, self._schedule = AddressRecorder(), Schedule(self.config)
        self._window: Window | None = None
        self._step = self._nodes = self._step_nodes = self._resumed_after = 0
        self.is_done = False
        """Nothing is on or scheduled: ``step()`` need not be called."""
        self._step_began = 0.0
        self._gave_way = self._awaits_resume = self._has_reported_end = self._is_too_large = False
        self._interrupted: int | None = None  # the step at whose end an exception of the program came

    def __enter__(self) -> MemoryProfiler:
        super().__enter__()
        if self._console.shows:
            self._resources.enter_context(console_handler())
        return self

    def _stop(self, error: BaseException | None) -> None:
        self.stop(error)
        if self._owns_folder and isinstance(self._folder, RunFolder):
            self._folder.end()
        finding = self.short_run()
        if finding is not None:
            show_finding(finding)
        self._resources.close()

    @property
    def state(self) -> ScheduleState:
        """The schedule's state in the current step."""
        return self._schedule.at(self._step).state if self._is_running else ScheduleState.STOPPED

    @property
    def is_interfering(self) -> bool:
        """Whether a window is open, so that the host's memory includes the profiler's."""
        return self._window is not None

    def is_off_for(self, steps: int) -> bool:
        """Whether no window is open or begins in the next ``steps`` steps; for 0 whether none records now."""
        if not self._is_running or not self.config.enabled:
            return True
        if not steps and (window := self._window) is not None:
            return not window.is_recording
        return self._window is None and self._schedule.is_free(range(self._step, self._step + steps + 1))

    def expect(self, step: int, findings: Iterable[Finding]) -> None:
        """Record the next occurrence of a spike, once, if the schedule leaves it out.

        Of one that comes back after a period it is known in which step; for another one the allocator's history waits.

        Args:
            step: Number of steps that have ended.
            findings: What was found with the last of them.
        """
        for finding in findings:
            if finding.kind is FindingKind.SPIKE and self._next_spike is not None and self.config.enabled:
                self._next_spike.expect(finding, step + self._resumed_after)
        may_expect = self._is_running and self.config.enabled and not self._schedule.expected
        if not may_expect or not self._schedule.expect(findings, step, self._resumed_after):
            return
        if self.is_done:
            self.is_done, self._step = False, step + 1  # it was not called any more
        if self.config.address_book:
            self._addresses.open()

    @property
    def awaits_spike_on(self) -> str | None:
        """The device whose next spike is awaited."""
        return self._next_spike.device if self._next_spike is not None else None

    def look_for_spike(self, step: int, sample: MemorySample | None) -> bool:
        """Record the step that has just ended if it is the spike that is awaited; returns whether it was."""
        spike = self._next_spike if self._is_running else None
        return spike is not None and spike.step(step + self._resumed_after, sample, is_free=self._window is None)

    def watch(self, model: torch.nn.Module | None, *optimizers: torch.optim.Optimizer) -> None:
        """Name the model's parameters, buffers and modules as in ``named_parameters()``, and record optimizer state."""
        self._addresses.watch(model, *optimizers)

    def start(self, *, awaits_resume: bool = False) -> None:
        """Start before the first training step, or with ``awaits_resume`` before ``resume()``.

        Raises:
            UsageError: It was started before.
            RunFolderError: The folder cannot be written.
        """
        if not isinstance(self._folder, RunFolder) and (self.config.enabled or self._snapshot.enabled):
            self._folder = RunFolder(self._folder, find_rank().rank, guard=self._guard)
            self._owns_folder = True
        self._begin()
        if not isinstance(self._folder, RunFolder):
            self._ended = True
            return
        self._snapshots = Snapshots(self._snapshot, self._folder, self.ledger.snapshots)
        self._next_spike = NextSpike(self._snapshots)
        self._step, self._awaits_resume = 1, awaits_resume
        self._nodes = graph_nodes()
        self._guard.run(PART, self._open)

    def step(self) -> bool:
        """Record the end of a training step; returns whether the profiler did work of its own before the next."""
        try:
            if not self._is_running:
                return False
            if self.is_done:
                self._step += 1
                return False
            if self._window is not None and not self._window.is_own_thread:
                self._console.warn_once(_OTHER_THREAD)
                return False
            if in_backward():
                self._console.warn_once(_IN_BACKWARD)
                return False
            was_interrupted = self._interrupted is not None
            self._interrupted = self._step = self._step if self._interrupted is None else self._interrupted + 1
            busy = self._guard.run(PART, self._between_steps, was_interrupted)
            if PART in self._guard.failed:
                self._abandon()
            return bool(busy)
        except (RecursionError, MemoryError):
            self._guard.passed_over += 1
            return True

    def catch_up(self, steps: int) -> None:
        """Let ``steps`` steps have ended: an exception came before ``step()`` could count one."""
        if not self.is_done and self._step <= steps:
            self._interrupted = steps

    def _return_to_schedule(self) -> None:
        """Go on after an interrupted call: a window that was not taken to this step ends with what was recorded."""
        window, point = self._window, self._schedule.at(self._step)
        warms_up = point.state is ScheduleState.WARMUP
        if window is None:
            if warms_up:
                self._prepare_window(point.window)
        elif not window.goes_on(self._step + self._resumed_after, warms_up=warms_up):
            self._end_early(window, "an exception of the program has interrupted tbmem")

    def resume(self, after_step: int) -> None:
        """Continue the step numbers of a checkpoint; the schedule is that of a new run."""
        self._resumed_after = self._console.resumed_after = max(after_step, 0)
        awaited, self._awaits_resume = self._awaits_resume and self._is_running, False
        if awaited and self.config.enabled:
            self._guard.run(PART, self._begin_schedule)

    def mute(self) -> None:
        """Exclude what tbmem itself does at the end of the run from an open window."""
        if self._window is not None:
            self._window.mute()

    def stop(self, error: BaseException | None = None, *, has_snapshot: bool = False) -> None:
        """End the run, by ``error`` if given; an open window is written with the steps recorded so far.

        After an out-of-memory error a snapshot is written, unless there is one of that moment (``has_snapshot``).
        """
        if not self._is_running:
            return
        self._ended = True
        try:
            if error is not None and not has_snapshot and is_out_of_memory(error):
                self._guard.run("out-of-memory snapshot", self._snapshots.write_at_oom)
            self._guard.run(PART, self._close, error)
        finally:
            self._abandon()

    def snapshot(self, name: str) -> Path | None:
        """Take a memory snapshot, written in the background, ``name`` in its file's name; ``None`` if none can be."""
        return self._guard.run("snapshot", self._snapshots.write, name) if self._is_running else None

    def short_run(self) -> Finding | None:
        """A finding if the run ended before the schedule; ``None`` if all windows are complete."""
        if PART in self._guard.failed:
            return None
        steps, ledger, resumed = max(self._step - 1, 0), self.ledger, self._resumed_after
        return short_run_finding(self.config, steps, ledger.complete, len(ledger.windows), resumed_after=resumed)

    def _open(self) -> None:
        self._snapshots.find_history()
        if not self.config.enabled:
            self.is_done = not self._snapshots.waits_for_history
            return
        if self.config.address_book:
            self._addresses.open()
        if not self._awaits_resume:
            self._begin_schedule()

    def _begin_schedule(self) -> None:
        self._console.log("profiler · %s", describe_schedule(self.config, resumed_after=self._resumed_after))
        if self.config.address_book and (missing := TorchFeature.SAVED_TENSORS.missing):
            self._console.log("profiler · %s", missing)
        self._enter_step()

    def _between_steps(self, was_interrupted: bool) -> bool:
        if was_interrupted:
            self._return_to_schedule()
        if self._snapshots.waits_for_history:
            self._snapshots.find_history()
        busy, self._gave_way = self._leave_step() or self._gave_way, False
        self._step_nodes, self._nodes = graph_nodes() - self._nodes, graph_nodes()
        self._step += 1
        busy = self._enter_step() or busy
        self._interrupted = None
        return busy

    def _leave_step(self) -> bool:
        point = self._schedule.at(self._step)
        if self._window is None:
            if point.state is not ScheduleState.ACTIVE and not self._gave_way:
                self.ledger.plain_steps.append(time.perf_counter() - self._step_began)
            return False
        if self._window.is_cut:
            self._window.forget_step()
            self._end_early(self._window, "the program starts a profiler of Python calls (sys.setprofile)")
            return True
        self._window.end_step()
        if point.state is ScheduleState.ACTIVE and point.last:
            self._finish_window(self._window, complete=True)
            return True
        if self._window.others.are_waiting:
            self._end_early(self._window, "the program starts a torch profiler of its own")
            return True
        if self._window.is_too_large:
            self._end_early(self._window, too_large(self.config.max_records))
            return True
        return False

    def _enter_step(self) -> bool:
        point = self._schedule.at(self._step)
        busy = point.first and point.window > 0 and self._enter_state(point.state, point.window)
        if self._window is not None and self._window.is_recording:
            self._window.begin_step(self._step + self._resumed_after)
        else:
            self._step_began = time.perf_counter()
        stopped = point.state is ScheduleState.STOPPED
        measured = len(self.ledger.plain_steps) == PLAIN_STEPS or not self.config.enabled
        expects = self._schedule.expected >= self._step
        self.is_done = stopped and measured and not expects and not self._snapshots.waits_for_history
        if self.is_done:
            self._addresses.close()
        if stopped and not self._has_reported_end:
            self._has_reported_end = True
            self._console.log("profiler · off from step %d on", self._step + self._resumed_after)
        return busy

    def _enter_state(self, state: ScheduleState, number: int) -> bool:
        config = self.config
        if state is ScheduleState.WAIT:
            self._console.log("profiler · %s wait", self._console.steps(self._step, config.wait))
            return False
        is_extra = number > config.repeat > 0
        if state is ScheduleState.WARMUP or (config.warmup == 0 and not is_extra):
            self._prepare_window(number)
        window = self._window
        if window is None or state is ScheduleState.WARMUP:
            return window is not None
        if self._step_nodes * BYTES_PER_NODE > parse_bytes(config.max_records):
            self._leave_out(window)
            self._console.warn_of_large_step(self.config.max_records)
            return True
        of = ": the next occurrence of a spike" if is_extra else f" of {config.repeat}" if config.repeat else ""
        steps = self._console.steps(self._step, 2 if is_extra else config.active)
        self._console.log("profiler · %s recording (window %d%s)", steps, number, of)
        window.begin()
        if window.lacks_stacks:
            self._console.warn_once(f"profiler: {NO_STACKS}")
        return True

    def _prepare_window(self, number: int) -> None:
        if self._is_too_large:
            return
        if self._snapshots.folder.writer.is_full:
            self._console.warn_once(
                "profiler: windows are left out while the disk is behind: earlier ones wait to be written"
            )
            return
        if threading.current_thread() is not threading.main_thread():
            # torch.profiler crashes the interpreter if its thread ends while it is on
            self._console.warn_once("profiler: windows are recorded in the main thread; training runs in another one")
            return
        if profiler_is_busy():
            end = self._schedule.postpone(number)
            self._console.warn_of_end("another torch profiler is running", self._step, number, end)
            return
        self._snapshots.find_history()
        self._window = Window(
            self.config,
            self._snapshots.folder,
            number=number,
            addresses=self._addresses if self.config.address_book else None,
            history=self._snapshots.history,
            give_way=partial(self._end_within_step, "the program starts a torch profiler of its own"),
            at_limit=partial(self._end_within_step, too_large(self.config.max_records)),
        )
        self._window.result.prepared = self._step + self._resumed_after
        self._window.prepare()
        if self.config.warmup:
            count = 1 if number > self.config.repeat > 0 else self.config.warmup
            self._console.log("profiler · %s warm-up", self._console.steps(self._step, count))

    def _end_within_step(self, why: str) -> None:
        """End the window with the previous step: in this one the program starts a profiler, or records fill memory."""
        window, self._gave_way = self._window, True
        if window is None:
            return
        if window.is_recording:
            self._guard.run(PART, window.forget_step)
        self._guard.run(PART, self._end_early, window, why)
        self._on_cut()
        if PART in self._guard.failed:
            self._abandon()

    def _end_early(self, window: Window, why: str) -> None:
        """Write the steps recorded so far."""
        number, steps = window.result.number, window.result.steps
        end = f"ends after step {steps[-1]}" if steps else LEFT_OUT
        if not steps and not window.is_too_large:
            end = self._schedule.postpone(number)
        self._console.warn_of_end(why, self._step, number, end)
        if window.is_recording and steps:
            self._finish_window(window, complete=False)
            return
        if window.files is not None:
            self._hand_over(window)  # an exception of the program came after it was recorded
            return
        self._is_too_large = self._is_too_large or window.is_too_large
        self._leave_out(window)
        if window.is_too_large:
            self._console.warn_of_large_step(self.config.max_records)

    def _leave_out(self, window: Window) -> None:
        window.discard()
        self._window = None  # afterwards: an exception of the program may come first

    def _finish_window(self, window: Window, *, complete: bool) -> None:
        window.finish(complete=complete)
        self._hand_over(window)

    def _hand_over(self, window: Window) -> None:
        """Have a window that has ended written."""
        self._window = None
        if window.files is not None:
            self._writer.put(window.result, window.files)
            if not window.result.history_is_whole and window.files.snapshot is not None:
                self._snapshots.warn_of_overflow(window.files.snapshot[0].name)

    def note_level(self, bytes_in_use: int) -> None:
        """Note the highest level of the step that has just ended; windows with the highest are kept."""
        if self._window is not None and self._window.is_recording:
            self._window.result.peak = max(self._window.result.peak, bytes_in_use)

    def _close(self, error: BaseException | None) -> None:
        window = self._window
        if window is not None and window.is_recording:
            if error is None and self._interrupted is None:
                window.forget_step()
            if window.result.steps:
                self._finish_window(window, complete=False)

    def _abandon(self) -> None:
        self.is_done = True
        window, self._window = self._window, None
        if window is not None:
            self._guard.run("profiler (switching off)", window.discard)
        if self._next_spike is not None:
            self._guard.run("next spike (switching off)", self._next_spike.stop)
        self._guard.run("snapshot (switching off)", self._snapshots.stop)
        self._guard.run("address book (switching off)", self._addresses.close)
