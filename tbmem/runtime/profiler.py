"""Records memory in scheduled windows of steps with torch.profiler."""

from __future__ import annotations

import logging
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
from tbmem.present.lines import console_handler, get_logger, show_finding
from tbmem.requirements import TorchFeature
from tbmem.runtime.process.guard import WRITING, Guard
from tbmem.runtime.process.lifecycle import Lifecycle, find_rank
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.next_spike import NextSpike
from tbmem.runtime.profiling.schedule import (
    SchedulePoint,
    ScheduleState,
    describe_schedule,
    is_free,
    next_occurrence,
    occurrence_at,
    schedule_at,
    short_run_finding,
)
from tbmem.runtime.profiling.snapshots import Snapshots
from tbmem.runtime.profiling.window import (
    BYTES_PER_NODE,
    NO_STACKS,
    PLAIN_STEPS,
    Window,
    WindowLedger,
    profiler_is_busy,
)
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory
from tbmem.sources.torch_state.profiler_state import graph_nodes, in_backward
from tbmem.units import format_bytes, parse_bytes

PART = "profiler"


class MemoryProfiler(Lifecycle):
    """Records memory in windows: wait, warm up, record, repeat.

    Use it alone as a context manager with ``step()`` after each training step, or through ``MemoryCallback``.
    An error while it runs is logged and switches it off; it never reaches the training loop.

    Args:
        config: Lengths of the windows and what to record.
        folder: Run folder for the files.
        snapshot: Memory history to record over the same windows; off by default.
        guard: Handles errors.
        on_window: Called with each window that was written.
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
        on_window: Callable[[WindowRecord], None] | None = None,
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
        self._on_window = on_window or (lambda record: None)
        self._level = logging.INFO if console else logging.DEBUG
        self._addresses = AddressRecorder()
        self._window: Window | None = None
        self._step = 0
        self.is_done = False
        """Nothing is on or scheduled: ``step()`` need not be called."""
        self._warned: set[str] = set()
        self._step_began = 0.0
        self._gave_way = self._awaits_resume = self._has_reported_end = self._is_too_large = False
        self._nodes = self._step_nodes = 0
        self._resumed_after = self._expected = 0

    def __enter__(self) -> MemoryProfiler:
        super().__enter__()
        if self._level == logging.INFO:
            self._resources.enter_context(console_handler())
        return self

    def _stop(self, error: BaseException | None) -> None:
        self.stop(error)
        finding = self.short_run()
        if finding is not None:
            show_finding(finding)
        self._resources.close()

    @property
    def state(self) -> ScheduleState:
        """The schedule's state in the current step."""
        return self._point(self._step).state if self._is_running else ScheduleState.STOPPED

    @property
    def is_interfering(self) -> bool:
        """Whether a window is open, so that the host's memory includes the profiler's."""
        return self._window is not None

    def is_off_for(self, steps: int) -> bool:
        """Whether no window is open or begins in the next ``steps`` steps."""
        if not self._is_running or not self.config.enabled:
            return True
        coming = {self._point(step).state for step in range(self._step, self._step + steps + 1)}
        return self._window is None and coming <= {ScheduleState.WAIT, ScheduleState.STOPPED}

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
        periodic = (finding for finding in findings if finding.kind is FindingKind.PERIODIC)
        config, after = self.config, self._resumed_after
        expected = next((next_occurrence(each, step + after) - after for each in periodic), None)
        if expected is None or self._expected or not self._is_running or not config.enabled or not config.repeat:
            return
        if not is_free(range(expected - 2, expected + 1), config):
            return
        self._expected = expected
        if self.is_done:
            self.is_done, self._step = False, step + 1  # it was not called any more
        if config.address_book:
            self._addresses.open()

    @property
    def awaits_spike_on(self) -> str | None:
        """The device whose next spike is awaited."""
        return self._next_spike.device if self._next_spike is not None else None

    def look_for_spike(self, step: int, sample: MemorySample | None) -> bool:
        """Record the step that has just ended if it is the spike that is awaited; returns whether it was."""
        if self._next_spike is None or not self._is_running:
            return False
        return self._next_spike.step(step + self._resumed_after, sample, is_free=self._window is None)

    def _point(self, step: int) -> SchedulePoint:
        return occurrence_at(step, self._expected, self.config) or schedule_at(step, self.config)

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
            self._folder = RunFolder(self._folder, find_rank().rank)
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
        if not self._is_running:
            return False
        if self.is_done:
            self._step += 1
            return False
        if self._window is not None and not self._window.is_own_thread:
            self._warn_once("profiler: step() came from another thread than start(); the window stays as it is")
            return False
        if in_backward():
            self._warn_once("profiler: steps end inside of a backward pass, where no window can begin or end")
            return False
        busy = self._guard.run(PART, self._between_steps)
        if PART in self._guard.failed:
            self._abandon()
        return bool(busy)

    def resume(self, after_step: int) -> None:
        """Continue the step numbers of a checkpoint; the schedule is that of a new run."""
        self._resumed_after = max(after_step, 0)
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
            # switched off even if writing is interrupted
            self._abandon()

    def snapshot(self, name: str) -> Path | None:
        """Write a memory snapshot now; ``name`` is part of its file's name. ``None`` if the device supports none."""
        return self._guard.run("snapshot", self._snapshots.write, name) if self._is_running else None

    def short_run(self) -> Finding | None:
        """A finding if the run ended before the schedule; ``None`` if all windows are complete."""
        if PART in self._guard.failed:
            return None
        complete = sum(window.complete for window in self.ledger.windows)
        steps, traces = max(self._step - 1, 0), len(self.ledger.traces)
        return short_run_finding(self.config, steps, complete, traces, resumed_after=self._resumed_after)

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
        self._log("profiler · %s", describe_schedule(self.config, resumed_after=self._resumed_after))
        if self.config.address_book and (missing := TorchFeature.SAVED_TENSORS.missing):
            self._log("profiler · %s", missing)
        self._enter_step()

    def _between_steps(self) -> bool:
        if self._snapshots.waits_for_history:
            self._snapshots.find_history()
        busy = self._leave_step() or self._gave_way
        self._gave_way = False
        self._step_nodes, self._nodes = graph_nodes() - self._nodes, graph_nodes()
        self._step += 1
        return self._enter_step() or busy

    def _leave_step(self) -> bool:
        point = self._point(self._step)
        if self._window is None:
            if point.state is not ScheduleState.ACTIVE:
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
            self._end_early(self._window, self._too_large())
            return True
        return False

    def _enter_step(self) -> bool:
        point = self._point(self._step)
        busy = point.first and point.window > 0 and self._enter_state(point.state, point.window)
        if self._window is not None and self._window.is_recording:
            self._window.begin_step(self._step + self._resumed_after)
        else:
            self._step_began = time.perf_counter()
        stopped = point.state is ScheduleState.STOPPED
        measured = len(self.ledger.plain_steps) == PLAIN_STEPS or not self.config.enabled
        self.is_done = stopped and measured and self._expected < self._step and not self._snapshots.waits_for_history
        if self.is_done:
            self._addresses.close()
        if stopped and not self._has_reported_end:
            self._has_reported_end = True
            self._log("profiler · off from step %d on", self._step + self._resumed_after)
        return busy

    def _enter_state(self, state: ScheduleState, number: int) -> bool:
        config = self.config
        if state is ScheduleState.WAIT:
            self._log("profiler · %s wait", self._steps(config.wait))
            return False
        is_extra = number > config.repeat > 0
        if state is ScheduleState.WARMUP or (config.warmup == 0 and not is_extra):
            self._prepare_window(number)
        window = self._window
        if window is None or state is ScheduleState.WARMUP:
            return window is not None
        if self._step_nodes * BYTES_PER_NODE > parse_bytes(config.max_records):
            self._leave_out_too_large(window)
            return True
        of = ": the next occurrence of a spike" if is_extra else f" of {config.repeat}" if config.repeat else ""
        self._log("profiler · %s recording (window %d%s)", self._steps(2 if is_extra else config.active), number, of)
        window.begin()
        if window.lacks_stacks:
            self._warn_once(f"profiler: {NO_STACKS}")
        return True

    def _prepare_window(self, number: int) -> None:
        if WRITING in self._guard.failed or self._is_too_large:
            return
        if threading.current_thread() is not threading.main_thread():
            # torch.profiler crashes the interpreter if its thread ends while it is on
            self._warn_once("profiler: windows are recorded in the main thread only; training runs in another thread")
            return
        if profiler_is_busy():
            line = f"profiler: another torch profiler is running at step {self._step}; window {number} is left out"
            self._warn_once(line, of="another torch profiler")
            return
        config = self.config
        self._snapshots.find_history()
        self._window = Window(
            config,
            self._snapshots.folder,
            number=number,
            addresses=self._addresses if config.address_book else None,
            history=self._snapshots.history,
            give_way=partial(self._end_within_step, "the program starts a torch profiler of its own"),
            at_limit=partial(self._end_within_step, self._too_large()),
        )
        self._window.prepare()
        if config.warmup:
            self._log("profiler · %s warm-up", self._steps(1 if number > config.repeat > 0 else config.warmup))

    def _too_large(self) -> str:
        return f"records need more than {format_bytes(parse_bytes(self.config.max_records))} (profiling.max_records)"

    def _end_within_step(self, why: str) -> None:
        """End the window with the previous step: in this one the program starts a profiler, or records fill memory."""
        window, self._gave_way = self._window, True
        if window is None:
            return
        if window.is_recording:
            self._guard.run(PART, window.forget_step)
        self._guard.run(PART, self._end_early, window, why)
        if PART in self._guard.failed:
            self._abandon()

    def _end_early(self, window: Window, why: str) -> None:
        """Write the steps recorded so far."""
        steps, number = window.result.steps, window.result.number
        end = f"ends after step {steps[-1]}" if steps else "is left out"
        self._warn_once(f"profiler: {why} at step {self._step + self._resumed_after}; window {number} {end}", of=why)
        if steps:
            self._finish_window(window, complete=False)
            return
        if window.is_too_large:
            self._is_too_large = True
            self._leave_out_too_large(window)
        else:
            self._window = None
            window.discard()

    def _leave_out_too_large(self, window: Window) -> None:
        self._window = None
        window.discard()
        limit = format_bytes(parse_bytes(self.config.max_records))
        self._warn_once(
            f"profiler: a step has too many operators to be recorded in {limit} (profiling.max_records), so this window"
            " is left out; tbmem.record() around a part of the step records that"
        )

    def _finish_window(self, window: Window, *, complete: bool) -> None:
        self._window = None
        try:
            result = window.finish(complete=complete)
        except OSError as error:
            self._guard.fail(WRITING, error)
            return
        self.ledger.add(result)
        name = result.trace.name if result.trace is not None else "no trace"
        size, seconds = format_bytes(result.bytes_written), result.writing_seconds
        self._log("profiler · window %d written: %s (%s, %.1f s)", result.number, name, size, seconds)
        if not result.history_is_whole and result.snapshot is not None:
            self._snapshots.warn_of_overflow(result.snapshot.name)
        first, last, files = result.steps[0], result.steps[-1], tuple(path.name for path in result.files)
        record = WindowRecord(number=result.number, first_step=first, last_step=last, complete=complete, files=files)
        self._on_window(record)

    def _steps(self, count: int) -> str:
        """The next ``count`` steps in words, ``'steps 4-6'``."""
        first = self._step + self._resumed_after
        return f"step {first}" if count == 1 else f"steps {first}-{first + count - 1}"

    def _warn_once(self, line: str, *, of: str = "") -> None:
        """Warn once ``of`` something, by default of this line; later lines of the same are for debugging."""
        get_logger().log(logging.DEBUG if (of or line) in self._warned else logging.WARNING, "%s", line)
        self._warned.add(of or line)

    def _log(self, line: str, *values: object) -> None:
        get_logger().log(self._level, line, *values)

    def _close(self, error: BaseException | None) -> None:
        window = self._window
        if window is not None and window.is_recording:
            if error is None:
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
