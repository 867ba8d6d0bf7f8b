"""Reads memory counters at every step, evaluates, logs and displays them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.detector.recorded_peaks import Confirms, unconfirmed
from tbmem.config.load import override_section
from tbmem.config.schema import EvidenceConfig, MonitorConfig, OomConfig, PatternsConfig, SnapshotConfig
from tbmem.errors import TbmemError
from tbmem.model.evidence import WorkerCode
from tbmem.model.finding import Finding, FindingKind, FindingList
from tbmem.model.monitor_log import LogRecord
from tbmem.model.oom import RunContext
from tbmem.model.redaction import NOTHING_REDACTED, Redaction
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.present.lines import console_handler, get_logger, show_finding
from tbmem.runtime.background_writer import (
    CLOSE_ROWS,
    BackgroundWriter,
    LineSink,
    PeriodicTask,
    Sink,
    log_end,
    log_header,
)
from tbmem.runtime.device_judge import DeviceJudges
from tbmem.runtime.evidence.investigator import Investigator, loop_frame
from tbmem.runtime.evidence.peak_lines import PeakLines, PeakSource
from tbmem.runtime.finding_listeners import FindingListeners, Listener
from tbmem.runtime.log_files import LogFiles
from tbmem.runtime.metric_sinks import MetricSinks, Sinks
from tbmem.runtime.oom.flight_recorder import FlightRecorder
from tbmem.runtime.process.accumulation import AccumulationNotice
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Lifecycle, Process, Rank, find_rank
from tbmem.runtime.process.optimizer_hook import UpdateTracker
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.unfinished_step import UNFINISHED, UnfinishedStep
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.sampler import Counters
from tbmem.sources.torch_state.data_loaders import code_in_workers
from tbmem.sources.torch_state.out_of_memory import out_of_memory_in
from tbmem.sources.torch_state.user_modes import Unseen

PART = "monitor"
_BATCH_SECONDS, _LEAST_SECONDS = 1.0, 0.08
"""Samples of shorter steps are evaluated together, in a long run for the longer time: after a training step the first
evaluation costs a hundred times the others, because code and data have left the CPU caches."""
_BATCH_STEPS, _BATCH_SHARE = (5, 240), 1 / 16
"""A batch has at most ``_BATCH_SHARE`` of the steps so far, bounded by these two numbers."""
_WINDOW_SECONDS = 1.0
"""Evaluation waits this much longer while a profiler window is open: the trace would record its thousands of calls,
which are not the program's. One second leaves windows of usual length alone and still reports in long ones."""
_MAX_FINDINGS = 1000
_FLUSH_SECONDS, _END_SECONDS = 2.0, 10.0
"""Maximum time that a signal handler waits for the disk, and if the process ends then: schedulers kill it after 30."""


