"""The profiler's schedule: its state in each step, and the finding on a run that is shorter."""

from __future__ import annotations

from collections.abc import Iterable
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


_PREPARED = 4  # steps before an occurrence in which it must be known
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


def is_free(steps: Iterable[int], config: ProfilingConfig) -> bool:
    """Whether no window of the schedule overlaps steps."""
    states = {schedule_at(step, config).state for step in steps}
    return states <= {ScheduleState.WAIT, ScheduleState.STOPPED}


def next_occurrence(periodic: Finding, step: int) -> int:
    """The first step in which a periodic spike is expected again, and that a window can still be prepared for."""
    last, period = periodic.evidence["member_steps"][-1], periodic.evidence["period_steps"]
    return int(last + period * max(-(-(step + _PREPARED - last) // period), 1))


def expected_step(findings: Iterable[Finding], step: int, resumed_after: int, config: ProfilingConfig) -> int | None:
    """The step of this run in which the first periodic spike among findings is expected, if the schedule leaves it out.

    ``step`` steps of this run have ended; a schedule without an end leaves none out.
    """
    periodic = next((finding for finding in findings if finding.kind is FindingKind.PERIODIC), None)
    if periodic is None or not config.repeat:
        return None
    expected = next_occurrence(periodic, step + resumed_after) - resumed_after
    return expected if is_free(range(expected - 2, expected + 1), config) else None


def occurrence_at(step: int, expected: int, config: ProfilingConfig) -> SchedulePoint | None:
    """The state around a step beyond the schedule: one warms up, that before it is recorded, to compare, and it."""
    number = config.repeat + 1
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
