"""Common parts of all adapters: one MemoryCallback per training run, and the framework's version."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import torch

from tbmem.config import Config, ConfigSource, load_with_origins
from tbmem.config.rules import is_address
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.run_summary import RunSummary
from tbmem.present.lines import get_logger
from tbmem.requirements import require
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.metric_sinks import find_sinks
from tbmem.runtime.process.guard import Guard

Adapter = TypeVar("Adapter", bound="ContextManagerMixin")
FindingLogger = Callable[[Finding], object]


class TrainingSession:
    """The MemoryCallback of the current training run, if any.

    A copy, as of a callback that is sent to another process, has the settings but no run. The configuration is given as
    to ``MemoryCallback``, and errors in it are raised here, before the training begins.

    Args:
        sections: Values by section, ``on_finding`` and ``sinks``.
        hears_errors: Whether the framework notifies its callbacks of errors. If not, a failed run is closed when
            another one begins in this process.
    """

    _open: ClassVar[WeakSet[TrainingSession]] = WeakSet()
    """Sessions with a run that has not ended, or has failed without notice."""

    def __init__(
        self, config: ConfigSource, overrides: Iterable[str], sections: dict[str, Any], *, hears_errors: bool = True
    ) -> None:
        self._on_finding, self._sinks = sections.pop("on_finding", ()), sections.pop("sinks", ())
        loaded = load_with_origins(config, overrides, **sections)
        self._config: Config = loaded.config
        if loaded.config.enabled:
            find_sinks(loaded.config.output.sinks, self._sinks)
        self._has_logdir = loaded.origins["run.logdir"] != "default"
        self._hears_errors = hears_errors
        self._guard = Guard()
        self._reported = 0
        self._training: object = None
        # how often each event arrives: as often as the framework has the callback in its list
        self._events_per_batch, self._events_seen = 1, 0
        self._is_used = False
        self.memory: MemoryCallback | None = None
        """The callback of the current or last run."""

    def __getstate__(self) -> dict[str, Any]:
        no_run = {"memory": None, "_is_used": False, "_reported": 0, "_training": None}
        return {**self.__dict__, **no_run, "_events_per_batch": 1, "_events_seen": 0}

    @property
    def summary(self) -> RunSummary | None:
        """Summary of the last run."""
        return self.memory.summary if self.memory is not None else None

    @property
    def is_active(self) -> bool:
        """Whether a run is monitored in this process."""
        return self.memory is not None and self.memory.is_active

    def begin(self, logdir: str | os.PathLike[str] | None, name: str | None = None, *, training: object = None) -> None:
        """Begin a run; one that has not ended is closed first.

        Args:
            logdir: The framework's folder; used unless the user's configuration names one.
            name: Name of the run folder there, unless the user's configuration has one.
            training: Identifies the training run. If it is monitored already, this session does nothing: two would
                share their files and the profiler.
        """
        self._is_used = True
        if training is not None and self._is_watched(training):
            return
        self.end()
        for other in [session for session in self._open if not session._hears_errors]:
            other.end()
        config = self._config
        if logdir is not None and is_address(os.fspath(logdir)) and not self._has_logdir:
            get_logger().warning(
                "%s is no folder of this machine: the run's files go to %s (run.logdir)", logdir, config.run.logdir
            )
            logdir = None
        if logdir is not None and not self._has_logdir:
            run = replace(config.run, logdir=str(Path(logdir).absolute()), name=config.run.name or name)
            config = replace(config, run=run)
        self.memory = MemoryCallback(config, on_finding=self._on_finding, sinks=self._sinks)
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
        get_logger().warning("this training run has a tbmem callback already: the second one does nothing")
        return True

    def is_repeated(self) -> bool:
        """Whether the event of this batch will be repeated; call it once per event that may end a step."""
        self._events_seen = (self._events_seen + 1) % self._events_per_batch
        return self._events_seen != 0

    def watch(self, model: Any, optimizers: Iterable[Any]) -> None:
        """Name the model's tensors in the address book; wrapped optimizers are found at their first step."""
        if self.memory is not None and isinstance(model, torch.nn.Module):
            known = [optimizer for optimizer in optimizers if isinstance(optimizer, torch.optim.Optimizer)]
            self.memory.watch(model, *known)

    def note(self, framework: str, version: str, resumed_after_step: int) -> None:
        """Log the framework's version, and continue the step numbers of a resumed run."""
        if self.memory is None:
            return
        self.memory.resume(resumed_after_step)
        if self.memory.monitor is not None:
            facts = {"name": framework, "version": version, "resumed_after_step": resumed_after_step}
            self.memory.monitor.log({"type": "framework", **facts})

    def step(self, *loggers: FindingLogger) -> None:
        """Record the end of a training step, and pass new noteworthy findings to the framework's loggers."""
        if self.memory is not None:
            self.memory.step()
            self._report(self.memory, loggers)

    def end(self, *loggers: FindingLogger, error: BaseException | None = None) -> None:
        """End the run, by ``error`` if given, and pass the last findings and the verdicts to the loggers."""
        self._open.discard(self)
        self._training = None
        memory = self.memory
        if memory is None or not memory.is_active:
            return
        memory.stop(error)
        self._report(memory, loggers, memory.summary.verdicts if memory.summary is not None else ())

    def warn_if_unused(self) -> None:
        """Log that no training has called the framework's callback, as where the trainer was not given it."""
        if not self._is_used and self._config.enabled:
            get_logger().warning(
                "no training has called this tbmem callback: is it in the trainer's list of callbacks?"
            )

    def _report(
        self, memory: MemoryCallback, loggers: Sequence[FindingLogger], verdicts: Sequence[Finding] = ()
    ) -> None:
        findings = memory.monitor.findings[self._reported :] if memory.monitor is not None else []
        self._reported += len(findings)
        for finding in [*findings, *(verdict for verdict in verdicts if verdict not in findings)]:
            if finding.severity is not Severity.INFO or finding.kind in (FindingKind.STABLE, FindingKind.GROWING):
                for logger in loggers:
                    self._guard.run("the framework's logger", logger, finding)


