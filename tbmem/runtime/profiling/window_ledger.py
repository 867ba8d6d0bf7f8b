"""Files and cost of the profiler's windows, and the finding on missing windows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.run_summary import ProfilerCost
from tbmem.runtime.profiling.window import Window, WindowCost, WindowFiles

_PLAIN_STEPS = 256
"""Number of steps outside windows whose duration is kept for comparison."""


@dataclass(slots=True)
class WindowLedger:
    """Files and cost of a run's windows."""

    recorded: dict[Path, range] = field(default_factory=dict)
    """The traces and their steps."""
    snapshots: list[Path] = field(default_factory=list)
    address_books: list[Path] = field(default_factory=list)
    complete: int = 0
    """Number of windows with all of their steps."""
    _costs: list[WindowCost] = field(default_factory=list)
    _plain_steps: deque[float] = field(default_factory=lambda: deque(maxlen=_PLAIN_STEPS))

    def add(self, window: Window, files: WindowFiles, *, complete: bool) -> None:
        """Add a finished window."""
        self._costs.append(window.cost)
        self.complete += complete
        if files.trace is not None:
            self.recorded[files.trace] = range(window.steps[0], window.steps[-1] + 1)
        if files.snapshot is not None:
            self.snapshots.append(files.snapshot)
        if files.address_book is not None:
            self.address_books.append(files.address_book)

    @property
    def traces(self) -> list[Path]:
        """The traces, in order."""
        return list(self.recorded)

    def add_plain_step(self, seconds: float) -> None:
        """Add the duration of a step outside windows."""
        self._plain_steps.append(seconds)

    @property
    def has_enough_plain_steps(self) -> bool:
        """Whether further plain steps would only replace others."""
        return len(self._plain_steps) == _PLAIN_STEPS

    def cost(self) -> ProfilerCost | None:
        """Cost of profiling; ``None`` if no step was recorded."""
        recorded = [seconds for cost in self._costs for seconds in cost.steps]
        if not recorded:
            return None
        from statistics import median  # slow to import

        return ProfilerCost(
            windows=len(self._costs),
            recorded_steps=len(recorded),
            recorded_step_seconds=median(recorded),
            plain_step_seconds=median(self._plain_steps) if self._plain_steps else None,
            writing_seconds=sum(cost.writing for cost in self._costs),
            host_bytes=max(max(cost.host_after - cost.host_before, 0) for cost in self._costs),
            trace_bytes=sum(cost.bytes_written for cost in self._costs),
        )


def short_run_finding(
    config: ProfilingConfig, steps: int, ledger: WindowLedger, *, resumed_after: int = 0
) -> Finding | None:
    """The finding on a run shorter than its schedule; ``None`` if all windows (with repeat=0: one) are complete."""
    wanted = max(config.repeat, 1)
    if not config.enabled or steps >= config.steps_needed or ledger.complete >= wanted:
        return None
    if steps == 0:
        message = "the run ended before a training step was counted, so the profiler recorded nothing"
        advice = "call step() after each training step; tbmem run counts the steps of torch's optimizers"
    else:
        keys = [f"profiling.{key}" for key in ("skip_first", "wait", "warmup", "active", "repeat")]
        setting = ", ".join(f"{key}={getattr(config, key.partition('.')[2])}" for key in keys)
        message = (
            f"the run ended after {_counted(steps, 'step')},"
            f" but the profiler's schedule needs {config.steps_needed} steps:"
            f" {ledger.complete} of {wanted} windows complete, {_counted(len(ledger.traces), 'trace')} written"
            f" ({setting})"
        )
        others = ", ".join(keys[:-1])
        advice = f"train for at least {config.steps_needed} steps, or lower {others} or {keys[-1]}"
    return Finding(
        kind=FindingKind.SHORT_RUN,
        severity=Severity.WARNING,
        device="",
        first_step=resumed_after + 1,
        last_step=resumed_after + steps,
        message=message,
        evidence={"steps": steps, "steps_needed": config.steps_needed, "windows_complete": ledger.complete},
        advice=advice,
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
