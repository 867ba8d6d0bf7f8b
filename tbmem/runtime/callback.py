"""A configuration and a training loop's steps go in; everything tbmem does in a run comes out: MemoryCallback."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from tbmem.config import Config, ConfigSource, load_config
from tbmem.errors import UsageError
from tbmem.model.finding import Finding
from tbmem.model.shortage import Situation
from tbmem.model.summary import RunSummary
from tbmem.present.console import console_handler, get_logger, show_finding
from tbmem.present.summary import summary_lines
from tbmem.runtime.flight_recorder import FlightRecorder
from tbmem.runtime.forks import Process
from tbmem.runtime.guard import Guard
from tbmem.runtime.last_error import LastError, failure
from tbmem.runtime.monitor import MemoryMonitor
from tbmem.runtime.oom import ran_out_of_memory
from tbmem.runtime.profiler import MemoryProfiler
from tbmem.runtime.ranks import Rank, find_rank
from tbmem.runtime.run_folder import RunFolder, open_run_folder
from tbmem.sources.devices import check_devices


class MemoryCallback:
    """What a user drops into a training loop.

    ::

        with MemoryCallback("configs/default.yaml") as memory:
            memory.watch(model, optimizer)
            for batch in loader:
                train_step(batch)
                memory.step()

    Each ``step()`` reads the counters and judges them; the profiler records in the windows of its schedule.
    Where a loop has no room for a ``with`` block, call ``start()`` and ``stop()``; an interpreter that ends
    without ``stop()`` still writes what there is. A callback serves one run.

    Args:
        config: A YAML file, a mapping of sections, a Config, or ``None`` for the defaults.
        overrides: A dotlist, ``["profiling.active=5"]``.
        console: A rich console to print on, for programs that draw a progress bar there.
        **sections: Values by section, ``profiling={"active": 5}``, ``enabled=False``.

    Raises:
        ConfigError: The configuration is wrong; raised here, before the first step.
    """

    def __init__(
        self,
        config: ConfigSource = None,
        overrides: Iterable[str] = (),
        *,
        console: Any = None,
        **sections: Any,
    ) -> None:
        self.config: Config = load_config(config, overrides, **sections)
        self.monitor: MemoryMonitor | None = None
        self.profiler: MemoryProfiler | None = None
        self.summary: RunSummary | None = None
        """What the end of the run told; ``None`` until then, and where nothing was watched."""
        self.folder: Path | None = None
        """The run folder of this rank."""
        self._console = console
        self._guard = Guard()
        self._rank = Rank()
        self._flight: FlightRecorder | None = None
        self._resources = ExitStack()
        self._found: list[Finding] = []  # where there is no monitor to keep them
        self._steps = 0
        self._began = 0.0
        self._pid: int | None = None
        self._ended = False
        self._complained = False
        self._last_error = LastError()

    def __enter__(self) -> MemoryCallback:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop(failure(error))

    @property
    def is_active(self) -> bool:
        """Whether this process is being watched: enabled, its rank chosen, started and not stopped."""
        return self._pid == os.getpid() and not self._ended and (self.monitor or self.profiler) is not None

    def start(self, *, awaits_resume: bool = False) -> None:
        """The first training step begins.

        Args:
            awaits_resume: The profiler's schedule begins with ``resume()``: only then it is known at which step.

        Raises:
            UsageError: This callback was started before.
            RunFolderError: The run folder cannot be written.
            ConfigError: ``monitor.devices`` names a device that is not there.
        """
        if self._pid is not None:
            raise UsageError("this MemoryCallback was started before: make a new one for each run")
        self._pid = os.getpid()
        if not self.config.enabled:
            return
        self._last_error = LastError()
        self._rank = find_rank()
        if not self.config.run.includes(self._rank.rank):
            if self._rank.world_size == 1:
                get_logger().warning(
                    "run.ranks=%s leaves out the only rank of this run, 0: nothing is watched", self.config.run.ranks
                )
            return
        if not any(part.enabled for part in (self.config.monitor, self.config.profiling, self.config.snapshot)):
            return
        try:
            self._open(awaits_resume)
        except BaseException:
            self._resources.close()
            self.monitor = self.profiler = None
            raise
        self._began = time.perf_counter()
        atexit.register(self.stop)

    def resume(self, after_step: int) -> None:
        """The training goes on from a checkpoint: steps are numbered as there. To be called before the first step.

        Args:
            after_step: Steps that the training has taken before.
        """
        for part in (self.monitor, self.profiler):
            if part is not None and not self._steps:
                part.resume(after_step)

    def watch(self, model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        """Give names to what the address book notes; without it optimizers are found by themselves.

        Args:
            model: The model, as it is trained (wrapped or not).
            *optimizers: Its optimizers.
        """
        if self.profiler is not None:
            self._guard.run("watch", self.profiler.watch, model, *optimizers)

    def step(self) -> None:
        """A training step has ended. Never raises, never waits, does nothing in a forked child."""
        if self._pid != Process.number or self._ended:
            self._complain("step()")
            return
        self._steps += 1
        profiler, monitor = self.profiler, self.monitor
        is_profiling = profiler is not None and not profiler.is_done
        if monitor is not None:
            monitor.advance(is_profiling and profiler is not None and profiler.is_interfering)
        if is_profiling and profiler is not None and profiler.step() and monitor is not None:
            monitor.discard_peaks()

    def snapshot(self, name: str = "snapshot") -> Path | None:
        """Write the allocator's state now, where the device keeps one (CUDA, XPU).

        Args:
            name: Goes into the file's name.

        Returns:
            The file, or ``None`` if nothing was written; the log says why.
        """
        if not self.is_active or self.profiler is None:
            self._complain("snapshot()")
            return None
        return self.profiler.snapshot(name)

    def stop(self, error: BaseException | None = None) -> None:
        """The run has ended: close every file, switch everything off, sum up.

        Args:
            error: The exception that ended the loop, if one did. Without one that which is on its way, as in
                ``finally``, or at exit the one that the interpreter has printed.
        """
        self._stop(error if error is not None else self._last_error.find())

    def _stop(self, error: BaseException | None) -> None:
        if self._pid != os.getpid() or self._ended:
            return
        self._ended = True
        atexit.unregister(self.stop)
        if self.monitor is None and self.profiler is None:
            return
        seconds = time.perf_counter() - self._began
        try:
            written: bool | None = False
            if self.profiler is not None:
                self._guard.run("profiler", self.profiler.mute)
            if self._flight is not None:
                # first of all: what follows needs memory itself
                written = self._guard.run("out-of-memory report", self._flight.end, error)
            if self.profiler is not None:
                self.profiler.has_oom_snapshot = bool(written)
                self.profiler.stop(error)
            self._report_end(error)
            if self.monitor is not None:
                self.monitor.stop(error)
            self._guard.run("summary", self._sum_up, seconds, error)
        finally:
            self._resources.close()

    def _open(self, awaits_resume: bool) -> None:
        config = self.config
        if config.output.includes(self._rank.rank):
            self._resources.enter_context(console_handler(self._console))
        if config.monitor.enabled:
            check_devices(config.monitor.devices)
        folder = open_run_folder(config.run, self._rank)
        self.folder = folder.path
        if folder.note and config.output.includes(self._rank.rank):
            get_logger().warning("%s", folder.note)
        self.profiler = MemoryProfiler(
            config.profiling,
            folder,
            snapshot=config.snapshot,
            guard=self._guard,
            on_window=self._log,
            console=config.output.includes(self._rank.rank),
        )
        self._flight = self._make_flight(folder)
        if config.monitor.enabled:
            self.monitor = self._make_monitor(folder)
            self._resources.callback(self.monitor.stop)
            self.monitor.start()
        self._resources.callback(self._flight.close)
        self._flight.open()
        self._resources.callback(self.profiler.stop)
        self.profiler.start(awaits_resume=awaits_resume)

    def _make_monitor(self, folder: RunFolder) -> MemoryMonitor:
        from tbmem import __version__

        config = self.config
        about = {"tbmem": __version__, "run": folder.path.name, "config": asdict(config)}
        return MemoryMonitor(
            config.monitor,
            config.patterns,
            folder,
            rank=self._rank,
            console=config.output.includes(self._rank.rank),
            guard=self._guard,
            about=about,
            evidence=config.evidence,
            is_free=self._is_free,
            flight=self._flight,
        )

    def _make_flight(self, folder: RunFolder) -> FlightRecorder:
        assert self.profiler is not None
        config = self.config
        return FlightRecorder(
            folder,
            config.oom,
            config.snapshot,
            self._guard,
            situation=self._situation,
            tell=self._report,
            log=self._log,
            flush=self._flush,
            console=config.output.includes(self._rank.rank),
            wrote=self.profiler.ledger.snapshots.append,
        )

    def _situation(self) -> Situation:
        if self.monitor is not None:
            return self.monitor.situation()
        return Situation(self._steps + 1, tuple(self._found), rank=self._rank.rank)

    def _flush(self, ends: bool) -> None:
        if self.monitor is not None:
            self.monitor.flush(ends)

    def _is_free(self, steps: int) -> bool:
        """Whether no profiler window is open or comes up in the next ``steps`` steps."""
        return self.profiler is None or self.profiler.is_off_for(steps)

    def _log(self, record: Any) -> None:
        if self.monitor is not None:
            self.monitor.log(record)

    def _report_end(self, error: BaseException | None) -> None:
        """Findings that only the end of a run can have."""
        # after an exception everybody knows why the run was short
        found = [self.profiler.short_run()] if self.profiler is not None and error is None else []
        found += self._guard.run("spikes in windows", self._explained_spikes) or []
        for finding in found:
            if finding is not None:
                self._report(replace(finding, rank=self._rank.rank))

    def _explained_spikes(self) -> list[Finding]:
        windows = self.profiler.ledger.recorded if self.profiler is not None else {}
        if not windows or self.monitor is None:
            return []
        from tbmem.runtime.spikes import explain_spikes  # reading traces: a start must not wait for that to load

        return explain_spikes(self.monitor.findings, windows)

    def _report(self, finding: Finding) -> None:
        if self.monitor is not None:
            self.monitor.report(finding)
            return
        self._found.append(finding)
        if self.config.output.includes(self._rank.rank):
            show_finding(finding)

    def _sum_up(self, seconds: float, error: BaseException | None) -> None:
        monitor, profiler = self.monitor, self.profiler
        files = profiler.ledger if profiler is not None else None
        self.summary = RunSummary(
            logdir=self.config.run.logdir,
            folder=str(self.folder),
            rank=self._rank.rank,
            steps=self._steps,
            seconds=seconds,
            verdicts=tuple(monitor.verdicts()) if monitor else (),
            findings=tuple(monitor.findings if monitor else self._found),
            peaks=tuple(monitor.peaks()) if monitor else (),
            traces=tuple(map(str, files.traces)) if files else (),
            snapshots=tuple(map(str, files.snapshots)) if files else (),
            address_books=tuple(map(str, files.address_books)) if files else (),
            monitor_log=str(monitor.log_path) if monitor and monitor.log_path else None,
            scalars=bool(monitor and monitor.config.scalars),
            profiler=profiler.cost() if profiler else None,
            problems=tuple(self._guard.problems),
            exception=type(error).__name__ if error is not None else None,
            out_of_memory=ran_out_of_memory(error, monitor.findings if monitor else self._found),
        )
        if self.config.output.summary and self.config.output.includes(self._rank.rank):
            for line in summary_lines(self.summary):
                get_logger().info("%s", line)

    def _complain(self, call: str) -> None:
        """A call at the wrong moment is said once; it must not end a training."""
        inert = self._pid == os.getpid() and (self.monitor or self.profiler) is None
        forked = self._pid not in (None, os.getpid())
        if inert or forked or self._complained:
            return
        self._complained = True
        moment = "before start()" if self._pid is None else "after the end"
        get_logger().warning(
            "%s was called %s of this MemoryCallback and does nothing; use 'with MemoryCallback(...) as memory:'"
            " around the loop",
            call,
            moment,
        )
