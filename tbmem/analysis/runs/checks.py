"""Checks of a run against limits, with one result per check and device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tbmem.analysis.growth_rate import ENOUGH_STEPS
from tbmem.analysis.runs.comparison import Change, is_material
from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.analysis.runs.run_status import RankState, Standing, rank_status, skipped_note
from tbmem.errors import UsageError
from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import gap_notes
from tbmem.model.run_summary import WHAT_COUNTS
from tbmem.units import format_bytes, format_signed

_CERTAIN_STEPS = 100
"""Steps after which a leak of each step is certain in the default configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run; ``None`` where one is not checked."""

    max_peak: int | None = None  # bytes
    max_growth: float | None = None  # bytes per step
    no_leak: bool = False
    complete: bool = False
    """Whether each rank must have ended in order, with all of its log."""
    baseline: Mapping[str, int] | None = None  # peaks in bytes by rank and device, as from ``peaks_of``
    baseline_levels: Mapping[str, int] | None = None
    """Levels at the end in bytes, as from ``levels_of``; devices that are missing here are not checked."""
    tolerance: float = 0.05  # fraction by which a peak or a level may exceed the baseline's


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check of one device."""

    check: str
    """``'max-peak'``, ``'max-growth'``, ``'no-leak'``, ``'complete'``, ``'baseline'`` (the peak) or ``'level'``."""
    place: str  # ``'rank 0 cpu'``; of the whole rank ``'rank 0'``
    holds: bool
    message: str
    measured: float | None = None  # bytes, or bytes per step
    limit: float | None = None  # in the same unit
    details: Sequence[str] = ()  # messages and advice of its findings


_HARDLY = 0.01  # part of a limit: both figures look the same where it is exceeded by less


def check_run(states: Sequence[RankState], limits: Limits, now: float = 0.0) -> list[Result]:
    """Check a run against its limits; ``now``: Unix time in seconds, for a run that goes on.

    Raises:
        UsageError: The log has too few figures for a check.
    """
    devices = [(state, device) for state in states for device in state.devices]
    if not devices:
        ends = [_check_end(state, now) for state in states] if limits.complete else []
        if not all(end.holds for end in ends):
            return ends  # that is an answer, whatever else cannot be told
        skipped = sum(state.skipped for state in states)
        damage = f"; {skipped_note(skipped)}" if skipped else ""
        statuses = [rank_status(state, now) for state in states]
        is_dead = all(status.standing is Standing.DIED for status in statuses)
        why = f"{statuses[0].text}; the log may be cut off" if is_dead else WHAT_COUNTS
        raise UsageError(f"no step was logged in this run, so there is nothing to check; {why}{damage}")
    results = [result for state, device in devices for result in _check_device(state, device, limits)]
    if limits.complete:
        results += [_check_end(state, now) for state in states]
    places = [device.place for _, device in devices]
    for place in limits.baseline or ():
        if place not in places:
            message = f"{place} is in the baseline, but not in this run; write the baseline anew if that is meant"
            raise UsageError(message)
    return results


def peaks_of(states: Sequence[RankState]) -> dict[str, int]:
    """Peak of each device in bytes, without what tbmem has added, by rank and device, for a baseline."""
    devices = [device for state in states for device in state.devices]
    return {device.place: device.peak.of_the_program for device in devices if device.peak is not None}


def levels_of(states: Sequence[RankState]) -> dict[str, int]:
    """Level of each device at the end in bytes: a leak shows there before it raises the peak."""
    devices = [device for state in states for device in state.devices]
    return {device.place: device.last_level for device in devices if device.last_level is not None}


def _check_device(state: RankState, device: DeviceHistory, limits: Limits) -> Iterator[Result]:
    if limits.max_peak is not None:
        yield _check_peak(device, "max-peak", limits.max_peak, f"at most {format_bytes(limits.max_peak)}")
    if limits.baseline is not None:
        yield _check_baseline(device, limits.baseline, limits.tolerance)
        level = (limits.baseline_levels or {}).get(device.place)
        if level is not None and device.last_level is not None:
            yield _check_level(device, device.last_level, level, limits.tolerance)
    if limits.max_growth is not None:
        yield _check_growth(state, device, limits.max_growth)
    if limits.no_leak:
        yield _check_leak(state, device)


