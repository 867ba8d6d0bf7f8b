"""TrainingSession: one MemoryCallback per training run, as all adapters need it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import torch

from tbmem.config import Config, ConfigSource, load_with_origins
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.run_summary import RunSummary
from tbmem.present.lines import get_logger
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.process.guard import Guard

Adapter = TypeVar("Adapter", bound="ContextManagerMixin")


class TrainingSession:
    """The MemoryCallback of the training that runs now, if one does.

    A copy, as of a callback that is sent to another process, has the settings and no training.

    Args:
        config: A YAML file, a mapping of sections, a Config, or ``None`` for the defaults.
        overrides: A dotlist, ``["profiling.active=5"]``.
        sections: Values by section.
        hears_errors: Whether the framework tells its callbacks that a training has failed. Where it does not, one
            that has is closed when another training begins, whoever watches that.

    Raises:
        ConfigError: The configuration is wrong; raised here, before the training begins.
    """

    _open: ClassVar[WeakSet[TrainingSession]] = WeakSet()
    """Those whose training runs, or has failed without a word."""

    def __init__(
        self,
        config: ConfigSource,
        overrides: Iterable[str],
        sections: dict[str, Any],
        *,
        hears_errors: bool = True,
    ) -> None:
        loaded = load_with_origins(config, overrides, **sections)
        self._config: Config = loaded.config
        self._has_logdir = loaded.origins["run.logdir"] != "default"
        self._hears_errors = hears_errors
        self._guard = Guard()
        self._reported = 0
        self._training: object = None
        self._events_per_batch = (
            1  # how often each event arrives: as often as the framework has the callback in its list
        )
        self._events_seen = 0
        self.memory: MemoryCallback | None = None
        """The callback of the training that runs, or ran last."""

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "memory": None,
            "_reported": 0,
            "_training": None,
            "_events_per_batch": 1,
            "_events_seen": 0,
        }

    @property
    def summary(self) -> RunSummary | None:
        """What the end of the last training told."""
        return self.memory.summary if self.memory is not None else None

    @property
    def is_active(self) -> bool:
        """Whether a training is being watched by this process."""
        return self.memory is not None and self.memory.is_active

    def begin(self, logdir: str | os.PathLike[str] | None, name: str | None = None, *, training: object = None) -> None:
        """A training begins, its steps with ``note()``; one that never ended is closed first.

        Args:
            logdir: The framework's folder; used unless the user's configuration names one.
            name: Name of the run folder there, unless the user's configuration has one.
            training: An object that all callbacks of this training are given, and those of no other. If the training
                is watched already, this session has no part in it: two would share their files and the profiler.
        """
        if training is not None and self._is_watched(training):
            return
        self.end()
        for other in [session for session in self._open if not session._hears_errors]:
            other.end()
        config = self._config
        if logdir is not None and not self._has_logdir:
            run = replace(config.run, logdir=str(Path(logdir).absolute()), name=config.run.name or name)
            config = replace(config, run=run)
        self.memory = MemoryCallback(config)
        self._reported = 0
        self.memory.start(awaits_resume=True)
        self._training, self._events_per_batch, self._events_seen = training, 1, 0
        self._open.add(self)

    def _is_watched(self, training: object) -> bool:
        watching = next((other for other in self._open if other._training is training and other.is_active), None)
        if watching is None:
            return False
        if watching is self:
            self._events_per_batch += 1
        else:
            self.end()
            self.memory = None
        get_logger().warning("this training has a tbmem callback already: the one that was given second does nothing")
        return True

    def is_repeated(self) -> bool:
        """Whether this batch's end will be told again: to be asked once in each event that may end a step."""
        self._events_seen = (self._events_seen + 1) % self._events_per_batch
        return self._events_seen != 0

    def watch(self, model: Any, optimizers: Iterable[Any]) -> None:
        """Give names to what the address book notes; wrapped optimizers are left to be found."""
        if self.memory is not None and isinstance(model, torch.nn.Module):
            known = [optimizer for optimizer in optimizers if isinstance(optimizer, torch.optim.Optimizer)]
            self.memory.watch(model, *known)

    def note(self, framework: str, version: str, resumed_after_step: int) -> None:
        """Leave in the live log what the framework knows; the steps of a training that is resumed go on from there."""
        if self.memory is None:
            return
        self.memory.resume(resumed_after_step)
        if self.memory.monitor is not None:
            facts = {"name": framework, "version": version, "resumed_after_step": resumed_after_step}
            self.memory.monitor.log({"type": "framework", **facts})

    def step(self) -> list[Finding]:
        """A training step has ended; returns the findings that are new and that a person should see."""
        if self.memory is None:
            return []
        self.memory.step()
        return self.new_findings()

    def end(self, error: BaseException | None = None) -> list[Finding]:
        """The training has ended, in order or by ``error``; returns what only that can find, the verdicts included."""
        self._open.discard(self)
        self._training = None
        memory = self.memory
        if memory is None or not memory.is_active:
            return []
        memory.stop(error)
        verdicts = memory.summary.verdicts if memory.summary is not None else ()
        findings = self.new_findings()
        return [*findings, *(verdict for verdict in verdicts if _is_noteworthy(verdict) and verdict not in findings)]

    def new_findings(self) -> list[Finding]:
        """Findings since the last call."""
        monitor = self.memory.monitor if self.memory is not None else None
        if monitor is None or len(monitor.findings) == self._reported:
            return []
        findings = monitor.findings[self._reported :]
        self._reported = len(monitor.findings)
        return [finding for finding in findings if _is_noteworthy(finding)]

    def report(self, findings: Iterable[Finding], log: Callable[[Finding], object]) -> None:
        """Give findings to a framework's logger: an error in it is logged once and must not end the training."""
        for finding in findings:
            self._guard.run("the framework's logger", log, finding)


class ContextManagerMixin:
    """An adapter whose ``with`` block ends what was not ended, where the framework says nothing of an exception."""

    session: TrainingSession

    def __enter__(self: Adapter) -> Adapter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.session.end(error)


def _is_noteworthy(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO or finding.kind in (FindingKind.STABLE, FindingKind.GROWING)


def finding_metrics(finding: Finding) -> dict[str, float]:
    """A finding as a metric that every logger takes: ``{'tbmem/leak': 1.0}``, with its rate where it has one."""
    metrics = {f"tbmem/{finding.kind.value}": 1.0}
    rate = finding.evidence.get("bytes_per_step")
    if isinstance(rate, (int, float)):
        metrics[f"tbmem/{finding.kind.value}_bytes_per_step"] = float(rate)
    return metrics