class RunResults:
    """What an adapter tells of its current or last run."""

    session: TrainingSession

    @property
    def summary(self) -> RunSummary | None:
        """Verdicts, findings, peaks, files and costs, once the run has ended; ``None`` before, or without a run."""
        return self.session.summary

    @property
    def folder(self) -> Path | None:
        """The run folder of the current or last run; ``None`` before one."""
        return self.session.memory.folder if self.session.memory is not None else None

    @property
    def verdicts(self) -> tuple[Finding, ...]:
        """What each device is judged to be so far, one finding for each; empty without a run."""
        return self.session.memory.verdicts if self.session.memory is not None else ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far, by step; empty without a run."""
        return self.session.memory.findings if self.session.memory is not None else ()


class ContextManagerMixin(RunResults):
    """An adapter whose ``with`` block ends the run, for frameworks that do not report exceptions."""

    def __enter__(self: Adapter) -> Adapter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.session.warn_if_unused()
        self.session.end(error=error)


def finding_metrics(finding: Finding) -> dict[str, float]:
    """A finding as metrics, ``{'tbmem/leak': 1.0}``, with its rate if it has one."""
    metrics = {f"tbmem/{finding.kind.value}": 1.0}
    rate = finding.evidence.get("bytes_per_step")
    if isinstance(rate, (int, float)):
        metrics[f"tbmem/{finding.kind.value}_bytes_per_step"] = float(rate)
    return metrics


def in_use(packages: Mapping[str, str], *, extra: str, minimum: str) -> list[ModuleType]:
    """The modules of a framework that the program uses, where it has several names; errors as in ``require``."""
    loaded = [module for module in packages if module in sys.modules]
    installed = [module for module, package in packages.items() if find_spec(package) is not None]
    chosen = loaded or installed[:1] or list(packages)[:1]
    for module in chosen:
        require(packages[module], extra=extra, minimum=minimum, distribution=packages[module].replace("_", "-"))
    return [import_module(module) for module in chosen]


def version_of(instance: object) -> str:
    """Version of the framework of an object; empty if unknown."""
    package = sys.modules[type(instance).__module__.partition(".")[0]]
    return str(getattr(package, "__version__", ""))
