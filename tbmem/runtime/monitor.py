"""Steps go in; samples, findings, console lines, a live log and scalars come out: MemoryMonitor."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from tbmem.analysis.patterns import Detector, Limits
from tbmem.config.load import override_section
from tbmem.config.schema import MonitorConfig, PatternsConfig
from tbmem.errors import TbmemError, UsageError
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import SCHEMA_VERSION, LogRecord, RowBuilder
from tbmem.model.sample import MemorySample
from tbmem.model.summary import Peak
from tbmem.present.console import console_handler, get_logger, show_finding
from tbmem.runtime.background import Background, Sink
from tbmem.runtime.guard import WRITING, Guard
from tbmem.runtime.ranks import Rank, find_rank
from tbmem.runtime.run_folder import RunFolder
from tbmem.runtime.sinks import LineSink, LogSink, ScalarSink
from tbmem.sources.counters import Counters
from tbmem.sources.devices import CPU
from tbmem.sources.host import HostMemory

PART = "monitor"
"""Name of this part in the log and in the summary's problems."""
_ROW_SECONDS = 1.0
"""A row is closed after this time even if its steps are not complete, so that slow steps are seen at once."""
_BATCH_SECONDS = 0.02
"""Samples of steps shorter than this are judged together: the same code on warm caches costs half."""
_KEPT_FINDINGS = 1000


class _Watched:
    """What the monitor keeps for one device."""

    def __init__(self, limits: Limits | None) -> None:
        self.detector = Detector(limits) if limits is not None else None
        self.row = RowBuilder()
        self.peak: Peak | None = None
        self._highest = -1

    def note_peak(self, sample: MemorySample) -> None:
        reached = sample.highest
        if reached is None or reached <= self._highest:
            return
        self._highest = reached
        self.peak = Peak(
            device=sample.device,
            bytes=reached,
            step=sample.step,
            counter=_peak_counter(sample),
            total=sample.device_total,
        )


def _peak_counter(sample: MemorySample) -> str:
    if sample.peak_allocated is not None:
        return "peak_allocated"
    return "allocated" if sample.peak is None else "host_peak_rss"


