"""MemoryMonitor: counters at every step, judged, logged and shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.detector.thresholds import room_of
from tbmem.analysis.runs.device_history import RunPeak
from tbmem.config.load import override_section
from tbmem.config.schema import EvidenceConfig, MonitorConfig, OomConfig, PatternsConfig, SnapshotConfig
from tbmem.errors import TbmemError
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import LogRecord
from tbmem.model.oom import Situation
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.present.lines import console_handler, get_logger, show_finding
from tbmem.runtime.background_writer import CLOSE_ROWS, Background, Chore, Sink
from tbmem.runtime.evidence.investigator import Investigator, loop_frame
from tbmem.runtime.oom.flight_recorder import FlightRecorder
from tbmem.runtime.process.guard import WRITING, Guard
from tbmem.runtime.process.identity import Process, Rank, find_rank
from tbmem.runtime.process.lifecycle import Lifecycle
from tbmem.runtime.process.optimizer_hook import UpdateWatch
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.sinks import LineSink, LogSink, ScalarSink, log_end, log_header
from tbmem.sources.counters.devices import CPU
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.sampler import Counters

PART = "monitor"
"""Name of this part in the log and in the summary's problems."""
_BATCH_SECONDS = 0.08
"""Samples of steps shorter than this are judged together: the first of a batch costs a hundred times what the others
do, since neither this code nor what it remembers is in a cache after a training step."""
_BATCH_STEPS = (5, 240)
_BATCH_SHARE = 1 / 32
"""So many steps at most: the first number early in a run, when a loop of very short steps shall learn of its leak soon,
later this share of the steps so far, at last the second number."""
_EARLY = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds after the start at which child processes are looked at first; then once a second."""
_KEPT_FINDINGS = 1000
_FLUSH_SECONDS = 2.0
"""How long a signal waits for a disk."""


class _Device:
    """What the monitor keeps for one device; without ``patterns`` nothing is judged."""

    def __init__(self, patterns: PatternsConfig | None, *, awaits_evidence: bool) -> None:
        self.detector = Detector(patterns, awaits_evidence=awaits_evidence) if patterns is not None else None
        self.last: MemorySample | None = None
        self.peak = RunPeak()

    def judge(self, samples: Sequence[MemorySample]) -> list[Finding]:
        """Take in new samples, at least one."""
        self.last = samples[-1]
        self.peak.add(samples)
        return self.detector.update_all(samples) if self.detector is not None else []


class MemoryMonitor(Lifecycle):
    """Watches memory at every step, at next to no cost.

    Use it alone as a context manager with ``step()`` after each training step, or through ``MemoryCallback``.
    It never waits for a device, a disk or another rank, and an error in it never reaches the training.

    Args:
        config: What to read and how often to log.
        patterns: When memory is called leaking, spiking or near the end.
        folder: Run folder for the live log and the scalars; ``None`` writes nothing.
        rank: This process's rank; found by default.
        console: Whether lines are logged; by default on rank 0 only.
        guard: Where errors go; its own by default.
        counters: Where samples come from; a test gives its own.
        about: What else the log's header shall hold.
        evidence: Whether and how suspicions are looked into; by default they are not.
        is_free: Whether no profiler window comes up in the next so many steps.
        flight: Records why memory runs out; its own by default.
        **overrides: Fields of ``config`` by name, such as ``log_every_n_steps=1``.

    Raises:
        ConfigError: An override is unknown or does not fit.
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
        **overrides: Any,
    ) -> None:
        super().__init__()
        self.config = override_section("monitor", config or MonitorConfig(), overrides)
        self.findings: list[Finding] = []
        patterns = patterns or PatternsConfig()
        self._patterns = patterns if patterns.enabled else None
        self._folder = folder
        self._rank = rank
        self._console = console
        self._guard = guard or Guard()
        self._counters = counters
        self._about = about or {}
        self._evidence = evidence if evidence is not None and evidence.enabled else None
        self._is_free = is_free
        self._flight = flight
        self._owns_flight = flight is None
        self._investigator: Investigator | None = None
        self._devices: dict[str, _Device] = {}
        self._background: Background | None = None
        self._resources = ExitStack()
        self._step = 0
        self._every = self._thorough_step = self.config.log_every_n_steps
        self._judge_time = 0.0
        self._judge_step = 0
        self._is_watching = self._is_wide_awake = False
        self._new: list[MemorySample] = []

    def start(self) -> None:
        """The first training step begins.

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
            self._let_go()
            if isinstance(error, TbmemError) or not isinstance(error, Exception):
                self._pid = None
                raise
            self._guard.fail(PART, error)
            self._ended = True

    def _open(self) -> None:
        rank = self._rank = self._rank or find_rank()
        if self._console is None:
            self._console = rank.rank == 0
        if self._console:
            self._resources.enter_context(console_handler())
        if self._counters is None:
            self._counters = self._open_counters(rank)
        if self._folder is not None and not isinstance(self._folder, RunFolder):
            # alone, rank 0 writes; MemoryCallback gives every rank that shall write a folder of its own
            self._folder = RunFolder(self._folder) if rank.rank == 0 else None
        if self._evidence is not None and self._patterns is not None:
            self._investigator = Investigator(self._evidence, self._run_folder, self._guard, self._is_free, self._room)
        if self._flight is None:
            self._flight = FlightRecorder(
                self._run_folder, OomConfig(), SnapshotConfig(), self._guard, console=self._console
            )
            self._resources.callback(self._flight.close)
            self._flight.open(self)
        chores = [
            Chore(self._counters.refresh),
            Chore(self._counters.refresh_workers, early=_EARLY),
            Chore(self._flight.look_at_host),
        ]
        self._background = Background(self._open_sinks(), chores, self._guard, row_steps=self._every)
        self._background.put(log_header(rank, self.config, self._about))
        self._background.start()
        for note in self._counters.notes():
            if self._console:
                get_logger().info("%s", note)

    def _open_counters(self, rank: Rank) -> Counters:
        reset = self.config.peaks == "step"
        host = HostMemory(reset_peaks=reset, workers=self.config.workers)
        updates = UpdateWatch()
        self._resources.callback(updates.close)
        return Counters(self.config.devices, host, rank=rank.rank, reset_peaks=reset, updated=updates.take)

    def resume(self, after_step: int) -> None:
        """The training goes on from a checkpoint: the next step's number follows ``after_step``; before the first."""
        if self._step or self._ended or after_step <= 0:
            return
        self._step = self._thorough_step = after_step
        if self._patterns is not None:
            self._patterns = replace(self._patterns, warmup_steps=self._patterns.warmup_steps + after_step)
        for part in (self._counters, self._investigator):
            if part is not None:
                part.resumed_after = after_step

    def step(self, *, profiled: bool = False) -> Sequence[Finding]:
        """A training step has ended.

        Args:
            profiled: It ran under a profiler, whose own memory is in the host's figures.

        Returns:
            What has just become clear, usually nothing. Every step is judged; in a loop of very short steps,
            those of a twelfth of a second together.
        """
        return () if self._pid != Process.number else self.advance(profiled)

    def advance(self, profiled: bool = False) -> Sequence[Finding]:
        """``step()`` for a caller that has made sure that this is no forked child: the hot path."""
        if self._ended:
            return ()
        self._step = step = self._step + 1
        if self._counters is None or PART in self._guard.failed:
            return ()
        counters = self._counters
        try:
            if not (profiled or self._is_wide_awake) and counters.pass_over(time.time()):
                return ()
            thorough = step >= self._thorough_step
            if thorough:
                self._thorough_step = step - step % self._every + self._every
            self._new += counters.sample(step, thorough=thorough, profiled=profiled or self._is_watching)
            now = time.monotonic()
            if step < self._judge_step and now < self._judge_time:
                return ()
            return self._work(now)
        except Exception as error:
            self._guard.fail(PART, error)
            return ()

    def discard_peaks(self) -> None:
        """Forget the peaks since the last step: they were tbmem's own doing."""
        if self._is_running and self._counters is not None:
            self._guard.run(PART, self._counters.discard_peaks)

    def log(self, record: LogRecord) -> None:
        """Leave a record for the live log."""
        if self._background is not None:
            self._background.put(record)

    def flush(self, ends: bool = False) -> None:
        """Write what is left now, samples of the last steps included, and wait a moment for it: SIGTERM came."""
        if self._background is None or not self._is_running:
            return
        new, self._new = [*self._new, *self._passed()], []
        for pending in (new, CLOSE_ROWS):
            self._background.put(pending)
        # no end: a run that was killed has none
        self.log({"type": "signal", "name": "SIGTERM", "time": time.time(), "step": self._step, "ends": ends})
        self._background.flush(_FLUSH_SECONDS)

    def situation(self) -> Situation:
        """What is known of the run at this moment."""
        last = {name: watched.last for name, watched in list(self._devices.items()) if watched.last is not None}
        rank = self._rank.rank if self._rank is not None else 0
        return Situation(
            self._step + 1, tuple(self.findings), {**last, **{each.device: each for each in self._new}}, rank
        )

    def stop(self, error: BaseException | None = None) -> None:
        """The run has ended: judge what was open, write what is left, let go of everything.

        Args:
            error: The exception that ended it, if one did. Without one a monitor of its own looks for it, as
                ``MemoryCallback.stop`` does.
        """
        self._stop(self._last_error.find() if error is None and self._owns_flight else error)

    def _stop(self, error: BaseException | None) -> None:
        if not self._is_running:
            return
        if self._owns_flight and self._flight is not None:
            self._guard.run(PART, self._flight.end, error)
        self._ended = True
        self._guard.run(PART, self._finish)
        verdicts = self._guard.run(PART, self._last_word) or []
        end = self._guard.run(PART, log_end, self._step, verdicts, error, self.findings)
        self.log(end or {"type": "end", "time": time.time(), "steps": self._step})
        self._let_go()

    def _let_go(self) -> None:
        if self._investigator is not None:
            self._investigator.close()
        if self._background is not None:
            self._background.stop()
        if self._counters is not None:
            self._guard.run("monitor (switching off)", self._counters.close)
        self._resources.close()

    def verdicts(self) -> list[Finding]:
        """The state of each device in one finding; where the run ended because memory ran out, that is its state."""
        ran_out = {finding.device: finding for finding in self.findings if finding.kind is FindingKind.OOM}
        return [ran_out.get(name) or detector.verdict() for name, detector in self._detectors().items()]

    def _last_word(self) -> list[Finding]:
        """The verdicts. A leak's is its last finding too: its rate was told of fewer steps before."""
        verdicts = self.verdicts()
        for verdict in verdicts:
            if verdict.kind is FindingKind.LEAK and verdict not in self.findings:
                self._keep(verdict)
                self.log(verdict)
        return verdicts

    def _keep(self, finding: Finding) -> None:
        if len(self.findings) < _KEPT_FINDINGS:
            self.findings.append(finding)

    def peaks(self) -> list[Peak]:
        """The highest level of each device so far."""
        for sample in self._new:
            self._watched(sample.device).peak.add([sample])
        return [peak for watched in self._devices.values() if (peak := watched.peak.peak) is not None]

    @property
    def log_path(self) -> Path | None:
        """The live log, if one is written."""
        folder = self._run_folder
        return folder.monitor_log if folder is not None and self.config.enabled and self.config.log else None

    @property
    def _run_folder(self) -> RunFolder | None:
        return self._folder if isinstance(self._folder, RunFolder) else None

    def report(self, finding: Finding) -> None:
        """Keep a finding, log it, and show it, without waiting for the next round of writing."""
        if not finding.kind.is_quiet:
            self._keep(finding)
        self.log(finding)
        if self._background is not None:
            self._background.hurry()
        if self._console:
            show_finding(finding)

    def _work(self, now: float) -> Sequence[Finding]:
        """What not every step needs: hand the samples on, judge them, look into suspicions."""
        found = self._judge()
        if self._flight is not None:
            self._flight.settle()
        investigator = self._investigator
        if investigator is not None:
            found += self._investigate(investigator)
        is_waiting = investigator is not None and investigator.is_waiting
        self._is_watching = investigator is not None and investigator.is_watching
        self._is_wide_awake = is_waiting or self._is_watching
        fewest, most = _BATCH_STEPS
        batch = min(max(fewest, int(self._step * _BATCH_SHARE)), most)
        self._judge_step = self._step + (1 if is_waiting else batch)
        self._judge_time = now + _BATCH_SECONDS
        for finding in found:
            self.report(finding)
        return found

    def _judge(self) -> list[Finding]:
        """Hand the new samples on, and to the detectors of their devices."""
        new, self._new = self._new, []
        if new and self._background is not None:
            self._background.put(new)
        names = dict.fromkeys([sample.device for sample in new])
        found: list[Finding] = []
        for name in names:
            own = new if len(names) == 1 else [sample for sample in new if sample.device == name]
            found += self._watched(name).judge(own)
        return found

    def _watched(self, device: str) -> _Device:
        watched = self._devices.get(device)
        if watched is None:
            # the CPU stood in until the accelerator was found
            self._devices.pop(CPU, None)
            awaits = self._investigator is not None
            watched = self._devices[device] = _Device(self._patterns, awaits_evidence=awaits)
        return watched

    def _detectors(self) -> dict[str, Detector]:
        return {name: each.detector for name, each in self._devices.items() if each.detector is not None}

    def _room(self, device: str) -> int | None:
        last = self._devices[device].last
        return room_of(last) if last is not None else None

    def _investigate(self, investigator: Investigator) -> list[Finding]:
        investigator.prepare()
        detectors = self._detectors()
        if not (investigator.is_waiting or any(each.suspicions for each in detectors.values())):
            return []
        was_watching = investigator.is_watching
        found = investigator.step(self._step, detectors, loop_frame())
        if was_watching or investigator.is_watching:
            # what looking took is not the next step's doing
            self.discard_peaks()
        return found

    def _passed(self) -> list[MemorySample]:
        return self._counters.passed(self._step) if self._counters is not None else []

    def _finish(self) -> None:
        self._new += self._passed()
        for finding in self._judge():
            self.report(finding)
        for watched in self._devices.values():
            if watched.detector is not None:
                for finding in watched.detector.close():
                    self.report(finding)
        if self._background is not None:
            self._background.put(CLOSE_ROWS)

    def _open_sinks(self) -> list[Sink]:
        folder = self._run_folder
        sinks: list[Sink | None] = []
        # files first: the console's lock may be held by what a signal has interrupted
        if self.log_path is not None:
            sinks.append(self._guard.run(WRITING, LogSink, self.log_path))
        if folder is not None and self.config.scalars:
            sinks.append(self._guard.run("TensorBoard scalars", ScalarSink, folder.path))
        if self._console:
            sinks.append(LineSink(self.config.log_every_n_steps))
        return [sink for sink in sinks if sink is not None]