def _compare(device: DeviceHistory, check: str, measured: float, limit: float, message: str) -> Result:
    holds = measured <= limit
    return Result(check=check, place=device.place, holds=holds, message=message, measured=measured, limit=limit)


def _check_peak(device: DeviceHistory, check: str, limit: float, requirement: str) -> Result:
    peak = device.peak
    if peak is None:
        raise UsageError(f"{device.place}: no peak is known, so {check} cannot be determined")
    own = f" ({format_bytes(peak.bytes)} with tbmem's own {format_bytes(peak.own)})" if peak.own else ""
    message = f"peak {format_bytes(peak.of_the_program)} {peak.when}{own}, {requirement}"
    if peak.recorded is not None:
        message += f"; step {peak.recorded_step}, which tbmem recorded, is left out: {format_bytes(peak.recorded)}"
    return _compare(device, check, peak.of_the_program, limit, message)


def _check_baseline(device: DeviceHistory, baseline: Mapping[str, int], tolerance: float) -> Result:
    base = baseline.get(device.place)
    if base is None:
        known = ", ".join(baseline) or "nothing"
        raise UsageError(f"{device.place} is not in the baseline (it holds {known}); write it anew")
    change = Change(name="peak", before=base, after=device.peak.of_the_program if device.peak is not None else 0)
    return _check_peak(device, "baseline", base * (1 + tolerance), _baseline_text(change, tolerance))


def _check_level(device: DeviceHistory, level: int, base: int, tolerance: float) -> Result:
    change = Change(name="level", before=base, after=level)
    message = f"level at the end {format_bytes(level)}, {_baseline_text(change, tolerance)}"
    result = _compare(device, "level", level, base * (1 + tolerance), message)
    is_small = not is_material(change, device.peak.bytes if device.peak is not None else 0)
    return replace(result, holds=result.holds or is_small)


def _baseline_text(change: Change, tolerance: float) -> str:
    base = format_bytes(change.before)
    return f"{change.percent_text} against the baseline's {base}, at most +{100 * tolerance:g} %"


def _check_growth(state: RankState, device: DeviceHistory, limit: float) -> Result:
    growth = state.growth_per_step(device)
    if growth is None:
        raise UsageError(
            f"{device.place}: too few steps were logged to tell how memory grows;"
            " train longer, or set monitor.log_every_n_steps=1"
        )
    more = f" ({growth - limit:.0f} B too much)" if 0 < growth - limit < _HARDLY * limit else ""
    message = f"{format_signed(growth)} per step, at most {format_bytes(limit)}{more}"
    return _compare(device, "max-growth", growth, limit, message)


def _check_end(state: RankState, now: float) -> Result:
    status = rank_status(state, now)
    damage = [skipped_note(state.skipped)] if state.skipped else []
    gaps = gap_notes(state.gaps, state.rank)
    holds = status.standing is Standing.ENDED and not damage and not gaps
    message = " · ".join((f"{status.text} after {state.step} steps", *damage, *gaps))
    return Result(check="complete", place=f"rank {state.rank}", holds=holds, message=message)


def _check_leak(state: RankState, device: DeviceHistory) -> Result:
    verdict, place = state.verdict(device.device), device.place
    if verdict is FindingKind.WARMUP:
        why = f"{state.step} steps; {ENOUGH_STEPS} beside the warm-up and profiler windows are needed"
        if device.judged > ENOUGH_STEPS and (found := state.verdict_finding(device.device)) is not None:
            why = f"memory {found.message}, so run {_CERTAIN_STEPS} of them"
        raise UsageError(f"{place}: the run is too short to tell whether memory leaks ({why})")
    kinds = (FindingKind.OOM, FindingKind.LEAK) if verdict is FindingKind.OOM else (FindingKind.LEAK,)
    last = [state.last(device.device, kind) for kind in kinds]
    details = tuple(" · ".join(filter(None, (one.message, one.advice))) for one in last if one is not None)
    holds = verdict not in (FindingKind.LEAK, FindingKind.OOM)
    message = f"verdict {verdict.label}"
    if verdict is FindingKind.OOM and not state.is_leaking(device.device):
        message += f" after {state.step} steps: whether memory leaked until then is not known"
    if holds and state.step < _CERTAIN_STEPS:
        message += f" after {state.step} steps only: a leak is certain after 60 to 100, so run more of them"
    return Result(check="no-leak", place=place, holds=holds, message=message, details=details)
