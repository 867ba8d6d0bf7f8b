"""The profiler's schedule: its state in each step, and the finding on a run that is shorter."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import Finding, FindingKind, Severity


class ScheduleState(str, Enum):
    """State of the profiler in a step."""

    WAIT = "wait"
    WARMUP = "warmup"
    ACTIVE = "active"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SchedulePoint:
    """Position of a step in the schedule."""

    state: ScheduleState
    window: int
    """Number of the cycle that the step belongs to, from 1; 0 outside all cycles."""
    first: bool
    last: bool


LEFT_OUT = "is left out"
"""What happens to a window that is not recorded at all, in words."""
_PREPARED = 4  # steps before an occurrence in which it must be known
_RECORDED_SECONDS, _SHARE_OF_RUN = 0.5, 0.01
"""Seconds that a spike's step may take to be recorded when it comes next: torch needs once or twice as long to end the
recording. A longer one, such as an evaluation, is recorded once it is no more than such a share of the run."""
_CYCLE = (ScheduleState.WAIT, ScheduleState.WARMUP, ScheduleState.ACTIVE)


def schedule_at(step: int, config: ProfilingConfig) -> SchedulePoint:
    """The state of a step, numbered from 1: wait, warm up, record, ``repeat`` times (0: for ever).

    With wait 1, warmup 2, active 3, repeat 2: 1 waits, 2-3 warm up, 4-6 record, 7-12 again, 13 and later are stopped.
    """
    if not config.enabled:
        return SchedulePoint(ScheduleState.STOPPED, 0, False, False)
    since = step - 1 - config.skip_first
    if since < 0:
        return SchedulePoint(ScheduleState.WAIT, 0, step == 1, since == -1)
    cycle, position = divmod(since, config.cycle)
    if config.repeat and cycle >= config.repeat:
        return SchedulePoint(ScheduleState.STOPPED, 0, False, False)
    for state, length in zip(_CYCLE, (config.wait, config.warmup, config.active), strict=True):
        if position < length:
            return SchedulePoint(state, cycle + 1, position == 0, position == length - 1)
        position -= length
    raise AssertionError("a position lies in one of the three states of its cycle")


def next_occurrence(periodic: Finding, step: int) -> int:
    """The first step in which a periodic spike is expected again, and that a window can still be prepared for."""
    last, period = periodic.evidence["member_steps"][-1], periodic.evidence["period_steps"]
    return int(last + period * max(-(-(step + _PREPARED - last) // period), 1))


class Schedule:
    """The windows of one run: those of the configuration, of which some come later, and the occurrence of one spike.

    Steps are numbered from 1 in this run.

    Args:
        config: Lengths and number of the windows.
        clock: Seconds that pass.
    """

    def __init__(self, config: ProfilingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock, self._began = clock, clock()
        self._postponed = self._begins = 0  # steps by which windows come later, and the first of the next cycle
        self._late = self._attempts = 0  # the last window that was postponed, and how often
        self.expected = 0
        """The step in which a periodic spike is expected and recorded; 0 for none."""

    def at(self, step: int) -> SchedulePoint:
        """The state of a step."""
        occurrence = self._occurrence_at(step)
        if occurrence is None and step < self._begins:
            return SchedulePoint(ScheduleState.WAIT, 0, False, False)
        return occurrence or schedule_at(step - self._postponed, self._config)

    def is_free(self, steps: Iterable[int]) -> bool:
        """Whether no window overlaps steps."""
        return {self.at(step).state for step in steps} <= {ScheduleState.WAIT, ScheduleState.STOPPED}

    def expect(self, findings: Iterable[Finding], step: int, resumed_after: int) -> bool:
        """Record the first periodic spike among findings when it comes again, if no window is there; whether it will.

        ``step`` steps of this run have ended; a schedule without an end leaves none out. A step that takes long comes
        later: its recording is to be a small share of the run.
        """
        periodic = next((finding for finding in findings if finding.kind is FindingKind.PERIODIC), None)
        if periodic is None or not self._config.repeat:
            return False
        earliest = max(step, self._affordable_from(periodic.evidence.get("step_seconds", 0.0), step))
        expected = next_occurrence(periodic, earliest + resumed_after) - resumed_after
        if self.is_free(range(expected - 2, expected + 1)):
            self.expected = expected
        return bool(self.expected)

    def _affordable_from(self, seconds: float, step: int) -> int:
        """The first step in which one of so many seconds may be recorded, at the pace of the ``step`` steps so far."""
        if seconds <= _RECORDED_SECONDS:
            return 0
        return math.ceil(seconds / _SHARE_OF_RUN * step / (self._clock() - self._began))

    def postpone(self, window: int) -> str:
        """Let a window of which nothing was recorded, and those after it, come a cycle later; returns it in words.

        The same window is postponed by two cycles the next time, then by four. One that was to record a spike is left
        out.
        """
        config = self._config
        if window > config.repeat > 0:
            return LEFT_OUT
        self._attempts, self._late = self._attempts + 1 if window == self._late else 0, window
        later = config.cycle << self._attempts
        self._postponed += later
        self._begins = 1 + config.skip_first + (window - 1) * config.cycle + self._postponed
        expected, self.expected = self.expected, 0
        if expected and self.is_free(range(expected - 2, expected + 1)):
            self.expected = expected  # else a window is there now
        return f"is postponed by {_counted(later, 'step')}"

    def _occurrence_at(self, step: int) -> SchedulePoint | None:
        """The state around a step beyond the windows: one warms up, that before it is recorded, to compare, and it."""
        number, expected = self._config.repeat + 1, self.expected
        if expected and step == expected - 2:
            return SchedulePoint(ScheduleState.WARMUP, number, True, True)
        if expected and expected - 1 <= step <= expected:
            return SchedulePoint(ScheduleState.ACTIVE, number, step < expected, step == expected)
        return None


def describe_schedule(config: ProfilingConfig, *, resumed_after: int = 0) -> str:
    """The recorded steps in words; at most three windows."""
    begin = resumed_after + config.skip_first + config.wait + config.warmup + 1
    firsts = [begin + number * config.cycle for number in range(min(config.repeat or 3, 3))]
    steps = ", ".join(f"{a}-{a + config.active - 1}" if config.active > 1 else f"{a}" for a in firsts)
    return f"records steps {steps}{', ...' if config.repeat == 0 or config.repeat > 3 else ''}"


def short_run_finding(
    config: ProfilingConfig, steps: int, complete: int, traces: int, *, resumed_after: int = 0
) -> Finding | None:
    """The finding on a run shorter than its schedule; ``None`` if all windows (with repeat=0: one) are complete."""
    wanted = max(config.repeat, 1)
    if not config.enabled or steps >= config.steps_needed or complete >= wanted:
        return None
    if steps == 0:
        message = "the run ended before a training step was counted, so the profiler recorded nothing"
        advice = "call step() after each training step; tbmem run counts the steps of torch's optimizers"
    else:
        keys = ("skip_first", "wait", "warmup", "active", "repeat")
        setting = ", ".join(f"profiling.{key}={getattr(config, key)}" for key in keys)
        message = (
            f"the run ended after {_counted(steps, 'step')}, but the profiler's schedule needs {config.steps_needed}"
            f" steps: {complete} of {wanted} windows complete, {_counted(traces, 'trace')} written ({setting})"
        )
        others = ", ".join(f"profiling.{key}" for key in keys[:-1])
        advice = f"train for at least {config.steps_needed} steps, or lower {others} or profiling.{keys[-1]}"
    return Finding(
        kind=FindingKind.SHORT_RUN,
        severity=Severity.WARNING,
        device="",
        first_step=resumed_after + 1,
        last_step=resumed_after + steps,
        message=message,
        evidence={"steps": steps, "steps_needed": config.steps_needed, "windows_complete": complete},
        advice=advice,
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
