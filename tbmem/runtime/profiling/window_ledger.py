"""Files and cost of the profiler's windows, and the finding on missing windows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.run_summary import ProfilerCost
from tbmem.runtime.profiling.window import WindowResult

_PLAIN_STEPS = 256
"""Number of steps outside windows whose duration is kept for comparison."""


@dataclass(slots=True)
class WindowLedger:
    """Files and cost of a run's windows."""

    windows: list[WindowResult] = field(default_factory=list)
    snapshots: list[Path] = field(default_factory=list)
    """Snapshots of windows, of the user and of out-of-memory errors."""
    _plain_steps: deque[float] = field(default_factory=lambda: deque(maxlen=_PLAIN_STEPS))

    def add(self, window: WindowResult) -> None:
        """Add a finished window."""
        self.windows.append(window)
        if window.snapshot is not None:
            self.snapshots.append(window.snapshot)

    @property
    def recorded(self) -> dict[Path, range]:
        """The traces and their steps, in order."""
        traced = ((window.trace, window.steps) for window in self.windows)
        return {trace: range(steps[0], steps[-1] + 1) for trace, steps in traced if trace is not None}

    @property
    def traces(self) -> list[Path]:
        """The traces, in order."""
        return list(self.recorded)

    @property
    def address_books(self) -> list[Path]:
        """The address books, in order."""
        return [window.address_book for window in self.windows if window.address_book is not None]

    @property
    def complete(self) -> int:
        """Number of windows with all of their steps."""
        return sum(window.complete for window in self.windows)

    def add_plain_step(self, seconds: float) -> None:
        """Add the duration of a step outside windows."""
        self._plain_steps.append(seconds)

    @property
    def has_enough_plain_steps(self) -> bool:
        """Whether further plain steps would only replace others."""
        return len(self._plain_steps) == _PLAIN_STEPS

    def cost(self) -> ProfilerCost | None:
        """Cost of profiling; ``None`` if no step was recorded."""
        recorded = [seconds for window in self.windows for seconds in window.step_seconds]
        if not recorded:
            return None
        from statistics import median  # slow to import

        return ProfilerCost(
            windows=len(self.windows),
            recorded_steps=len(recorded),
            recorded_step_seconds=median(recorded),
            plain_step_seconds=median(self._plain_steps) if self._plain_steps else None,
            writing_seconds=sum(window.writing_seconds for window in self.windows),
            host_bytes=max(max(window.host_after - window.host_before, 0) for window in self.windows),
            trace_bytes=sum(window.bytes_written for window in self.windows),
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