class MemoryMonitor(Lifecycle):
    """Monitors memory at every step.

    Use it alone as a context manager with ``step()`` after each training step, or through ``MemoryCallback``.
    It never waits for a device, a disk or another rank, and its errors never reach the training loop.

    Args:
        config: What to read and how often to log.
        patterns: When memory is called leaking, spiking or near the end.
        folder: Run folder for the live log and the scalars; ``None`` writes nothing.
        rank: This process's rank; found by default.
        console: Whether lines are logged; by default on rank 0 only.
        guard: Handles errors.
        counters: Source of the samples.
        about: Further fields of the log's header.
        evidence: How suspicions are investigated; by default they are not.
        is_free: Returns whether no profiler window overlaps the next ``n`` steps, for 0 whether none records now.
        flight: Reports why memory ran out.
        on_finding: Functions that are called with each finding that is shown, in a thread of their own.
        sinks: Other loggers that receive scalars, findings and the summary: names such as ``"wandb"``, or objects.
        record_sinks: Further destinations of the log's records.
        **overrides: Fields of ``config`` by name, such as ``log_every_n_steps=1``.

    Raises:
        ConfigError: An override is unknown or does not fit, or a sink is unknown.
        MissingDependencyError: The library of a sink is not installed.
    """

    def __init__(
        self,
        config: MonitorConfig | None = None,
        patterns: PatternsConfig | None = None,
        folder: str | os.PathLike[str] | RunFolder | None = None,
        *,
        rank: Rank | None = None,
        console: bool | None = None,
        guard: Guard | None = None,
        counters: Counters | None = None,
        about: dict[str, Any] | None = None,
        evidence: EvidenceConfig | None = None,
        is_free: Callable[[int], bool] = lambda steps: True,
        flight: FlightRecorder | None = None,
        on_finding: Sequence[Listener] = (),
        sinks: Sinks = (),
        record_sinks: Sequence[Sink] = (),
        **overrides: Any,
    ) -> None:
        super().__init__(guard)
        self.config = override_section("monitor", config or MonitorConfig(), overrides)
        self.findings = FindingList()
        patterns = patterns or PatternsConfig()
        self._patterns = patterns if patterns.enabled else None
        self._path = folder
        self._folder: RunFolder | None = None
        self._rank = rank
        self._console = console
        self._counters = counters
        self._about = about or {}
        self._evidence = evidence
        self._is_free = is_free
        self._flight, self._owns_flight = flight, flight is None
        self._listeners, self._record_sinks = on_finding, record_sinks
        self._metric_sinks = MetricSinks(sinks, self._guard)
        self._investigator: Investigator | None = None
        self._peak_lines: PeakLines | None = None
        self._devices, self._unfinished = DeviceJudges(self._new_detector), UnfinishedStep()
        self._background: BackgroundWriter | None = None
        self.files = LogFiles(None)
        self.ended: float | None = None  # Unix time at which the training did: this ends after a callback's other parts
        self._accumulation = AccumulationNotice()
        self._every = self._thorough_step = self.config.log_every_n_steps
        self._step, self._judge_step, self._resumed_after, self._judge_time = 0, 0, 0, 0.0
        self._is_watching = self._samples_every_step = self._has_concluded = self._owns_folder = False
        self._new: list[MemorySample] = []

    def start(self) -> None:
        """Start before the first training step.

        Raises:
            UsageError: It was started before.
            RunFolderError: The folder cannot be written.
            ConfigError: ``monitor.devices`` names a device that is not there.
        """
        self._begin()
        if not self.config.enabled:
            return
        try:
            self._open()
        except BaseException as error:
            self._release()
            if isinstance(error, TbmemError) or not isinstance(error, Exception):
                self._pid = None
                raise
            self._guard.fail(PART, error)
            self._ended = True

    def _open(self) -> None:
        rank = self._rank = self._rank or find_rank()
        self._console = rank.rank == 0 if self._console is None else self._console
        if self._console:
            self._resources.enter_context(console_handler())
        if self._counters is None:
            self._counters = self._open_counters(rank)
        if isinstance(self._path, RunFolder):
            self._folder = self._path
        elif self._path is not None and rank.rank == 0:  # without a MemoryCallback, the other ranks write nothing
            self._folder = RunFolder(self._path, guard=self._guard)
            self._owns_folder = True
        if self._evidence is not None and self._evidence.enabled and self._patterns is not None:
            room = self._devices.room
            self._investigator = Investigator(self._evidence, self._folder, self._guard, self._is_free, room)
            self._peak_lines = PeakLines(self._peak_source(self._counters), self._guard)
        if self._flight is None:
            oom, snapshot = OomConfig(), SnapshotConfig()
            self._flight = FlightRecorder(self._folder, oom, snapshot, self._guard, console=self._console)
            self._resources.callback(self._flight.close)
            self._flight.open(self)
        counters, flight = self._counters, self._flight
        children = PeriodicTask.of_children(counters.refresh_workers)
        tasks = [PeriodicTask(lambda: flight.look_at_host(counters.refresh())), children]
        self.files = LogFiles(self._folder, log=self.config.log, scalars=self.config.scalars)
        lines = [LineSink(self._every, self.config.line_seconds)] if self._console else []
        # files first: a signal may have interrupted the holder of the console's lock
        sinks: list[Sink] = [*self.files.sinks, *lines]
        sinks += [FindingListeners(self._listeners, self._guard), self._metric_sinks, *self._record_sinks]
        self._metric_sinks.begin(self._folder.path if self._folder is not None else None, rank.rank)
        self._background = BackgroundWriter(sinks, tasks, self._guard, row_steps=self._every)
        self.log(log_header(rank, self.config, self._about))
        self._background.start()
        if self._peak_lines is not None:
            self._peak_lines.start()
        for note in self._counters.notes() if self._console else ():
            get_logger().info("%s", note)

    def _open_counters(self, rank: Rank) -> Counters:
        reset = self.config.peaks == "step"
        host = HostMemory(reset_peaks=reset, workers=self.config.workers, interval=self.config.sample_seconds)
        updates = UpdateTracker()
        self._resources.callback(updates.close)
        return Counters(self.config.devices, host, rank=rank.rank, reset_peaks=reset, updated=updates.take)

    def _peak_source(self, counters: Counters) -> PeakSource:
        return PeakSource(
            counters.heights, step=lambda: self._step + 1, is_paused=lambda: self._is_watching or not self._is_free(0)
        )

    def resume(self, after_step: int) -> None:
        """Number the next step ``after_step + 1``, after a checkpoint; call it before the first step."""
        if self._step or self._ended or after_step <= 0:
            return
        self._step = self._thorough_step = self._resumed_after = after_step
        if self._patterns is not None:
            self._patterns = replace(self._patterns, warmup_steps=self._patterns.warmup_steps + after_step)
        for part in (self._counters, self._investigator):
            if part is not None:
                part.resumed_after = after_step

    def step(self, *, profiled: bool = False) -> Sequence[Finding]:
        """Record the end of a step, ``profiled`` if the host's figures include a profiler's memory.

        Returns new findings, usually none. Very short steps are evaluated together, those of 80 ms to a second.
        """
        try:
            return () if self._pid != Process.number else self.advance(profiled)
        except (RecursionError, MemoryError):
            self._guard.passed_over += 1
            return ()

    def catch_up(self, steps: int) -> None:
        """Number the next step ``steps + 1``: an exception came before ``advance()`` could count one."""
        self._step = max(self._step, steps + self._resumed_after)

    def advance(self, profiled: bool = False) -> Sequence[Finding]:
        """``step()`` without the check for a forked child (hot path)."""
        if self._ended:
            return ()
        self._step = step = self._step + 1
        if self._counters is None or PART in self._guard.failed:
            return ()
        counters = self._counters
        try:
            if not (profiled or self._samples_every_step) and counters.pass_over(time.time()):
                return ()
            with Unseen():
                return self._take_sample(counters, step, profiled)
        except (RecursionError, MemoryError):
            self._guard.passed_over += 1
            return ()
        except Exception as error:
            self._guard.fail(PART, error)
            return ()
        finally:
            if self._peak_lines is not None:
                self._peak_lines.begin_step()

    def _take_sample(self, counters: Counters, step: int, profiled: bool) -> Sequence[Finding]:
        thorough = step >= self._thorough_step
        if thorough:
            self._thorough_step = step - step % self._every + self._every
        samples = counters.sample(step, thorough=thorough, profiled=profiled or self._is_watching)
        self._new += samples  # only now: a signal that came meanwhile has written the others
        now = time.monotonic()
        is_early = step < self._judge_step and now < self._judge_time
        if is_early or (profiled and now < self._judge_time + _WINDOW_SECONDS):
            return ()
        return self._process_batch(now)

    def discard_peaks(self, *, devices: bool = True) -> None:
        """Discard the peaks since the last step, which tbmem itself caused; only the host's within a step."""
        if self._is_running and self._counters is not None:
            self._guard.run(PART, self._counters.discard_peaks, devices=devices)

    def log(self, record: LogRecord | list[MemorySample]) -> None:
        """Append a record, or samples, to the live log."""
        if self._background is not None:
            self._background.put(self._redaction.record(record))

    def flush(self, ends: bool = False) -> None:
        """Write all pending records after a SIGTERM, and no end; ``ends``: whether the process ends now."""
        if self._background is None or not self._is_running:
            return
        new, self._new = [*self._new, *self._skipped_samples()], []
        # the step in whose reading the signal comes is counted, but not logged
        step = max((sample.step for sample in (*self._devices.last.values(), *new)), default=self._step)
        self.log(new)
        self.log(CLOSE_ROWS)
        self.log({"type": "signal", "name": "SIGTERM", "time": time.time(), "step": step, "ends": ends})
        self._background.flush(_FLUSH_SECONDS)
        until = time.monotonic() + (_END_SECONDS if ends else _FLUSH_SECONDS)
        self.files.wait(until)
        if self._folder is not None and ends:
            self._folder.end(until)

    def latest(self, device: str) -> MemorySample | None:
        """The last sample of a device."""
        return self.situation().last.get(device)

    def situation(self) -> RunContext:
        """The current state of the run."""
        last = self._devices.last | {sample.device: sample for sample in self._new}
        return RunContext(self._step + 1, tuple(self.findings), last, (self._rank or Rank()).rank)

    def _stop(self, error: BaseException | None, deadline: float | None = None, unwritten: Sequence[str] = ()) -> None:
        """End the run; ``deadline``: of waiting for the disk; ``unwritten``: files that it has not taken."""
        if not self._is_running:
            return
        if self._owns_flight and self._flight is not None:
            self._guard.run(PART, self._flight.end, error)
        self.read_unfinished()
        self._ended = True
        end = self._guard.run(PART, self._finish, error)
        self.log(end or {"type": "end", "time": time.time(), "steps": self._step})
        self._release(deadline, unwritten)

    def _release(self, deadline: float | None = None, unwritten: Sequence[str] = ()) -> None:
        if self._investigator is not None:
            self._investigator.close()
        if self._peak_lines is not None:
            self._peak_lines.stop()
        if self._background is not None:
            self._background.stop()
        self.files.end(deadline, with_folder=self._owns_folder, others=unwritten)
        if self._counters is not None:
            self._guard.run("monitor (switching off)", self._counters.close)
        self._resources.close()

    def verdicts(self) -> list[Finding]:
        """One finding per device that states its verdict; an out-of-memory error takes precedence."""
        return [self._redaction.finding(verdict) for verdict in self._devices.verdicts(self.findings)]

    def _store(self, finding: Finding) -> None:
        if not finding.kind.is_quiet and len(self.findings) < _MAX_FINDINGS:
            self.findings.append(finding)
        self.log(finding)

    def peaks(self) -> list[Peak]:
        """The highest usage of each device so far."""
        self._devices.note_peaks(self._new)
        return self._devices.peaks

    @property
    def _redaction(self) -> Redaction:
        return self._folder.redaction if self._folder is not None else NOTHING_REDACTED

    @property
    def log_path(self) -> Path | None:
        """Path of the live log; ``None`` if none is written."""
        writes = self.config.enabled and self.config.log
        return self._folder.monitor_log if self._folder is not None and writes else None

    def report(self, finding: Finding) -> None:
        """Store, log and display a finding without waiting for the next write."""
        finding = self._redaction.finding(finding)
        self._store(finding)
        if self._background is not None:
            self._background.hurry()
        if self._console:
            show_finding(finding)

    def _process_batch(self, now: float) -> Sequence[Finding]:
        findings = self._judge()
        self._metric_sinks.join()
        if self._flight is not None:
            self._flight.settle()
        is_waiting, investigator = False, self._investigator
        if investigator is not None:
            findings += self._investigate(investigator)
            is_waiting, self._is_watching = investigator.is_waiting, investigator.is_watching
        self._samples_every_step = is_waiting or self._is_watching
        batch = min(max(_BATCH_STEPS[0], int(self._step * _BATCH_SHARE)), _BATCH_STEPS[1])
        self._judge_step = self._step + (1 if is_waiting else batch)
        self._judge_time = now + max(_BATCH_SECONDS * batch / _BATCH_STEPS[1], _LEAST_SECONDS)
        for finding in findings:
            self.report(finding)
        return findings

    def _judge(self) -> list[Finding]:
        new = self._new
        if new:
            self.log(new)
        self._new = []  # after the call: what the program's exception interrupts is logged with the next batch
        if new and self._console and not self._accumulation.is_done and (notice := self._accumulation.add(new)):
            get_logger().info("%s", notice)
        return self._devices.judge(new)

    def _new_detector(self, device: str) -> Detector | None:
        if self._patterns is None:
            return None
        waits = self._investigator is not None
        looks = self._peak_lines.of_device(device) if self._peak_lines is not None else None
        return Detector(self._patterns, awaits_evidence=waits, looks=looks, in_workers=self._code_in_workers)

    def _code_in_workers(self) -> WorkerCode:
        return self._guard.run("data sets in workers", code_in_workers) or WorkerCode()

    def _investigate(self, investigator: Investigator) -> list[Finding]:
        investigator.prepare()
        detectors = self._devices.detectors
        if not (investigator.is_waiting or any(detector.suspicions for detector in detectors.values())):
            return []
        was_watching = investigator.is_watching
        findings = investigator.step(self._step, detectors, loop_frame())
        if was_watching or investigator.is_watching:
            # the investigation's own memory does not belong to the next step
            self.discard_peaks()
        return findings

    def _skipped_samples(self) -> list[MemorySample]:
        return self._counters.passed(self._step) if self._counters is not None else []

    def read_unfinished(self) -> None:
        """Read the counters for what came after the last step, before tbmem's own work as the run ends."""
        if self._is_running and self._counters is not None and PART not in self._guard.failed:
            last = self.situation().last.values()
            self._new += self._guard.run(UNFINISHED, self._unfinished.read, self._counters, self._step + 1, last) or ()

    def _log_unfinished(self, *, ran_out: bool = False) -> None:
        rows = self._unfinished.rows(self._devices, ran_out=ran_out)
        for record in (CLOSE_ROWS, *rows) if rows else ():
            self.log(record)

    def conclude(self, confirms: Confirms = unconfirmed) -> None:
        """Report what was open, as ``stop()`` does; ``confirms``: what recordings tell."""
        if self._has_concluded:
            return
        self._has_concluded, self._new = True, self._new + self._skipped_samples()
        last = [*self._judge(), *self._devices.close(confirms)]
        self._log_unfinished()
        leaks = {verdict.subject for verdict in self.verdicts() if verdict.kind is FindingKind.LEAK}
        told = leaks & {finding.subject for finding in self.findings}
        for finding in (each for each in last if each.subject not in told):
            self.report(finding)

    def _finish(self, error: BaseException | None) -> LogRecord:
        self.conclude()
        verdicts = self.verdicts()
        if out_of_memory_in(error) is not None:
            self._log_unfinished(ran_out=True)
        self.log(CLOSE_ROWS)
        # the last finding of a leak is its verdict, since its rate covers more steps
        for verdict in verdicts:
            if verdict.kind is FindingKind.LEAK and verdict not in self.findings:
                self._store(verdict)
        return log_end(self._step, verdicts, error, self.findings, ended=self.ended, redacts=self._redaction.is_on)