class MemoryMonitor:
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
        **overrides: Any,
    ) -> None:
        self.config = override_section("monitor", config or MonitorConfig(), overrides)
        self.findings: list[Finding] = []
        patterns = patterns or PatternsConfig()
        self._limits = limits_of(patterns) if patterns.enabled else None
        self._folder = folder
        self._rank = rank
        self._console = console
        self._guard = guard or Guard()
        self._counters = counters
        self._about = about or {}
        self._devices: dict[str, _Watched] = {}
        self._background: Background | None = None
        self._resources = ExitStack()
        self._step = 0
        self._row_began = 0.0
        self._judged_at = 0.0
        self._pending: list[MemorySample] = []
        self._pid: int | None = None
        self._ended = False

    def __enter__(self) -> MemoryMonitor:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """The first training step begins.

        Raises:
            UsageError: It was started before.
            RunFolderError: The folder cannot be written.
            ConfigError: ``monitor.devices`` names a device that is not there.
        """
        if self._pid is not None:
            raise UsageError("this MemoryMonitor was started before: make a new one for each run")
        if not self.config.enabled:
            self._pid, self._ended = os.getpid(), True
            return
        self._rank = self._rank or find_rank()
        try:
            with ExitStack() as undo:
                undo.callback(self._let_go)
                self._open(self._rank)
                undo.pop_all()
        except TbmemError:
            raise
        except Exception as error:
            self._guard.fail(PART, error)
            self._ended = True
        self._pid = os.getpid()

    def _open(self, rank: Rank) -> None:
        if self._console is None:
            self._console = rank.rank == 0
        if self._console:
            self._resources.enter_context(console_handler())
        if self._folder is not None and not isinstance(self._folder, RunFolder):
            # alone, rank 0 writes; MemoryCallback gives every rank that shall write a folder of its own
            self._folder = RunFolder(self._folder) if rank.rank == 0 else None
        reset = self.config.peaks == "step"
        if self._counters is None:
            host = HostMemory(reset_peaks=reset, workers=self.config.workers)
            self._counters = Counters(self.config.devices, host, rank=rank.rank, reset_peaks=reset)
        self._background = Background(self._open_sinks(), [self._counters.refresh], self._guard)
        self._background.put(self._header(rank))
        self._background.start()
        self._row_began = time.monotonic()
        for note in self._counters.notes():
            if self._console:
                get_logger().info("%s", note)

    def step(self, *, profiled: bool = False) -> Sequence[Finding]:
        """A training step has ended.

        Args:
            profiled: It ran under a profiler, whose own memory is in the host's figures.

        Returns:
            What has just become clear, usually nothing. Every step is judged; in a loop of very short steps,
            those of a fiftieth of a second together.
        """
        if self._pid != os.getpid() or self._ended:
            return ()
        self._step += 1
        if not self._guard.is_on(PART):
            return ()
        try:
            return self._sample(profiled)
        except Exception as error:
            self._guard.fail(PART, error)
            return ()

    def discard_peaks(self) -> None:
        """Forget the peaks since the last step: they were tbmem's own doing."""
        if self._pid == os.getpid() and not self._ended and self._counters is not None:
            self._guard.run(PART, self._counters.discard_peaks)

    def log(self, record: LogRecord) -> None:
        """Leave a record for the live log."""
        if self._background is not None:
            self._background.put(record)

    def stop(self) -> None:
        """The run has ended: judge what was open, write what is left, let go of everything."""
        if self._pid != os.getpid() or self._ended:
            return
        self._ended = True
        self._guard.run(PART, self._finish)
        verdicts = [verdict.to_dict() for verdict in self._guard.run(PART, self.verdicts) or ()]
        self.log({"type": "end", "time": time.time(), "steps": self._step, "verdicts": verdicts})
        self._let_go()

    def _let_go(self) -> None:
        if self._background is not None:
            self._background.stop()
        if self._counters is not None:
            self._guard.run("monitor (switching off)", self._counters.close)
        self._resources.close()

    def verdicts(self) -> list[Finding]:
        """The state of each device in one finding."""
        detectors = [watched.detector for watched in self._devices.values()]
        return [detector.verdict() for detector in detectors if detector is not None]

    def peaks(self) -> list[Peak]:
        """The highest level of each device so far."""
        return [watched.peak for watched in self._devices.values() if watched.peak is not None]

    @property
    def log_path(self) -> Path | None:
        """The live log, if one is written."""
        if not isinstance(self._folder, RunFolder) or not self.config.log:
            return None
        return self._folder.monitor_log

    def report(self, finding: Finding) -> None:
        """Keep a finding, log it, and show it."""
        if len(self.findings) < _KEPT_FINDINGS:
            self.findings.append(finding)
        self.log(finding)
        if self._console:
            show_finding(finding)

    def _sample(self, profiled: bool) -> Sequence[Finding]:
        assert self._counters is not None
        step = self._step
        due = step % self.config.log_every_n_steps == 0
        samples = self._counters.sample(step, thorough=due, profiled=profiled)
        self._pending.extend(samples)
        now = time.monotonic()
        if not due and now - self._judged_at < _BATCH_SECONDS:
            return ()
        self._judged_at = now
        found = self._judge_pending()
        if due or now - self._row_began >= _ROW_SECONDS:
            self._row_began = now
            self._close_rows()
        for finding in found:
            self.report(finding)
        return found

    def _judge_pending(self) -> list[Finding]:
        pending, self._pending = self._pending, []
        found: list[Finding] = []
        for sample in pending:
            watched = self._devices.get(sample.device)
            if watched is None:
                # the CPU stood in until the accelerator was found
                self._devices.pop(CPU, None)
                watched = self._devices[sample.device] = _Watched(self._limits)
            watched.note_peak(sample)
            watched.row.add(sample)
            if watched.detector is not None:
                found.extend(watched.detector.update(sample))
        return found

    def _close_rows(self) -> None:
        assert self._background is not None
        self._background.put_all([watched.row for watched in self._devices.values()])
        for watched in self._devices.values():
            watched.row = RowBuilder(watched.row)

    def _finish(self) -> None:
        for finding in self._judge_pending():
            self.report(finding)
        for watched in self._devices.values():
            if watched.detector is not None:
                for finding in watched.detector.close():
                    self.report(finding)
        self._close_rows()

    def _open_sinks(self) -> list[Sink]:
        folder = self._folder
        sinks: list[Sink | None] = []
        if self._console:
            sinks.append(LineSink(self.config.log_every_n_steps))
        if isinstance(folder, RunFolder) and self.config.log:
            sinks.append(self._guard.run(WRITING, LogSink, folder.monitor_log))
        if isinstance(folder, RunFolder) and self.config.scalars:
            sinks.append(self._guard.run("TensorBoard scalars", ScalarSink, folder.path))
        return [sink for sink in sinks if sink is not None]

    def _header(self, rank: Rank) -> dict[str, Any]:
        return {
            "type": "header",
            "schema": SCHEMA_VERSION,
            "started": time.time(),
            "rank": rank.rank,
            "world_size": rank.world_size,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "monitor": asdict(self.config),
            **self._about,
        }


def limits_of(patterns: PatternsConfig) -> Limits:
    """The detector's limits as the configuration gives them."""
    return Limits(
        warmup_steps=patterns.warmup_steps,
        patience=patterns.patience,
        min_growth_bytes=patterns.min_growth_bytes,
        min_growth_percent=patterns.min_growth_percent,
        spike_percent=patterns.spike_percent,
        min_spike_bytes=patterns.min_spike_bytes,
        capacity_percent=tuple(patterns.capacity_percent),
    )
