"""A run held against limits: one result per check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tbmem.analysis.runs.comparison import Change, is_material
from tbmem.analysis.runs.device_history import Track
from tbmem.analysis.runs.run_report import RunState
from tbmem.errors import UsageError
from tbmem.model.finding import FindingKind
from tbmem.units import format_bytes, format_signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run must hold; ``None`` where it is not asked for."""

    max_peak: int | None = None
    """Bytes."""
    max_growth: float | None = None
    """Bytes per step."""
    no_leak: bool = False
    baseline: Mapping[str, int] | None = None
    """Peaks in bytes by place, as ``peaks_of`` gives them."""
    baseline_levels: Mapping[str, int] | None = None
    """Levels at the end in bytes by place, as ``levels_of`` gives them; places that are not there are not checked."""
    tolerance: float = 0.05
    """Share by which a peak or a level may lie above the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check of one device."""

    check: str
    """``'max-peak'``, ``'max-growth'``, ``'no-leak'`` or ``'baseline'``."""
    place: str
    """``'rank 0 cpu'``."""
    holds: bool
    message: str
    measured: float | None = None
    """Bytes, or bytes per step."""
    limit: float | None = None
    """In the same unit."""
    details: Sequence[str] = field(default_factory=tuple)
    """Sentences of the findings behind it."""


def check_run(states: Sequence[RunState], limits: Limits) -> list[Result]:
    """Hold a run against its limits.

    Raises:
        UsageError: The run has nothing, or too little, to be judged by.
    """
    tracks = [(state, track) for state in states for track in state.tracks]
    if not tracks:
        raise UsageError("no step was logged in this run: there is nothing to check")
    results = [result for state, track in tracks for result in _check_track(state, track, limits)]
    here = {place_of(track) for _, track in tracks}
    for place in limits.baseline or ():
        if place not in here:
            raise UsageError(
                f"{place} is in the baseline, but not in this run; write the baseline anew if that is meant"
            )
    return results


def peaks_of(states: Sequence[RunState]) -> dict[str, int]:
    """Peak of each device in bytes, by its place: what a baseline holds."""
    return {place_of(track): track.peak.bytes for state in states for track in state.tracks if track.peak is not None}


def levels_of(states: Sequence[RunState]) -> dict[str, int]:
    """What each device held at the end in bytes, by its place: a leak is seen there before it is the peak."""
    tracks = [track for state in states for track in state.tracks]
    return {place_of(track): track.last_level for track in tracks if track.last_level is not None}


def place_of(track: Track) -> str:
    """``'rank 0 cuda:0'``."""
    return f"rank {track.rank} {track.device}"


def _check_track(state: RunState, track: Track, limits: Limits) -> Iterator[Result]:
    if limits.max_peak is not None:
        yield _at_most(track, "max-peak", limits.max_peak, f"at most {format_bytes(limits.max_peak)}")
    if limits.baseline is not None:
        yield _check_baseline(track, limits.baseline, limits.tolerance)
        level = (limits.baseline_levels or {}).get(place_of(track))
        if level is not None and track.last_level is not None:
            yield _check_level(track, track.last_level, level, limits.tolerance)
    if limits.max_growth is not None:
        yield _check_growth(state, track, limits.max_growth)
    if limits.no_leak:
        yield _check_leak(state, track)


def _at_most(track: Track, check: str, limit: float, words: str) -> Result:
    if track.peak is None:
        raise UsageError(f"{place_of(track)}: no peak is known, so {check} cannot be told")
    peak = track.peak
    return _against(track, check, peak.bytes, limit, f"peak {format_bytes(peak.bytes)} in step {peak.step}, {words}")


def _against(track: Track, check: str, measured: float, limit: float, message: str) -> Result:
    holds = measured <= limit
    return Result(check=check, place=place_of(track), holds=holds, message=message, measured=measured, limit=limit)


def _check_baseline(track: Track, baseline: Mapping[str, int], tolerance: float) -> Result:
    base = baseline.get(place_of(track))
    if base is None:
        known = ", ".join(baseline) or "nothing"
        raise UsageError(f"{place_of(track)} is not in the baseline (it holds {known}); write it anew")
    change = Change(name="peak", before=base, after=track.peak.bytes if track.peak is not None else 0)
    return _at_most(track, "baseline", base * (1 + tolerance), _words(change, tolerance))


def _check_level(track: Track, level: int, base: int, tolerance: float) -> Result:
    change = Change(name="level", before=base, after=level)
    message = f"level at the end {format_bytes(level)}, {_words(change, tolerance)}"
    found = _against(track, "baseline", level, base * (1 + tolerance), message)
    immaterial = not is_material(change, track.peak.bytes if track.peak is not None else 0)
    return replace(found, holds=found.holds or immaterial)


def _words(change: Change, tolerance: float) -> str:
    base = format_bytes(change.before)
    return f"{change.percent_text} against the baseline's {base}, at most +{100 * tolerance:g} %"


def _check_growth(state: RunState, track: Track, limit: float) -> Result:
    growth = state.growth_per_step(track)
    if growth is None:
        raise UsageError(
            f"{place_of(track)}: too few steps were logged to tell how memory grows;"
            " train longer, or set monitor.log_every_n_steps=1"
        )
    message = f"{format_signed(growth)} per step, at most {format_bytes(limit)}"
    return _against(track, "max-growth", growth, limit, message)


def _check_leak(state: RunState, track: Track) -> Result:
    verdict = state.verdict(track.device)
    if verdict is FindingKind.WARMUP:
        raise UsageError(f"{place_of(track)}: the run is too short to tell whether memory leaks ({state.step} steps)")
    leaks = [each for each in state.findings if each.kind is FindingKind.LEAK and each.device == track.device]
    has_leak = verdict is FindingKind.LEAK or (verdict is FindingKind.OOM and state.is_leaking(track.device))
    return Result(
        check="no-leak",
        place=place_of(track),
        holds=not has_leak,
        message=f"verdict {verdict.label}",
        details=tuple(" · ".join(filter(None, (each.message, each.advice))) for each in leaks[-1:]),
    )
