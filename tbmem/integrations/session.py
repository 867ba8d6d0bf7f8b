"""A configuration and a framework's folder go in; one MemoryCallback per training comes out: the adapters' share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tbmem.config import Config, ConfigSource, load_with_origins
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.summary import RunSummary
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.guard import Guard


class Session:
    """The MemoryCallback of the training that runs now, if one does.

    Args:
        config: A YAML file, a mapping of sections, a Config, or ``None`` for the defaults.
        overrides: A dotlist, ``["profiling.active=5"]``.
        **sections: Values by section.

    Raises:
        ConfigError: The configuration is wrong; raised here, before the training begins.
    """

    def __init__(self, config: ConfigSource, overrides: Iterable[str], sections: dict[str, Any]) -> None:
        loaded = load_with_origins(config, overrides, **sections)
        self._config: Config = loaded.config
        self._has_logdir = loaded.origins["run.logdir"] != "default"
        self._guard = Guard()
        self._reported = 0
        self.memory: MemoryCallback | None = None
        """The callback of the training that runs, or ran last."""

    @property
    def summary(self) -> RunSummary | None:
        """What the end of the last training told."""
        return self.memory.summary if self.memory is not None else None

    @property
    def is_active(self) -> bool:
        """Whether a training is being watched by this process."""
        return self.memory is not None and self.memory.is_active

    def begin(self, logdir: str | os.PathLike[str] | None, name: str | None = None) -> None:
        """A training begins, its steps with ``note()``; one that never ended is closed first.

        Args:
            logdir: The framework's folder; used unless the user's configuration names one.
            name: Name of the run folder there, unless the user's configuration has one.
        """
        self.end()
        config = self._config
        if logdir is not None and not self._has_logdir:
            run = replace(config.run, logdir=str(Path(logdir).absolute()), name=config.run.name or name)
            config = replace(config, run=run)
        self.memory = MemoryCallback(config)
        self._reported = 0
        self.memory.start(awaits_resume=True)

    def watch(self, model: Any, optimizers: Iterable[Any]) -> None:
        """Give names to what the address book notes; wrapped optimizers are left to be found."""
        if self.memory is not None and isinstance(model, torch.nn.Module):
            known = [each for each in optimizers if isinstance(each, torch.optim.Optimizer)]
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
        """A training step has ended.

        Returns:
            The findings that are new and that a person should see.
        """
        if self.memory is None:
            return []
        self.memory.step()
        return self.new_findings()

    def end(self, error: BaseException | None = None) -> list[Finding]:
        """The training has ended, in order or by ``error``; a second call does nothing.

        Returns:
            What only the end of a run can find, the verdicts included.
        """
        memory = self.memory
        if memory is None or not memory.is_active:
            return []
        memory.stop(error)
        verdicts = memory.summary.verdicts if memory.summary is not None else ()
        findings = self.new_findings()
        return [*findings, *(each for each in verdicts if _is_for_people(each) and each not in findings)]

    def new_findings(self) -> list[Finding]:
        """Findings since the last call."""
        monitor = self.memory.monitor if self.memory is not None else None
        if monitor is None or len(monitor.findings) == self._reported:
            return []
        found = monitor.findings[self._reported :]
        self._reported = len(monitor.findings)
        return [finding for finding in found if _is_for_people(finding)]

    def guarded(self, report: Any, *arguments: Any) -> None:
        """Call a framework's logger: an error in it is logged once and must not end the training."""
        self._guard.run("the framework's logger", report, *arguments)


def _is_for_people(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO or finding.kind in (FindingKind.STABLE, FindingKind.GROWING)


def metric_of(finding: Finding) -> dict[str, float]:
    """A finding as a metric that every logger takes: ``{'tbmem/leak': 1.0}``, with its rate where it has one."""
    metrics = {f"tbmem/{finding.kind.value}": 1.0}
    rate = finding.evidence.get("bytes_per_step")
    if isinstance(rate, (int, float)):
        metrics[f"tbmem/{finding.kind.value}_bytes_per_step"] = float(rate)
    return metrics
