"""Monitors, profiles and reports the memory of a training run, as configured."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tbmem.config import Config, ConfigSource, load_config
from tbmem.errors import TbmemError
from tbmem.model.finding import Finding, Findings
from tbmem.model.monitor_log import STEP_CALLED, STEP_ENDS
from tbmem.model.redaction import NOTHING_REDACTED, Redaction, redacted_lines
from tbmem.model.run_summary import RunSummary
from tbmem.present.lines import console_handler, get_logger
from tbmem.present.text.run_end import summary_lines
from tbmem.runtime.evidence.recorded_traces import RecordedTraces
from tbmem.runtime.finding_listeners import Listener, listeners_of
from tbmem.runtime.metric_sinks import Sinks, find_sinks
from tbmem.runtime.monitor import MemoryMonitor
from tbmem.runtime.oom.flight_recorder import FlightRecorder
from tbmem.runtime.process.cell_runs import CellRuns
from tbmem.runtime.process.lifecycle import Lifecycle, Process, Rank, find_rank
from tbmem.runtime.process.run_folder import RunFolder, open_run_folder, unwritten_line
from tbmem.runtime.profiler import MemoryProfiler
from tbmem.runtime.run_observer import RunObservers
from tbmem.sources.counters.devices import check_devices
from tbmem.sources.counters.own_memory import own_memory
from tbmem.sources.torch_state.out_of_memory import ran_out_of_memory
from tbmem.sources.torch_state.user_modes import Unseen, end_unseen


class MemoryCallback(Lifecycle):
    """Monitors and profiles the memory of a training loop.

    ::

        with MemoryCallback("light") as memory:
            memory.watch(model, optimizer)
            for batch in loader:
                train_step(batch)
                memory.step()

    Each ``step()`` reads and evaluates the counters; the profiler records the windows of its schedule. Instead of a
    ``with`` block, ``start()`` and ``stop()`` may be called; if ``stop()`` is missing, it runs when the callback is
    deleted, as by a notebook's cell that is run again, or at interpreter exit.

    Args:
        config: A YAML file, a preset (``"light"``, ``"deep"``, ``"oom"``), a mapping of sections, a Config, or ``None``
            for the defaults.
        overrides: A dotlist, ``["profiling.active=5"]``.
        console: A rich console to print on, for programs that draw a progress bar there.
        on_finding: A function, or several, called with each ``Finding`` that is shown, in a thread of its own: training
            does not wait for it, and one that raises is called no more.
        sinks: Other loggers that receive scalars, findings and the summary, beside those of ``output.sinks``: names
            (``"wandb"``, ``"mlflow"``, ``"comet"``, ``"prometheus"``, ``"opentelemetry"``) or objects of
            ``tbmem.sinks``.
        **sections: Values by section, ``profiling={"active": 5}``, ``enabled=False``.

    Raises:
        ConfigError: The configuration is wrong; raised here, before the first step.
        MissingDependencyError: The library of a sink is not installed.
        UsageError: ``on_finding`` is no function.
    """

    def __init__(
        self,
        config: ConfigSource = None,
        overrides: Iterable[str] = (),
        *,
        console: Any = None,
        on_finding: Listener | Sequence[Listener] = (),
        sinks: Sinks = (),
        **sections: Any,
    ) -> None:
        super().__init__()
        with own_memory.working():
            self._config = load_config(config, overrides, **sections)
            self._sinks = find_sinks(self._config.output.sinks, sinks) if self._config.enabled else []
        self._profiler: MemoryProfiler | None = None
        self._summary: RunSummary | None = None
        self._folder: Path | None = None
        self._run_folder: RunFolder | None = None
        self._unwritten: list[str] = []
        self._console = console
        self._listeners = listeners_of(on_finding)
        self._rank = Rank()
        self._monitor: MemoryMonitor | None = None
        self._flight: FlightRecorder | None = None
        self._steps, self._step_ends = 0, STEP_CALLED
        self._is_interrupted = self._has_warned = False
        self._began = self._seconds = 0.0
        self._thread: int | None = None
        # not the bound method, which would keep this callback alive
        self._at_exit = partial(_stop, weakref.ref(self))

    def __enter__(self) -> MemoryCallback:
        self.start()
        if self._flight is not None:
            self._flight.heed_sigterm()  # a trainer within the block restores this handler before the block ends
        return self

    def __del__(self) -> None:
        # no thread if the configuration was wrong; a thread of another may not close the profiler
        if getattr(self, "_thread", None) == threading.get_ident():
            self.stop()

    @property
    def config(self) -> Config:
        """The configuration, with all defaults."""
        return self._config

    @property
    def summary(self) -> RunSummary | None:
        """Verdicts, findings, peaks, files and costs of the run, once it has ended; ``None`` before."""
        return self._summary

    @property
    def verdicts(self) -> tuple[Finding, ...]:
        """What each device of the run is judged to be so far (leak, growth, stable, ...), one finding for each."""
        if self._summary is not None:
            return self._summary.verdicts
        return tuple(self._monitor.verdicts()) if self._monitor is not None else ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far, by step: leaks, spikes, memory that runs out, with evidence and advice."""
        return tuple(self._monitor.findings) if self._monitor is not None else ()

    @property
    def profiler(self) -> MemoryProfiler | None:
        """The scheduled profiler with its windows and files; ``None`` before the start, or if nothing is enabled."""
        return self._profiler

    @property
    def folder(self) -> Path | None:
        """The run folder, in which all files of this rank are written; ``None`` before the start."""
        return self._folder

    @property
    def monitor(self) -> MemoryMonitor | None:
        """The monitor, once started; ``None`` if ``monitor.enabled`` is false."""
        return self._monitor if self.config.monitor.enabled else None

    @property
    def is_active(self) -> bool:
        """Whether this process is monitored: enabled, rank selected, started and not stopped."""
        return self._is_running and self.profiler is not None

    def start(self, *, awaits_resume: bool = False) -> None:
        """Start before the first training step, or with ``awaits_resume`` before ``resume()``.

        Raises:
            UsageError: This callback was started before.
            RunFolderError: The run folder cannot be written.
            ConfigError: ``monitor.devices`` names a device that is not there.
        """
        self._begin()
        config = self.config
        if not config.enabled:
            return
        self._rank = find_rank()
        if not config.run.includes(self._rank.rank):
            if self._rank.world_size == 1:
                get_logger().warning(
                    "run.ranks=%s leaves out the only rank of this run, 0: nothing is watched", config.run.ranks
                )
            return
        if not any(part.enabled for part in (config.monitor, config.profiling, config.snapshot)):
            return
        CellRuns.begin(self, config.run.logdir, config.run.name, _end_run_of_cell)
        try:
            with own_memory.working():
                self._open(awaits_resume)
        except BaseException as error:
            self._resources.close()
            self._monitor = self._profiler = None
            if isinstance(error, TbmemError):
                raise
            self._guard.fail("tbmem", error)
            return
        self._began = time.perf_counter()
        self._thread = threading.get_ident()
        atexit.register(self._at_exit)

    def resume(self, after_step: int) -> None:
        """Continue the step numbers of a checkpoint, ``after_step`` steps; call it before the first step."""
        for part in (self._monitor, self.profiler):
            if part is not None and not self._steps:
                part.resume(after_step)

    def watch(self, model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        """Name a model's tensors in the address book; optimizers that are not given are found at their first step."""
        if self.profiler is None:
            self._warn_of_misuse("watch()")
            return
        with Unseen():
            self._guard.run("watch", self.profiler.watch, model, *optimizers)

    def step(self) -> None:
        """Record the end of a training step. Never raises, never waits, does nothing in a forked child.

        An exception of the program that arrives meanwhile, as from a signal handler, is the program's: it is raised,
        and the next step goes on.
        """
        try:  # around comparisons as well, for which there may be no room
            if self._pid != Process.number or self._ended:
                self._warn_of_misuse("step()")
                return
            if self._is_interrupted:
                self._catch_up()
            self._is_interrupted = True  # first: an exception between the two would leave the parts a step behind
            self._steps += 1
            if self._profiler is not None and self._monitor is not None:
                self._step(self._profiler, self._monitor)
            self._is_interrupted = False
        except (RecursionError, MemoryError):
            self._guard.passed_over += 1
        except BaseException:
            end_unseen()  # it may have come while such a block began or ended
            raise

    def _catch_up(self) -> None:
        """Let all parts count the steps whose end they did not see, since an exception came first."""
        for part in (self._monitor, self._profiler):
            if part is not None:
                part.catch_up(self._steps)
        self._is_interrupted = False

    def _step(self, profiler: MemoryProfiler, monitor: MemoryMonitor) -> None:
        is_profiling = not profiler.is_done
        is_recording = is_profiling and profiler.is_interfering
        findings = monitor.advance(is_recording)
        if not (is_profiling or findings or profiler.awaits_spike_on):
            return  # so end most steps
        with Unseen():
            if is_recording:
                self._guard.run("profiling.keep", lambda: profiler.note_level(monitor.situation().in_use))
            if findings:
                self._guard.run("profiler", profiler.expect, self._steps, findings)
            device = profiler.awaits_spike_on
            sample = monitor.latest(device) if device is not None else None
            if sample and self._guard.run("next spike", profiler.look_for_spike, self._steps, sample):
                monitor.discard_peaks()
            if is_profiling and profiler.step():
                monitor.discard_peaks()

    def snapshot(self, name: str = "snapshot") -> Path | None:
        """Take a memory snapshot now (CUDA, XPU), ``name`` in its file's name; ``None`` if the log says why not.

        The file is written in the background: it is complete when the log says so, at the latest after ``stop()``.
        """
        if not self.is_active or self.profiler is None:
            self._warn_of_misuse("snapshot()")
            return None
        return self.profiler.snapshot(name)

    def _stop(self, error: BaseException | None) -> None:
        if not self._is_running:
            return
        self._ended = True
        atexit.unregister(self._at_exit)
        if self.profiler is None or self._monitor is None or self._flight is None:
            return
        self._seconds, self._monitor.ended = time.perf_counter() - self._began, time.time()
        deadline = time.monotonic() + self.config.run.wait_seconds
        with Unseen():
            self._end(self.profiler, self._monitor, self._flight, error, deadline)

    def _end(
        self,
        profiler: MemoryProfiler,
        monitor: MemoryMonitor,
        flight: FlightRecorder,
        error: BaseException | None,
        deadline: float,
    ) -> None:
        try:
            monitor.read_unfinished()
            self._guard.run("profiler", profiler.mute)
            # first: the following steps need memory themselves
            written = self._guard.run("out-of-memory report", flight.end, error)
            profiler.stop(error, has_snapshot=bool(written))
            traces = RecordedTraces(profiler.ledger, self._run_folder, self._guard, deadline)
            self._guard.run("monitor", monitor.conclude, traces.confirms)
            self._report_end(monitor, profiler, error, traces)
            there = self._guard.run("files", self._end_files, deadline)
            monitor._stop(error, deadline, self._unwritten)
            self._guard.run("summary", self._sum_up, monitor, profiler, error, there)
        finally:
            self._resources.close()

    def _open(self, awaits_resume: bool) -> None:
        from tbmem import __version__

        config, guard = self.config, self._guard
        record_sinks = RunObservers.begin(self)
        shows = config.output.includes(self._rank.rank)
        if shows:
            self._resources.enter_context(console_handler(self._console))
        if config.monitor.enabled:
            check_devices(config.monitor.devices)
        folder = self._run_folder = open_run_folder(config.run, self._rank, guard, self._redaction())
        self._folder = folder.path
        if folder.note and shows:
            get_logger().warning("%s", folder.note)
        for other in [one for one in _begun if one.is_active and shows]:
            get_logger().warning("the run in %s watches this process as well: every figure comes twice", other.folder)
        _begun.add(self)
        snapshot = config.snapshot
        profiler = MemoryProfiler(
            config.profiling,
            folder,
            snapshot=snapshot,
            guard=guard,
            on_window=lambda window: monitor.log(window),
            on_cut=lambda: monitor.discard_peaks(devices=False),
            findings=lambda: list(monitor.findings),
            console=shows,
        )
        wrote = profiler.ledger.snapshots.append
        flight = FlightRecorder(folder, config.oom, snapshot, guard, console=shows, wrote=wrote)
        monitor = MemoryMonitor(
            config.monitor,
            config.patterns,
            folder,
            rank=self._rank,
            console=shows,
            guard=guard,
            about={"tbmem": __version__, "run": folder.path.name, "config": asdict(config), STEP_ENDS: self._step_ends},
            evidence=config.evidence,
            is_free=profiler.is_off_for,
            flight=flight,
            on_finding=self._listeners,
            sinks=self._sinks,
            record_sinks=record_sinks,
        )
        self._profiler, self._flight, self._monitor = profiler, flight, monitor
        self._resources.callback(monitor._stop, None)
        self._resources.callback(flight.close)
        flight.open(monitor)
        monitor.start()
        self._resources.callback(profiler.stop)
        profiler.start(awaits_resume=awaits_resume)

    def _redaction(self) -> Redaction:
        """What is left out of files, sinks and console (``output.redact``)."""
        if not self.config.output.redact:
            return NOTHING_REDACTED
        redaction = Redaction.of_this_process(keep=[self.config.run.name])
        self._resources.enter_context(redacted_lines(get_logger().logger, redaction))
        return redaction

    def _report_end(
        self, monitor: MemoryMonitor, profiler: MemoryProfiler, error: BaseException | None, traces: RecordedTraces
    ) -> None:
        # after an exception the reason for a short run is known
        short_run = profiler.short_run() if error is None else None
        for finding in [*([] if short_run is None else [short_run]), *traces.explained(monitor.findings)]:
            monitor.report(replace(finding, rank=self._rank.rank))

    def _end_files(self, deadline: float) -> Set[Path] | None:
        """Wait for the files of the run; returns those that are there, or ``None`` if the disk does not say."""
        folder = self._run_folder
        if folder is None or self.profiler is None:
            return None
        ledger = self.profiler.ledger
        there = folder.writer.ask(lambda: {path for path in ledger.files if path.exists()}, deadline)
        self._unwritten = folder.writer.end(deadline)
        if self._unwritten and self.monitor is None:  # which says it otherwise, with its own files
            self._guard.note(unwritten_line(self._unwritten, folder.wait_seconds))
        return there

    def _sum_up(
        self,
        monitor: MemoryMonitor,
        profiler: MemoryProfiler,
        error: BaseException | None,
        there: Set[Path] | None,
    ) -> None:
        files, output = profiler.ledger, self.config.output
        there = frozenset(files.files) if there is None else there
        gone = sum(path not in there for path in files.files)
        problems = [*self._guard.problems, *monitor.files.problems]
        if self._run_folder is not None:
            problems += self._run_folder.writer.problems
        if gone:
            problems.append(f"{gone} file{'s' * (gone > 1)} that had been written are gone from {self.folder}")
        self._summary = RunSummary(
            logdir=self.config.run.logdir,
            folder=str(self.folder),
            rank=self._rank.rank,
            steps=self._steps,
            seconds=self._seconds,
            verdicts=Findings(monitor.verdicts()),
            findings=Findings(monitor.findings),
            peaks=tuple(monitor.peaks()),
            traces=tuple(str(path) for path in files.traces if path in there),
            snapshots=tuple(str(path) for path in files.snapshots if path in there),
            address_books=tuple(str(path) for path in files.address_books if path in there),
            monitor_log=str(monitor.log_path) if monitor.files.has_log else None,
            scalars=monitor.files.has_scalars,
            windows_deleted=files.deleted,
            profiler=files.cost(),
            problems=tuple(problems),
            exception=type(error).__name__ if error is not None else None,
            out_of_memory=ran_out_of_memory(error, monitor.findings),
        )
        if output.summary and output.includes(self._rank.rank):
            for line in summary_lines(self._summary):
                get_logger().info("%s", line)

    def _warn_of_misuse(self, call: str) -> None:
        """Log once that a method was called at the wrong time; this must not end the training loop."""
        is_inert = self._pid == Process.number and self.profiler is None
        if is_inert or self._has_warned or self._pid not in (None, Process.number):
            return
        self._has_warned = True
        get_logger().warning(
            "%s was called %s of this MemoryCallback and does nothing; use 'with MemoryCallback(...) as memory:'"
            " around the loop",
            call,
            "before start()" if self._pid is None else "after the end",
        )


_begun: weakref.WeakSet[MemoryCallback] = weakref.WeakSet()
"""Callbacks that were started, to say when two are active."""


def _stop(callback: weakref.ref[MemoryCallback]) -> None:
    """Stop a callback that is alive when the interpreter exits."""
    alive = callback()
    if alive is not None:
        alive.stop()


def _end_run_of_cell(callback: object) -> None:
    """End a run that a cell has left open, if this thread may."""
    if isinstance(callback, MemoryCallback) and callback.is_active and callback._thread == threading.get_ident():
        get_logger().info("the run in %s ends: its cell has started another one", callback.folder)
        callback.stop()
